"""Viewers of a cluster's overview share one read until something changes, and failed reads are not kept."""

from __future__ import annotations

import asyncio

import pytest

from headway.errors import NotFound
from headway.services.read_model import overview
from headway.services.read_model.overview import read_overview
from headway.services.read_model.snapshot import Snapshot
from tests.support.clusters import builders
from tests.support.servers.server_fakes import Server


async def test_overview_keeps_nothing_for_unknown_clusters(server: Server) -> None:
    for name in ("no-such", "nor-such"):
        with pytest.raises(NotFound):
            await read_overview(server.state, name)
    await asyncio.sleep(0)
    assert server.state.overviews._reads == {}


async def test_viewers_share_one_overview_until_a_change(server: Server) -> None:
    await server.apply()
    server.state.live.store_snapshot(Snapshot("lab", jobs=(builders.job(7),), as_of=1))
    first, second = await asyncio.gather(read_overview(server.state, "lab"), read_overview(server.state, "lab"))
    assert first is second
    server.state.live.store_snapshot(Snapshot("lab", jobs=(builders.job(8),), as_of=2))
    later = await read_overview(server.state, "lab")
    assert [job.id for job in later.jobs] == [8]
    await server.store.clusters.save("lab", state="changing")
    server.state.live.notify_row_changed("lab")  # the cluster's row: its nodes are as they were
    third = await read_overview(server.state, "lab")
    assert third.status.cluster.state == "changing"
    assert third.status.nodes[1] is later.status.nodes[1]


async def test_equal_overview_is_the_same_object(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    await server.apply()
    server.state.live.store_snapshot(Snapshot("lab", jobs=(builders.job(7),), as_of=1))
    monkeypatch.setattr(overview, "SHARED_S", -1.0)  # each call reads
    first = await read_overview(server.state, "lab")
    assert await read_overview(server.state, "lab") is first


async def test_taken_down_cluster_leaves_no_overview(server: Server) -> None:
    await server.apply()
    await read_overview(server.state, "lab")
    await server.state.forget("lab")
    assert server.state.overviews._reads == {}
