"""Configures Prometheus and Alertmanager of the head: targets, alert rules, and where alerts are sent.

Both are Debian's packages, listen on the head's loopback address only, and keep their data on the head's own volume."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from importlib.resources import files as resources

from headway.domain.cluster import Cluster
from headway.domain.machines.managed_file import File
from headway.domain.machines.site import Site
from headway.domain.machines.systemd_unit import Unit
from headway.render.escaping import MARK, script
from headway.render.monitoring.alertmanager_conf import alertmanager_yml, as_yaml
from headway.render.system.agent_config import METRICS_PORT
from headway.render.system.daemon_units import TRIES, drop_in

FOLDER = "/etc/headway/prometheus"
CONFIG = f"{FOLDER}/prometheus.yml"
SCRAPE_S = 10  # time between two scrapes of a machine
RULES = f"{FOLDER}/rules.yml"
TARGETS = f"{FOLDER}/targets.json"
ALERTS = "/etc/headway/alertmanager.yml"
BOARD = "/usr/share/headway/grafana.json"
DATA = "/srv/headway-state/prometheus"
ALERTS_DATA = "/srv/headway-state/alertmanager"
USER = "prometheus"
PROMETHEUS_PORT, ALERTS_PORT = 9090, 9093
_PROMETHEUS, _ALERTMANAGER = "prometheus.service", "prometheus-alertmanager.service"
DIRS = ((DATA, USER, 0o750), (ALERTS_DATA, USER, 0o750))


def files(cluster: Cluster, site: Site) -> dict[str, File]:
    """Returns the head's files. Alertmanager's file has mode 600 because it holds addresses that work like passwords."""
    return {
        CONFIG: File(prometheus_yml(cluster)),
        RULES: File(f"# {MARK}\n{_data('alert_rules.yml')}"),
        TARGETS: File(targets(cluster, site)),
        ALERTS: File(alertmanager_yml(cluster), mode=0o600, owner=USER, group=USER),
        BOARD: File(_data("grafana.json")),
        drop_in(_PROMETHEUS): File(_prometheus_unit()),
        drop_in(_ALERTMANAGER): File(_alertmanager_unit()),
    }


def units() -> Sequence[Unit]:
    """Returns the systemd units; no other unit waits for them. Added or removed machines need no reload: Prometheus
    watches the list of targets."""
    reload = ("systemctl", "reload")
    return (
        Unit(
            _ALERTMANAGER,
            restart_on=(drop_in(_ALERTMANAGER),),
            reload_on=(ALERTS,),
            reload=(*reload, _ALERTMANAGER),
            stage="monitoring",
        ),
        Unit(
            _PROMETHEUS,
            restart_on=(drop_in(_PROMETHEUS),),
            reload_on=(CONFIG, RULES),
            reload=(*reload, _PROMETHEUS),
            stage="monitoring",
        ),
    )


@cache
def _data(name: str) -> str:
    return resources("headway.render.monitoring").joinpath("data", name).read_text(encoding="utf-8")


def prometheus_yml(cluster: Cluster) -> str:
    """Returns Prometheus' configuration."""
    own = [
        {"targets": [f"127.0.0.1:{PROMETHEUS_PORT}"], "labels": {"service": "prometheus"}},
        {"targets": [f"127.0.0.1:{ALERTS_PORT}"], "labels": {"service": "alertmanager"}},
    ]
    settings = {
        "global": {
            "scrape_interval": f"{SCRAPE_S}s",
            "scrape_timeout": "5s",
            "evaluation_interval": "10s",
            "external_labels": {"cluster": cluster.name},
        },
        "rule_files": [RULES],
        "alerting": {"alertmanagers": [{"static_configs": [{"targets": [f"127.0.0.1:{ALERTS_PORT}"]}]}]},
        "scrape_configs": [
            {"job_name": "machines", "file_sd_configs": [{"files": [TARGETS]}]},
            {"job_name": "head", "static_configs": own},
        ],
    }
    return as_yaml(settings)


def targets(cluster: Cluster, site: Site) -> str:
    """Returns the list of targets as JSON: every machine that exists or will be created. Prometheus reads the file
    again by itself when it changes."""
    leaf = {slot.name: slot.leaf for slot in cluster.slots}
    rows = [
        {
            "targets": [f"{site.addresses[name]}:{METRICS_PORT}"],
            "labels": {"node": name, "role": "head" if name in cluster.heads else "node", "leaf": leaf.get(name, "")},
        }
        for name in (*cluster.heads, *(cluster.slot_names if site.members is None else site.members))
    ]
    return "[\n" + ",\n".join(map(json.dumps, rows)) + "\n]\n"


def _prometheus_unit() -> str:
    argv = (
        "/usr/bin/prometheus",
        f"--config.file={CONFIG}",
        f"--storage.tsdb.path={DATA}",
        "--storage.tsdb.retention.time=30d",
        "--storage.tsdb.retention.size=8GB",
        f"--web.listen-address=127.0.0.1:{PROMETHEUS_PORT}",
    )
    return _unit(argv, DATA)


def _alertmanager_unit() -> str:
    argv = (
        "/usr/bin/prometheus-alertmanager",
        f"--config.file={ALERTS}",
        f"--storage.path={ALERTS_DATA}",
        "--cluster.listen-address=",
        f"--web.listen-address=127.0.0.1:{ALERTS_PORT}",
    )
    return _unit(argv, ALERTS_DATA)


def _unit(argv: Sequence[str], data: str) -> str:
    return script(
        "[Unit]",
        f"RequiresMountsFor={data}",
        TRIES,
        "[Service]",
        "ExecStart=",
        "ExecStart=" + " ".join(argv),
        f"ReadWritePaths={data}",
        "# Slurm's daemons have priority.",
        "Nice=5",
        "OOMScoreAdjust=200",
        "Restart=always",
        "RestartSec=2",
    )
