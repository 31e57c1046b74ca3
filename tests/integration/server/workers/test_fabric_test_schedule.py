"""Scheduled fabric tests are queued by the clock, and only while nodes are idle."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headway.errors import Refused
from headway.schemas.nodes.fabric_tests import FabricTestOut
from headway.server.workers.fabric_test_schedule import AGAIN_S, FabricTestSchedule
from headway.services.read_model.snapshot import Snapshot
from tests.support.clusters import builders
from tests.support.servers import server_fakes
from tests.support.servers.server_fakes import Server

DAY_S = 86400
RESULT = FabricTestOut(cluster="lab", operation="", at=0.0)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    made = await server_fakes.start(tmp_path, builders.Clock(), test_fabric=RESULT)
    await made.apply()
    made.backend.whole["lab"] = replace(
        builders.cluster(4, name="lab"), health=builders.health(fabric_test_every_s=DAY_S)
    )
    row = await made.store.clusters.get("lab")
    assert row is not None
    spec = {**row.document["spec"], "health": {"fabric_test": "daily"}}
    await made.store.clusters.save("lab", {**row.document, "spec": spec})
    idle(made, 4)
    yield made
    await made.close()


def idle(server: Server, count: int) -> None:
    """Sets how many of the four nodes are idle, as last read from Slurm."""
    states = [["IDLE"] if place < count else ["ALLOCATED"] for place in range(4)]
    nodes = tuple(builders.node(f"lab-1-{place + 1}", *state) for place, state in enumerate(states))
    server.state.live.store_snapshot(Snapshot("lab", nodes=nodes))


async def looked(server: Server) -> int:
    """Lets the schedule look once. Returns the number of tests so far."""
    await FabricTestSchedule(server.state).check_all()
    await server.work_off()
    return len(server.backend.named("test_fabric"))


async def test_test_runs_when_due_and_its_result_is_stored(server: Server) -> None:
    clock: Any = server.state.clock
    assert await looked(server) == 1
    assert await looked(server) == 1
    clock.now += DAY_S
    assert await looked(server) == 2
    (found,) = await server.store.fabric_tests.latest("lab", 1)
    assert found["at"] == clock.now
    assert found["operation"].startswith("op-")


async def test_failed_test_is_repeated_sooner(server: Server) -> None:
    clock: Any = server.state.clock
    server.backend.answers["test_fabric"] = Refused("a fabric test needs two idle nodes of one plan")
    assert await looked(server) == 1
    clock.now += AGAIN_S
    assert await looked(server) == 2


async def test_busy_cluster_is_not_tested(server: Server) -> None:
    idle(server, 1)
    assert await looked(server) == 0
    idle(server, 2)
    assert await looked(server) == 1


async def test_cluster_without_the_setting_is_not_tested(server: Server) -> None:
    server.backend.whole["lab"] = builders.cluster(4, name="lab")
    assert await looked(server) == 0


async def test_fault_of_one_cluster_does_not_delay_the_tests_of_others(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = await server.store.clusters.get("lab")
    assert row is not None
    await server.store.clusters.save("first", row.document, state="ready")
    resolved = server.state.clusters.resolved

    async def only_lab(row: Any) -> Any:
        if row.name != "lab":
            raise ValueError(row.name)
        return await resolved(row)

    monkeypatch.setattr(server.state.clusters, "resolved", only_lab)
    assert await looked(server) == 1
