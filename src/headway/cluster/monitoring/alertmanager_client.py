"""Sends notifications to the Alertmanager of a cluster's head, which forwards them by the channels of the cluster file."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from http import HTTPStatus

from headway.cluster.monitoring.http_client import ForwardsPorts, open_http_client
from headway.domain.billing.ledger import Notification
from headway.domain.machines.machine import Machine
from headway.errors import HeadwayError, Unreachable
from headway.render.monitoring.alertmanager_conf import NOTIFICATION
from headway.render.monitoring.prometheus import ALERTS_PORT

ALERT_S = 86_400  # Alertmanager remembers a notification for this long and does not send it again


async def send_alerts(
    connections: ForwardsPorts, head: Machine, notifications: Sequence[Notification], now: float
) -> None:
    """Sends the notifications. Sending the same ones again causes no second message. Raises Unreachable if Alertmanager
    or the head does not answer, HeadwayError if Alertmanager refuses."""
    import httpx

    async with open_http_client(connections, head, ALERTS_PORT) as client:
        try:
            answer = await client.post(
                "/api/v2/alerts", json=[_alert(head.cluster, notification, now) for notification in notifications]
            )
        except (httpx.TimeoutException, httpx.TransportError) as error:
            raise Unreachable(
                f"Alertmanager on {head.name} does not answer",
                hint=f"headway exec {head.cluster} -- systemctl status prometheus-alertmanager",
            ) from error
    if answer.status_code != HTTPStatus.OK:
        raise HeadwayError(
            f"Alertmanager on {head.name} refused an alert: {answer.text[:200]}",
            hint=f"headway exec {head.cluster} -- journalctl -u prometheus-alertmanager -n 50",
        )


def _alert(cluster: str, notification: Notification, now: float) -> dict[str, object]:
    return {
        "labels": {
            "alertname": notification.kind,
            "cluster": cluster,
            "severity": notification.severity,
            NOTIFICATION: notification.key,
        },
        "annotations": {"title": notification.title, "summary": notification.text},
        "startsAt": _moment(notification.at),
        "endsAt": _moment(now + ALERT_S),
    }


def _moment(at: float) -> str:
    """Returns the time as ISO 8601 in UTC."""
    return datetime.fromtimestamp(at, UTC).isoformat()
