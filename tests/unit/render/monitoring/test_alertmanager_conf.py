"""The receivers of alerts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import yaml

from headway.domain.cluster import Alerts
from headway.render.files_by_role import render_files
from headway.render.monitoring import alertmanager_conf, prometheus
from tests.support.clusters.render_cases import cpu_cluster, gpu_cluster, site_of

CLUSTER = gpu_cluster()
WAYS = Alerts("https://example.org/hook?key=s3cret", "https://chat.example.org/s3cret", "oncall@example.org")


def loaded(text: str) -> Any:
    return yaml.safe_load(text)


def test_alert_receivers_follow_cluster_file() -> None:
    told = loaded(alertmanager_conf.alertmanager_yml(replace(CLUSTER, alerts=WAYS)))
    people, once = told["receivers"]
    assert people["webhook_configs"][0]["url"] == WAYS.webhook
    assert people["slack_configs"][0]["api_url"] == WAYS.chat
    mail = people["email_configs"][0]
    assert (mail["to"], mail["smarthost"]) == ("oncall@example.org", "10.87.3.1:2525")
    assert loaded(alertmanager_conf.alertmanager_yml(cpu_cluster()))["receivers"] == [
        {"name": "people"},
        {"name": "notifications"},
    ]
    for way in ("webhook_configs", "slack_configs", "email_configs"):  # what is told once has no end to tell
        assert (people[way][0]["send_resolved"], once[way][0]["send_resolved"]) == (True, False)
    [route] = told["route"]["routes"]
    assert (route["receiver"], route["matchers"], route["group_by"]) == (
        "notifications",
        ['notification!=""'],
        ["notification"],
    )


def test_alert_url_with_special_characters_is_quoted() -> None:
    nasty = 'https://example.org/a": "b#{{ x }}: - [&'
    told = loaded(alertmanager_conf.alertmanager_yml(replace(CLUSTER, alerts=Alerts(nasty))))
    assert told["receivers"][0]["webhook_configs"] == [{"url": nasty, "send_resolved": True}]


def test_only_alertmanager_can_read_receiver_addresses() -> None:
    cluster = replace(CLUSTER, alerts=WAYS)
    files = render_files(cluster, site_of(cluster))
    holding = {path: file for role in files.values() for path, file in role.items() if "s3cret" in file.text}
    assert list(holding) == [prometheus.ALERTS]
    assert (holding[prometheus.ALERTS].mode, holding[prometheus.ALERTS].owner) == (0o600, "prometheus")
