"""Prometheus and Alertmanager have the right targets and receivers, and rules and dashboards use existing metrics."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import yaml

from agent.gpu import gpu_metrics
from agent.metrics import http_endpoint
from headway.render.files_by_role import render_files
from headway.render.monitoring import prometheus
from headway.render.system.agent_config import METRICS_PORT
from headway.render.system.unit_list import units_by_role
from tests.support.clusters.render_cases import gpu_cluster, site_of

CLUSTER = gpu_cluster()
NODE = Path(__file__).parents[4] / "node" / "agent"


def loaded(text: str) -> Any:
    return yaml.safe_load(text)


def test_scrapes_every_machine_at_agent_port() -> None:
    rows = loaded(prometheus.targets(CLUSTER, site_of(CLUSTER)))
    assert [row["labels"]["node"] for row in rows] == ["lab-head", "lab-1-1", "lab-1-2", "lab-2-1", "lab-2-2"]
    assert rows[1]["targets"] == ["10.87.3.11:6822"]
    assert http_endpoint.PORT == METRICS_PORT


def test_growing_cluster_changes_only_targets_without_reload() -> None:
    bigger = gpu_cluster(2, 3)
    before = prometheus.files(CLUSTER, site_of(CLUSTER))
    after = prometheus.files(bigger, site_of(bigger))
    changed = {path for path in after if before[path].digest != after[path].digest}
    assert changed == {prometheus.TARGETS}
    read = {
        path for unit in units_by_role(bigger, site_of(bigger))["head"] for path in (*unit.restart_on, *unit.reload_on)
    }
    assert prometheus.TARGETS not in read
    assert {prometheus.CONFIG, prometheus.RULES, prometheus.ALERTS} <= read


def test_prometheus_and_alertmanager_listen_on_loopback_only() -> None:
    for unit in ("prometheus", "prometheus-alertmanager"):
        text = render_files(CLUSTER, site_of(CLUSTER))["head"][
            f"/etc/systemd/system/{unit}.service.d/headway.conf"
        ].text
        assert re.search(r"--web\.listen-address=127\.0\.0\.1:\d+", text), unit


def known() -> set[str]:
    """Names that the agents give out, Prometheus's own, and Alertmanager's."""
    code = "".join(path.read_text() for path in NODE.rglob("*.py"))
    named = set(re.findall(r'"((?:headway|node)_[a-z_A-Z0-9]+)"', code)) | set(re.findall(r"(headway_\w+)\{", code))
    named |= {f"node_network_{key}_total" for key in ("receive_bytes", "transmit_bytes")}
    return named | set(gpu_metrics.FIELDS) | {"up", "alertmanager_notifications_failed_total"}


def spoken(expression: str) -> set[str]:
    bare = re.sub(r'"[^"]*"|\{[^}]*\}|\b(?:by|without|on) *\([^)]*\)', "", expression)
    words = set(re.findall(r"\b[a-zA-Z_]\w+\b(?! *\()", bare))
    return {word for word in words if word not in {"and", "or", "by", "offset", "vector"} and not word[0].isdigit()}


def test_alert_rules_use_existing_metrics_and_name_location() -> None:
    rules = [rule for group in loaded(prometheus._data("alert_rules.yml"))["groups"] for rule in group["rules"]]
    assert len({rule["alert"] for rule in rules}) == len(rules) >= 10
    for rule in rules:
        assert spoken(rule["expr"]) <= known(), rule["alert"]
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
        assert "{{" in rule["annotations"]["summary"]


def test_grafana_dashboard_uses_existing_metrics() -> None:
    board = json.loads(prometheus._data("grafana.json"))
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"]) >= 12
    for panel in board["panels"]:
        for target in panel["targets"]:
            assert spoken(target["expr"]) <= known(), panel["title"]
