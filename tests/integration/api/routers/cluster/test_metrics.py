"""Metrics over time are queried from Prometheus, returned in the documented form, and refused for invalid
requests."""

from __future__ import annotations

import re
from typing import Any

import pytest

from headway.cluster.monitoring.metric_queries import SERIES, MetricQuery, MetricRow, queries
from headway.domain.incident import FaultAction
from headway.errors import Unreachable
from headway.schemas.jobs import ProgressOut
from tests.support.clusters import builders
from tests.support.servers.server_fakes import Server, reading

URL = "/api/v1/clusters/lab/metrics"


async def test_node_metrics_have_one_line_per_gpu_on_a_shared_time_axis(server: Server) -> None:
    await server.apply()
    server.state.clock.now = 10_000.0  # type: ignore[attr-defined]
    asked: list[MetricQuery] = []

    def answer(_: Any, queries: list[MetricQuery], start: float, end: float, step_s: int) -> tuple[MetricRow, ...]:
        asked.extend(queries)
        two, one = {"node": "lab-1-1", "gpu": "10"}, {"node": "lab-1-1", "gpu": "2"}
        seen = ((start, 1.0), (start + step_s, float("nan")), (start + 3 * step_s, 4.0))
        return MetricRow("gpu_power", "", two, seen), MetricRow("gpu_power", "", one, seen)

    server.backend.answers["query_metrics"] = answer
    client = await server.client("vic", "viewer")
    told = (await client.get(f"{URL}?node=lab-1-1&series=gpu_power&start=-40&points=4")).json()
    assert [query.text for query in asked] == [
        'max by (node, gpu) (avg_over_time(DCGM_FI_DEV_POWER_USAGE{node="lab-1-1"}[20s]))'
    ]
    assert (told["times"], told["step_s"], told["simulated"]) == ([9960, 9970, 9980, 9990, 10000], 10, True)
    lines = told["charts"][0]["lines"]
    assert [(line["label"], line["gpu"]) for line in lines] == [("GPU 2", 2), ("GPU 10", 10)]
    assert lines[0]["values"] == [1, None, None, 4, None]


async def test_metrics_limit_points_and_widen_the_step_with_the_range(server: Server) -> None:
    await server.apply()
    server.state.clock.now = 3_000_000.0  # type: ignore[attr-defined]
    server.backend.answers["query_metrics"] = ()
    client = await server.client()
    told = (await client.get(f"{URL}?series=power&start=-2592000&points=1000")).json()
    assert told["step_s"] == 2592
    assert len(told["times"]) <= 1002
    for ask_for in ("start=-2764800", "start=2999999&end=2999000", "points=1001"):
        answer = await client.get(f"{URL}?series=power&{ask_for}")
        assert answer.status_code in (400, 422), ask_for


async def test_job_metrics_cover_the_job_lifetime(server: Server) -> None:
    await server.apply()
    server.state.clock.now = 10_000.0  # type: ignore[attr-defined]
    job = builders.job(7, "COMPLETED", start_time=4_000, end_time=5_000, gpus=512)
    server.backend.answers |= {"query_metrics": (), "job": job, "read": reading(), "machines": (), "job_runs": (), "history": (),
                               "progress_from_files": None}  # fmt: skip
    client = await server.client()
    told = (await client.get(f"{URL}?job=7&series=gpu_utilisation")).json()
    assert (told["start"], told["end"]) == (4000, 5000)
    asked = server.backend.named("query_metrics")[0][1]
    assert [query.line for query in asked] == ["lowest", "mean", "highest"], "512 lines are no chart"
    server.backend.answers["job"] = builders.job(8, "PENDING", start_time=0)
    assert (await client.get(f"{URL}?job=8&series=gpu_power")).json()["detail"] == "job 8 has not started"


