"""Prometheus collects the metrics of a real cluster, an alert reaches its receiver, and nodes run their tests."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from tests.cluster.lab import Lab

NODES = ("lab-1-1", "lab-1-2", "lab-2-1", "lab-2-2")
AGENT = ("python3", "-I", "-S", "/usr/lib/headway/agent.pyz")
BUSY = "timeout 290 sh -c 'while :; do :; done'"
SINK = textwrap.dedent("""
    import http.server
    class Hook(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            with open("/tmp/alerts.jsonl", "ab") as file:
                file.write(body.strip() + b"\\n")
            self.send_response(200)
            self.end_headers()
    http.server.HTTPServer(("127.0.0.1", 8099), Hook).serve_forever()
""")


def ask(lab: Lab, expression: str) -> list[tuple[dict[str, str], float]]:
    """Returns Prometheus' answer to an expression: (labels, value) of each series."""
    url = f"http://127.0.0.1:9090/api/v1/query?query={quote(expression)}"
    document = json.loads(lab.head("curl", "-s", url).out)
    return [(row["metric"], float(row["value"][1])) for row in document["data"]["result"]]


def node(lab: Lab, name: str, *argv: str) -> str:
    return lab.podman("exec", lab.container(name), *argv)


def test_prometheus_has_metrics_of_every_machine(lab: Lab) -> None:
    lab.wait(lambda: len(ask(lab, 'up{job="machines"} == 1')) == 5, "all machines to be scraped")
    rows = lab.wait(lambda: len(some := ask(lab, "DCGM_FI_DEV_GPU_TEMP")) == 32 and some, "all GPUs")
    assert {labels["node"] for labels, _ in rows} == set(NODES)
    assert {labels["simulated"] for labels, _ in rows} == {"1"}
    assert {labels["leaf"] for labels, _ in rows} == {"leaf1", "leaf2"}
    heard = lambda: {labels["from"] for labels, _ in ask(lab, "headway_heartbeat_age_seconds")}  # noqa: E731
    lab.wait(lambda: heard() == set(NODES), "the age of each node's last beat")
    lab.wait(lambda: not ask(lab, "headway_daemon_up == 0"), "the head's daemons")
    rules = json.loads(lab.head("curl", "-s", "http://127.0.0.1:9090/api/v1/rules").out)["data"]["groups"]
    found = [rule for group in rules for rule in group["rules"]]
    assert len(found) >= 10
    lab.wait(lambda: not ask(lab, "prometheus_rule_evaluation_failures_total > 0"), "rules that can be evaluated")


def test_gpu_metrics_show_the_job_and_its_utilisation(lab: Lab) -> None:
    job = lab.sbatch("sam", "-t", "5", "--gpus-per-node=2", "-o", "/dev/null", wrap=BUSY)
    lab.wait_job(job, "RUNNING")
    busy = f'DCGM_FI_DEV_GPU_UTIL{{hpc_job="{job}"}} > 5'
    lab.wait(lambda: len(ask(lab, busy)) == 2, "the job's two GPUs to be busy")
    lab.wait(lambda: not ask(lab, 'DCGM_FI_DEV_FB_USED{hpc_job=""} > 0'), "nothing in use on GPUs that nobody holds")
    lab.head("scancel", str(job))
    lab.wait(lambda: not ask(lab, f'DCGM_FI_DEV_GPU_UTIL{{hpc_job="{job}"}}'), "the GPUs to be free again")


@pytest.fixture
def sink(lab: Lab) -> Iterator[None]:
    lab.head("rm", "-f", "/tmp/alerts.jsonl")
    lab.head("systemd-run", "--unit=alert-sink", "--collect", "python3", "-c", SINK)
    lab.wait(lambda: "8099" in lab.head("ss", "-lnt").out, "the sink to listen")
    yield
    lab.head("systemctl", "stop", "alert-sink")


def test_alert_reaches_the_configured_webhook(lab: Lab, sink: None) -> None:
    erred = {labels["gpu"] for labels, _ in ask(lab, 'headway_xid_last_timestamp_seconds{node="lab-2-2"}')}
    gpu = next(number for number in "01234567" if number not in erred)  # this GPU's alert fires for minutes
    # an error of the program itself: the node is not drained
    lab.cli("fault", "lab", "xid", "31", "lab-2-2", "--gpu", gpu)

    def told() -> list[dict[str, Any]]:
        text = lab.head("cat", "/tmp/alerts.jsonl", check=False).out
        alerts = [alert for line in text.splitlines() for alert in json.loads(line)["alerts"]]
        return [alert for alert in alerts if alert["labels"].get("gpu") == gpu]

    alert = lab.wait(told, "the alert")[0]
    assert alert["status"] == "firing"
    assert alert["annotations"]["summary"] == f"lab-2-2: XID 31 on GPU {gpu}, usually caused by the program"
    labels = alert["labels"]
    assert [labels[key] for key in ("alertname", "severity", "node", "gpu")] == [
        "GpuErrorOfAJob",
        "info",
        "lab-2-2",
        gpu,
    ]
    assert lab.head("stat", "-c", "%a %U", "/etc/headway/alertmanager.yml").out.strip() == "600 prometheus"


def test_unfit_node_drains_and_requeues_a_job_without_holding_it(lab: Lab) -> None:
    victim = "lab-2-1"
    node(lab, victim, "systemctl", "stop", "headway-agent")  # it would remove the mark, because the checks pass here
    try:
        node(lab, victim, "sh", "-c", "echo GPU 3 does not answer > /run/headway/unfit")
        job = lab.sbatch("sam", "-t", "5", f"--nodelist={victim}", "-o", "/dev/null", wrap="sleep 1")
        lab.wait(lambda: "DRAIN" in lab.head("sinfo", "-h", "-N", "-n", victim, "-o", "%T").out.upper(), "the drain")
        assert lab.wait_job(job, "PENDING") == "PENDING"
        assert "held" not in lab.field(job, "Reason").lower()
        assert lab.field(job, "Priority") != "0"
        node(lab, victim, "rm", "/run/headway/unfit")
        lab.head("scontrol", "update", f"NodeName={victim}", "State=RESUME")
        assert lab.wait_job(job, "COMPLETED", patience_s=240) == "COMPLETED"
    finally:
        node(lab, victim, "rm", "-f", "/run/headway/unfit")
        node(lab, victim, "systemctl", "start", "headway-agent")


def proved(lab: Lab, name: str, *words: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in node(lab, name, *AGENT, "test", *words, "--json").splitlines()]


def test_healthy_node_passes_its_tests_and_marks_simulated_ones(lab: Lab) -> None:
    rows = proved(lab, "lab-1-1", "all", "--seconds", "0.3")
    assert [row for row in rows if not row["ok"]] == []
    names = {row["test"] for row in rows}
    assert names >= {"gpu_count", "mounts", "slurmd", "munge", "memory", "burn", "copy", "upload", "peer"}
    assert {(row["simulated"], row["skipped"]) for row in rows if row["test"] in ("burn", "peer")} == {(True, False)}


def test_memory_test_reports_a_gpu_with_ecc_errors(lab: Lab) -> None:
    broken = lab.container("lab-1-2")
    lab.podman("exec", broken, "sh", "-c", "mkdir -p /run/headway/own && echo 1 > /run/headway/own/gpu3-ecc")
    code = (
        "import sys; sys.path.insert(0, '/usr/lib/headway/agent.pyz');"
        "from agent import config; from agent.node_tests import command; from agent.gpu import simulated;"
        "c = config.load_config();"
        "print(command.device_errors('memory', simulated.Simulated(c, faults='/run/headway/own')))"
    )
    output = lab.podman("exec", broken, "python3", "-c", code).strip()
    lab.podman("exec", broken, "rm", "-r", "/run/headway/own")
    assert output == "GPU 3 had 1 uncorrected memory errors"


def test_allreduce_test_runs_on_two_nodes(lab: Lab) -> None:
    argv = [*AGENT, "test", "allreduce", "--json", "--seconds", "0.3", "--peers", "lab-1-1,lab-1-2"]
    lab.podman("exec", "-d", lab.container("lab-1-2"), *argv, "--rank", "1")
    (row,) = [json.loads(line) for line in node(lab, "lab-1-1", *argv, "--rank", "0").splitlines()]
    assert (row["ok"], row["simulated"], row["unit"]) == (True, True, "GB/s")
    assert row["figure"] > 0
