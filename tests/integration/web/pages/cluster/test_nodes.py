"""The nodes page and the fabric map show nodes as they are."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headway.catalog.mig_profiles import lay_out
from headway.cluster.monitoring.metric_queries import MetricRow
from headway.domain.machines.gpu_parts import GpuParts
from headway.errors import Unreachable
from headway.render.monitoring.prometheus import SCRAPE_S
from headway.services.read_model.snapshot import Snapshot
from tests.support.clusters import builders
from tests.support.servers import server_fakes
from tests.support.servers.server_fakes import Server


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    made = await server_fakes.start(tmp_path, builders.Clock())
    await made.apply()
    made.state.live.store_snapshot(Snapshot("lab", (builders.node("lab-1-1", "MIXED"),), as_of=1000.0))
    yield made
    await made.close()


async def test_fabric_map_viewers_share_one_prometheus_query(server: Server) -> None:
    async def figures(*_: Any) -> tuple[MetricRow, ...]:
        await asyncio.sleep(0)
        labels = {"node": "lab-1-1", "gpu": "0"}
        idle = MetricRow("use", "", {"node": "lab-1-1", "gpu": "1"}, ((1000.0, float("nan")),))
        return (MetricRow("use", "", labels, ((1000.0, 41.6),)), idle)

    server.backend.answers["query_metrics"] = figures
    viewers = [await server.client(person, "viewer") for person in ("vic", "vera")]
    answers = await asyncio.gather(*(viewer.get("/clusters/lab/fabric?use=1") for viewer in viewers * 2))
    for answer in answers:
        told = {node[0]: node[5] for leaf in answer.json()["leaves"] for node in leaf["nodes"]}
        assert told["lab-1-1"][:2] == [42, None]
    assert len(server.backend.named("query_metrics")) == 1
    server.state.clock.now += SCRAPE_S  # type: ignore[attr-defined]
    await viewers[0].get("/clusters/lab/fabric?use=1")
    assert len(server.backend.named("query_metrics")) == 2, "by then there may be others"


async def test_failed_prometheus_query_is_cached_for_other_viewers(server: Server) -> None:
    server.backend.answers["query_metrics"] = Unreachable("Prometheus does not answer")
    client = await server.client("vic", "viewer")
    answers = [(await client.get("/clusters/lab/fabric?use=1")).json() for _ in range(2)]
    assert [answer["trouble"] for answer in answers] == ["Prometheus does not answer"] * 2
    assert len(server.backend.named("query_metrics")) == 1


async def test_node_page_shows_mig_instances_and_their_jobs(tmp_path: Path) -> None:
    made = await server_fakes.start(tmp_path, builders.Clock())
    made.backend.clusters["lab"] = {"parts": GpuParts(mig=lay_out(builders.H100, {"3g.40gb": 2}))}
    await made.apply()
    node = replace(builders.node("lab-1-1", "MIXED"), gpus=16, gpu_types=("3g.40gb",))
    job = replace(builders.job(7), nodes=("lab-1-1",), state="RUNNING", gpu_indexes={"lab-1-1": (3,)})
    made.state.live.store_snapshot(
        Snapshot("lab", (node,), jobs=(job,), machines=(builders.machine("lab-1-1"),), as_of=1000.0)
    )
    viewer = await made.client("vic", "viewer")
    page = (await viewer.get("/clusters/lab/nodes/lab-1-1")).text
    assert "MIG instances in use" in page
    assert "each GPU: 2 x 3g.40gb" in page
    assert 'title="GPU 1, 3g.40gb: job 7"' in page
    assert 'title="GPU 0, 3g.40gb: free"' in page
    told = (await viewer.get("/api/v1/clusters/lab/nodes")).json()
    row = next(row for row in told if row["name"] == "lab-1-1")
    assert (row["gpu_parts"], row["gpus"][3]) == (
        "2 x 3g.40gb",
        {"index": 3, "job_id": 7, "gpu": 1, "part": "3g.40gb"},
    )
    await made.close()