async def test_machine_series_are_one_query_with_a_named_line_for_each_part(server: Server) -> None:
    await server.apply()
    server.state.clock.now = 10_000.0  # type: ignore[attr-defined]
    asked: list[MetricQuery] = []

    def answer(_: Any, queries: list[MetricQuery], start: float, end: float, step_s: int) -> tuple[MetricRow, ...]:
        asked.extend(queries)
        space = [MetricRow("disk_space", "", {"mountpoint": place}, ((start, 40.0),)) for place in ("/scratch", "/")]
        cpu = [MetricRow("cpu", "", {"line": line}, ((start, 5.0),)) for line in ("waiting for disks", "busy")]
        return (*space, *cpu)

    server.backend.answers["query_metrics"] = answer
    client = await server.client("vic", "viewer")
    told = (await client.get(f"{URL}?node=lab-1-1&series=cpu&series=disk_space&start=-600")).json()
    assert len(asked) == 2
    assert (
        'label_replace(100 * (1 - avg(rate(node_cpu_seconds_total{node="lab-1-1",mode="idle"}[40s]))' in asked[0].text
    )
    cpu, space = told["charts"]
    assert [line["label"] for line in cpu["lines"]] == ["busy", "waiting for disks"]
    assert [line["label"] for line in space["lines"]] == ["/scratch", "/"]
    assert space["limits"] == [{"label": "warning", "value": 97.0}]
    assert cpu["limits"] == []


async def test_charts_of_a_node_mark_its_incidents_and_drains(server: Server) -> None:
    await server.apply()
    now = server.state.clock()
    await server.state.store.incidents.open("lab", "lab-1-1", "XID 79: GPU lost", FaultAction.REBOOT, now - 60, {})
    await server.state.store.incidents.open("lab", "lab-1-2", "XID 48", FaultAction.REBOOT, now - 50, {})
    for target in ("lab/lab-1-1", "lab/lab-1-10", "other/lab-1-1"):
        await server.state.store.audit.record("olga", "node.drain", target, {"reason": "disk swap"})
    server.backend.answers["query_metrics"] = ()
    client = await server.client("vic", "viewer")
    told = (await client.get(f"{URL}?node=lab-1-1&series=load&start=-600")).json()["marks"]
    assert [(mark["kind"], mark["text"], mark["href"]) for mark in told] == [
        ("incident", "Incident 1 on lab-1-1: XID 79: GPU lost", "/clusters/lab/incidents/1"),
        ("drain", "olga drained lab-1-1: disk swap", ""),
    ]
    of_cluster = (await client.get(f"{URL}?series=power&start=-600")).json()["marks"]
    assert [mark["kind"] for mark in of_cluster] == ["incident", "incident", "drain", "drain"]


async def test_charts_of_a_job_mark_restarts_and_checkpoints_and_have_limits(server: Server) -> None:
    await server.apply()
    server.state.clock.now = 10_000.0  # type: ignore[attr-defined]
    job = builders.job(7, "COMPLETED", start_time=4_300, end_time=5_000, gpus=8, nodes=("lab-1-1", "lab-1-2"), cpus=32,
                       memory_mib=8192, restarts=1)  # fmt: skip
    first = builders.job(7, "REQUEUED", start_time=4_000, end_time=4_200, nodes=("lab-1-1",))
    server.backend.answers |= {
        "query_metrics": (), "job": job, "read": reading(), "machines": (),
        "job_runs": (first,), "history": (),
        "progress_from_files": ProgressOut(step=5, checkpoints_at=[100.0, 4_100.0]),
    }  # fmt: skip
    client = await server.client()
    told = (await client.get(f"{URL}?job=7&series=job_cpu&series=job_memory&series=gpu_memory")).json()
    assert [(mark["at"], mark["kind"]) for mark in told["marks"]] == [(4_100, "checkpoint"), (4_300, "restart")]
    assert [chart["limits"][0]["value"] for chart in told["charts"][:2]] == [16, 4096]
    assert told["charts"][2]["limits"][0]["label"] == "of the GPU"
    texts = [query.text for query in server.backend.named("query_metrics")[0][1]]
    assert texts[0] == 'sum by (node) (rate(headway_job_cpu_seconds_total{hpc_job="7"}[40s]))'


