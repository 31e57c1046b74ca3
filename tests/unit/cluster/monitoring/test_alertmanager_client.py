"""Notifications become alerts of the head's Alertmanager."""

from __future__ import annotations

import json

import pytest

from headway.cluster.monitoring.alertmanager_client import send_alerts
from headway.domain.billing.ledger import Notification
from headway.errors import Unreachable
from headway.render.monitoring.prometheus import ALERTS_PORT
from tests.support.clusters.builders import machine
from tests.support.servers.forwarded_port import ForwardedPort

HEAD = machine("lab-head")


async def test_notification_is_sent_as_a_one_day_alert_with_its_key(forwarded: ForwardedPort) -> None:
    forwarded.port = ALERTS_PORT
    notification = Notification(
        "week/2026-W41", "WeeklySummary", "info", "lab: week 2026-W41", "all: 3.00 GPU-hours\n2", 1_000_000
    )
    await send_alerts(forwarded, HEAD, [notification], 1_000_060.0)
    [alert] = json.loads(forwarded.asked)
    assert (alert["labels"]["notification"], alert["labels"]["alertname"]) == ("week/2026-W41", "WeeklySummary")
    assert alert["annotations"] == {"title": "lab: week 2026-W41", "summary": "all: 3.00 GPU-hours\n2"}
    assert (alert["startsAt"], alert["endsAt"]) == ("1970-01-12T13:46:40+00:00", "1970-01-13T13:47:40+00:00")
    forwarded.path.unlink()
    with pytest.raises(Unreachable, match="Alertmanager on lab-head does not answer"):
        await send_alerts(forwarded, HEAD, [notification], 1_000_060.0)
