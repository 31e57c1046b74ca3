"""Metrics and alerts are not for users: a query shows the jobs of others, and a request silences or invents an alert."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import pytest

from tests.cluster.lab import Lab

QUERY = "http://127.0.0.1:9090/api/v1/query?query=up"
ALERTS = "http://127.0.0.1:9093/api/v2/alerts"
REFUSED = 7  # curl: no connection


@pytest.mark.parametrize("url", [QUERY, ALERTS, "http://lab-head:6822/metrics", "http://lab-1-1:6822/metrics"])
def test_users_of_the_head_reach_neither_metrics_nor_alerts(lab: Lab, url: str) -> None:
    fetch = ("curl", "-sS", "--max-time", "60", url)
    assert lab.head(*fetch, user="alice", check=False).code == REFUSED
    assert lab.head(*fetch).out, "root, and so Headway's server, has access"


def test_users_cannot_send_alerts(lab: Lab) -> None:
    name = f"forged-{time.time_ns()}"
    alert = json.dumps([{"labels": {"alertname": name}}])
    send = ("curl", "-sS", "--max-time", "60", "-H", "Content-Type: application/json", "-d", alert, ALERTS)
    assert lab.head(*send, user="alice", check=False).code == REFUSED
    assert name not in lab.head("curl", "-sS", ALERTS).out


def test_jobs_reach_no_metrics(attack: Callable[[str], str]) -> None:
    """attack: a job on lab-1-1. Its own node, another one, and the head."""
    machines = ("lab-1-1", "lab-2-1", "lab-head", "127.0.0.1")
    script = "\n".join(
        f"curl -sS --max-time 3 -o /dev/null http://{name}:6822/metrics; echo end $?" for name in machines
    )
    ends = [line for line in attack(script).splitlines() if line.startswith("end ")]
    assert len(ends) == len(machines)
    assert "end 0" not in ends


def test_prometheus_reads_all_machines(lab: Lab) -> None:
    def up() -> bool:
        rows = json.loads(lab.head("curl", "-s", QUERY).out)["data"]["result"]
        return len(rows) == 7 and all(row["value"][1] == "1" for row in rows)

    lab.wait(up, "Prometheus to read the head, four nodes, itself and Alertmanager")
