"""The division of GPUs is changed on drained nodes without jobs, one after the other; a node that fails stops the roll."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from headway.catalog.mig_profiles import lay_out
from headway.cluster.context import ClusterContext
from headway.domain.cluster import Cluster
from headway.domain.machines.gpu_parts import WHOLE, GpuParts
from headway.domain.machines.site import Site
from headway.domain.slurm.node_reasons import PARTS_REASON
from headway.errors import Refused
from headway.health.context import HealthContext
from headway.health.node_tests import NodeTestOutcome, NodeTestReport
from headway.rollout import gpu_parts_rollout as module
from headway.rollout import node_rollout
from headway.store.store import Store
from tests.support.clusters import builders
from tests.support.clusters.rollout_cluster import LAB, NODES, Fleet, store

__all__ = ["store"]
HALVES = GpuParts(mig=lay_out(LAB.largest_plan, {"3g.40gb": 2}))
# The driver switches the MIG mode only of a GPU that no program has open.
STOP, START = (
    "stop slurmd.service headway-agent.service nvidia-dcgm.service",
    "start headway-agent.service nvidia-dcgm.service",
)
DIVIDED = replace(LAB, groups=(replace(LAB.groups[0], parts=HALVES),))


class Nodes(Fleet):
    """The head's slurm.conf is `parts`: node -> its present division; apply changes it."""

    def __init__(self) -> None:
        super().__init__()
        self.parts: dict[str, GpuParts] = dict.fromkeys(NODES, WHOLE)
        self.failing = ""

    async def find(self, _: Cluster) -> object:
        return object()

    async def query(self, argv: list[str]) -> str | None:
        if argv[:2] in (["systemctl", "stop"], ["systemctl", "start"]):
            self.note(" ".join(argv[1:]))
            return ""
        if argv[-2:] == ["parts", "none"]:
            self.note("parts none")
            return ""
        return await super().query(argv)


@pytest.fixture
def nodes(monkeypatch: pytest.MonkeyPatch) -> Nodes:
    made = Nodes()

    async def site(*_: Any, **__: Any) -> Site:
        return cast(Site, None)

    async def present(cluster: Cluster, *_: Any) -> dict[str, GpuParts]:
        return {name: parts for name, parts in made.parts.items() if parts != cluster.group_of[name].parts}

    async def apply(cluster: Cluster, _: Any, report: Any, *, divided: tuple[str, ...]) -> None:
        (name,) = divided
        assert made.reasons[name].startswith(PARTS_REASON)
        assert not made.jobs.get(name)
        await report("head", "3 steps")
        made.note(f"apply {name}")
        made.parts[name] = cluster.group_of[name].parts

    async def prove(_: Any, name: str, *, thorough: bool) -> NodeTestReport:
        bad = name == made.failing
        return NodeTestReport(name, (NodeTestOutcome("gpus", not bad, "GPU 3 is not in MIG mode" if bad else ""),))

    async def registered(*_: Any) -> str:
        return ""

    for name, what in (("read_site", site), ("read_parts_now", present), ("apply_cluster", apply)):
        monkeypatch.setattr(module, name, what)
    for name, what in (("run_node_tests", prove), ("wait_until_registered", registered)):
        monkeypatch.setattr(node_rollout, name, what)
    return made


def context(nodes: Nodes, store: Store, cluster: Cluster = DIVIDED) -> HealthContext:
    tools = ClusterContext(cast(Any, nodes), store, cast(Any, nodes), Path("/nowhere"))
    return HealthContext(cluster, tools, lambda: nodes.now, nodes.sleep)


async def roll(nodes: Nodes, store: Store, cluster: Cluster = DIVIDED, until: float | None = None) -> bool:
    @asynccontextmanager
    async def alone() -> AsyncIterator[None]:
        yield

    async def waiting() -> bool:
        return False

    return await module.roll_gpu_parts(context(nodes, store, cluster), nodes.report, alone, waiting, until=until)


async def test_idle_nodes_are_divided_one_after_the_other(nodes: Nodes, store: Store) -> None:
    assert await roll(nodes, store)
    assert nodes.did == [
        word for name in NODES for word in (f"drain {name}", STOP, f"apply {name}", START, f"resume {name}")
    ]
    assert nodes.reasons == {}
    assert [line for line in nodes.order if "steps" in line] == []
    assert await roll(nodes, store)


async def test_a_node_with_jobs_comes_last_and_its_jobs_end_first(nodes: Nodes, store: Store) -> None:
    nodes.jobs[NODES[0]] = {7}

    def ends() -> None:
        if nodes.turns == 3:
            nodes.jobs[NODES[0]].clear()

    nodes.each_turn = ends
    changes = (await module.plan_parts_rollout(context(nodes, store), by=False)).changes
    assert [change.where for change in changes] == [*NODES[1:], NODES[0]]
    assert changes[-1].why == "each GPU is to be 2 x 3g.40gb, now whole GPUs, once job 7 has ended"
    assert changes[0].disturbs == "node drain"
    assert await roll(nodes, store)
    assert nodes.did[-5:] == [f"drain {NODES[0]}", STOP, f"apply {NODES[0]}", START, f"resume {NODES[0]}"]
    assert f"say {NODES[0]}: drained; waits for job 7" in nodes.order


async def test_without_mig_the_mode_is_switched_off_before(nodes: Nodes, store: Store) -> None:
    nodes.parts = dict.fromkeys(NODES, HALVES)
    assert await roll(nodes, store, replace(LAB, groups=(replace(LAB.groups[0], parts=GpuParts(shards=8)),)))
    assert nodes.did[1:4] == [STOP, "parts none", f"apply {NODES[0]}"]


async def test_a_node_that_fails_stays_drained_and_stops_the_roll(nodes: Nodes, store: Store) -> None:
    nodes.failing = NODES[1]
    with pytest.raises(
        Refused, match="the roll stops; failed on the new division of GPUs: lab-1-2: GPU 3 is not in MIG mode"
    ):
        await roll(nodes, store)
    assert nodes.reasons[NODES[1]].startswith(PARTS_REASON)
    assert nodes.parts[NODES[2]] == WHOLE
    nodes.failing = ""
    assert await roll(nodes, store), "the next roll begins with it"
    assert nodes.reasons == {}


async def test_nodes_out_of_service_for_another_reason_stay_as_they_are(nodes: Nodes, store: Store) -> None:
    nodes.reasons[NODES[3]] = "a person's"
    assert await roll(nodes, store)
    plan = await module.plan_parts_rollout(context(nodes, store), by=False)
    assert plan.notes == (f"{NODES[3]} is out of service and stays unchanged: a person's",)
    assert nodes.parts[NODES[3]] == WHOLE


async def test_a_halt_returns_nodes_that_wait_for_jobs(nodes: Nodes, store: Store) -> None:
    nodes.reasons = {NODES[0]: PARTS_REASON, NODES[1]: f"{PARTS_REASON}: GPU 3 is not in MIG mode"}
    await module.halt_parts_rollout(context(nodes, store), nodes.report)
    assert nodes.reasons.keys() == {NODES[1]}
    assert builders.cluster(4, 0).slot_names == NODES