async def test_many_checkpoints_leave_the_other_marks_of_a_job(server: Server) -> None:
    await server.apply()
    server.state.clock.now = 10_000.0  # type: ignore[attr-defined]
    job = builders.job(7, "COMPLETED", start_time=4_100, end_time=5_000, gpus=0, nodes=("lab-1-1",), restarts=1)
    first = builders.job(7, "REQUEUED", start_time=4_000, end_time=4_050, nodes=("lab-1-1",))
    server.backend.answers |= {
        "query_metrics": (), "job": job, "read": reading(), "machines": (),
        "job_runs": (first,), "history": (),
        "progress_from_files": ProgressOut(step=5, checkpoints_at=[4_200.0 + 10 * i for i in range(70)]),
    }  # fmt: skip
    client = await server.client()
    told = (await client.get(f"{URL}?job=7&series=job_cpu")).json()["marks"]
    assert [mark["kind"] for mark in told] == ["restart"] + 60 * ["checkpoint"]


async def test_charts_of_an_earlier_period_mark_its_incidents_however_many_came_later(server: Server) -> None:
    await server.apply()
    server.state.clock.now = now = 100_000.0  # type: ignore[attr-defined]
    for i, at in enumerate([now - 9000, *(now - 70 + i for i in range(60))]):
        await server.state.store.incidents.open("lab", f"lab-1-{i}", "XID 48", FaultAction.REBOOT, at, {})
    server.backend.answers["query_metrics"] = ()
    client = await server.client("vic", "viewer")
    told = (await client.get(f"{URL}?series=power&start={now - 9600}&end={now - 8000}")).json()["marks"]
    assert [mark["href"] for mark in told] == ["/clusters/lab/incidents/1"]


@pytest.mark.parametrize("query", ["series=gpu_power", "node=lab-1-1&series=power", "node=lab-9-9&series=gpu_power"])
async def test_unknown_series_or_node_answers_404(server: Server, query: str) -> None:
    await server.apply()
    client = await server.client()
    answer = await client.get(f"{URL}?{query}")
    assert answer.status_code == 404
    assert "there is no series" in answer.text or "no node lab-9-9" in answer.text


async def test_unreachable_prometheus_answers_503_with_reason(server: Server) -> None:
    await server.apply()
    server.backend.answers["query_metrics"] = Unreachable(
        "Prometheus on lab-head does not answer", hint="headway exec ..."
    )
    client = await server.client()
    answer = await client.get(f"{URL}?series=power")
    assert answer.status_code == 503
    assert answer.json()["detail"] == "Prometheus on lab-head does not answer"


def test_every_series_builds_balanced_queries() -> None:
    for series in SERIES.values():
        for over in series.over:
            found = queries([series.key], over, "x", 30)
            assert all("{}" not in query.text and query.text.count("(") == query.text.count(")") for query in found)
            assert not any(place in query.text for query in found for place in ("OF", "WINDOW"))


def test_traffic_counts_each_card_once_and_waiting_for_disks_is_not_busy() -> None:
    [network] = queries(["network"], "node", "lab-1-1", 10)
    excluded = re.search(r'node_network_receive_bytes_total{[^}]*device!~"([^"]+)"', network.text)
    assert excluded is not None
    devices = (
        "eth0",
        "eth1",
        "ib0",
        "enp3s0f0",
        "bond0",
        "bond0.120",
        "eth0.7",
        "vlan12",
        "team0",
        "br0",
        "br-3f",
        "veth1",
    )
    counted = [device for device in devices if not re.fullmatch(excluded[1], device)]
    assert counted == ["eth0", "eth1", "ib0", "enp3s0f0"]
    [cpu] = queries(["cpu"], "node", "lab-1-1", 10)
    busy, _ = cpu.text.split(', "line", "busy"')
    assert 'mode="iowait"' in busy
