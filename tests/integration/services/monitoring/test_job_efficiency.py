"""The verdict on a job uses the mean of all GPUs and nodes, however many there are, and exists for jobs of any age."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headway.cluster.monitoring.metric_queries import MetricQuery, MetricRow
from headway.services.monitoring.job_efficiency import get_efficiency
from tests.support.clusters import builders
from tests.support.servers.server_fakes import Server, reading

DAY_S = 24 * 3600.0


def answering(server: Server, values: dict[tuple[str, str], float]) -> None:
    """Lets Prometheus answer a query for a series and a line with one value."""

    def answer(_: Any, queries: Sequence[MetricQuery], start: float, end: float, step_s: int) -> tuple[MetricRow, ...]:
        wanted = [query for query in queries if (query.key, query.line) in values]
        return tuple(
            MetricRow(query.key, query.line, {"node": "lab-1-1"}, ((start, values[query.key, query.line]),))
            for query in wanted
        )

    server.backend.answers |= {
        "query_metrics": answer, "read": reading(), "machines": (), "job_runs": (), "history": (), "progress_from_files": None,
    }  # fmt: skip


async def test_figures_of_a_large_job_are_those_of_all_its_nodes(server: Server) -> None:
    await server.apply()
    server.state.clock.now = 10_000.0  # type: ignore[attr-defined]
    nodes = tuple(f"lab-1-{i}" for i in range(1, 101))
    job = builders.job(7, "COMPLETED", start_time=4_000, end_time=9_000, gpus=800, nodes=nodes, cpus=6400)
    answering(
        server,
        {
            ("job_cpu", "lowest"): 61.0, ("job_cpu", "mean"): 62.0, ("job_cpu", "highest"): 64.0,
            ("gpu_utilisation", "lowest"): 0.0, ("gpu_utilisation", "mean"): 96.0, ("gpu_utilisation", "highest"): 100.0,
        },
    )  # fmt: skip
    server.backend.answers["job"] = job
    found = {finding.resource: finding for finding in await get_efficiency(server.state, "lab", job)}
    assert (found["GPUs"].level, found["GPUs"].text) == ("ok", "96 % busy on average")
    assert found["CPUs"].text == "6200.0 of 6400 busy on average"


async def test_job_that_has_run_for_longer_than_prometheus_keeps_has_a_verdict_and_charts(server: Server) -> None:
    await server.apply()
    server.state.clock.now = 100 * DAY_S  # type: ignore[attr-defined]
    job = builders.job(7, start_time=int(60 * DAY_S), gpus=0, nodes=("lab-1-1",), cpus=8)
    answering(server, {("job_cpu", ""): 4.0})
    server.backend.answers["job"] = job
    assert [finding.text for finding in await get_efficiency(server.state, "lab", job)] == ["4.0 of 8 busy on average"]
    client = await server.client()
    told = (await client.get("/api/v1/clusters/lab/metrics?job=7&series=job_cpu")).json()
    assert 30.9 < (100 * DAY_S - told["start"]) / DAY_S < 31.1
