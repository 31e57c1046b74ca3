"""During a Slurm upgrade no job spans two versions, no node is newer than its head, and no head returns to an older
version."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from headway.domain.machines.machine import Machine
from headway.errors import Refused
from headway.rollout.image_rollout import halt_rollout, plan_rollout, read_rollout_state, roll_heads
from headway.store.db.rows import NodeImage
from headway.store.store import Store
from headway.transport.process import CommandResult
from tests.support.clusters import rollout_cluster as world
from tests.support.clusters.rollout_cluster import LAB, NEW, NODES, OLD, SLURM, Fleet, fleet, go, store

__all__ = ["fleet", "store"]


@pytest.fixture
def newer(monkeypatch: pytest.MonkeyPatch, fleet: Fleet) -> Fleet:
    """The new image carries another Slurm, which the head runs already."""
    monkeypatch.setitem(SLURM, NEW, "26.05")
    monkeypatch.setattr(world, "LAB", replace(LAB, slurm_version="26.05"))
    fleet.machines[LAB.head] = replace(fleet.machines[LAB.head], image="id-new")
    return fleet


async def test_node_with_jobs_in_a_maintenance_reservation_is_not_out(fleet: Fleet, store: Store) -> None:
    fleet.jobs = {"lab-1-2": {7}}
    fleet.reasons = {"lab-1-3": "bob: disk swap"}
    real = fleet.remote

    async def remote(machine: Machine, argv: Sequence[str], **more: Any) -> CommandResult:
        """Somebody has made a reservation for all of them: Flags=MAINT,IGNORE_JOBS."""
        ran = await real(machine, argv, **more)
        return replace(ran, stdout=ran.stdout.replace("lab-1-2|idle", "lab-1-2|mixed$").replace("|idle", "|maint"))

    fleet.remote = remote  # type: ignore[method-assign]
    assert (await read_rollout_state(world.context(fleet, store))).out == {"lab-1-3": "bob: disk swap"}


async def test_slurm_upgrade_drains_all_old_nodes_before_a_new_one_serves(newer: Fleet, store: Store) -> None:
    newer.jobs = {"lab-1-4": {7}}

    def turn() -> None:
        if newer.turns == 5:
            newer.jobs = {}

    newer.each_turn = turn
    found = await plan_rollout(world.context(newer, store), back=False, head=False, by=False)
    assert "no job gets nodes of both" in found.notes[0]
    assert await go(newer, store)
    first = newer.did.index("make lab-1-1 new")
    assert {f"drain {name}" for name in NODES} <= set(newer.did[:first]), "before a node of the other kind serves"
    assert (set(newer.images().values()), newer.reasons) == ({"id-new"}, {})


async def test_failed_first_node_of_an_upgrade_returns_the_other_nodes(newer: Fleet, store: Store) -> None:
    newer.bad = {"new"}
    with pytest.raises(Refused, match="lab-1-1"):
        await go(newer, store)
    assert set(newer.reasons) == {"lab-1-1"}
    assert newer.images() == {name: "id-new" if name == "lab-1-1" else "id-old" for name in NODES}


async def test_halting_an_upgrade_returns_all_drained_nodes(newer: Fleet, store: Store) -> None:
    await store.node_images.set("lab", NodeImage(OLD, OLD))
    newer.reasons = dict.fromkeys(NODES, "headway: rolls")
    await halt_rollout(world.context(newer, store), newer.report)
    assert newer.reasons == {}


async def test_refuses_nodes_newer_than_the_head_and_head_downgrades(newer: Fleet, store: Store) -> None:
    await store.node_images.set("lab", NodeImage("", OLD))
    with pytest.raises(Refused, match="can't read the state"):
        await plan_rollout(world.context(newer, store), back=True, head=True, by=False)
    with pytest.raises(Refused, match="can't read the state"):
        await roll_heads(world.context(newer, store), newer.report, back=True)
    newer.machines[LAB.head] = replace(newer.machines[LAB.head], image="id-old")
    with pytest.raises(Refused, match=r"still runs Slurm 24.11"):
        await go(newer, store)
    assert newer.did == []


async def test_failed_node_after_the_first_success_keeps_old_nodes_drained(newer: Fleet, store: Store) -> None:
    newer.unmakable = {"lab-1-3"}
    with pytest.raises(Refused, match="lab-1-3") as caught:
        await go(newer, store)
    assert "the remaining nodes with another Slurm" in caught.value.hint
    served = {newer.machines[name].image for name in NODES if name not in newer.reasons and name in newer.machines}
    assert served == {"id-new"}, "no job has nodes of both kinds"
    assert (await store.node_images.get("lab")).pinned == "", "nothing new is made of the Slurm before"


async def test_halting_an_upgrade_keeps_untested_nodes_drained(newer: Fleet, store: Store) -> None:
    newer.machines["lab-1-1"] = replace(newer.machines["lab-1-1"], image="id-new")
    newer.reasons = {"lab-1-1": "headway: rolls"}
    await halt_rollout(world.context(newer, store), newer.report)
    assert set(newer.reasons) == {"lab-1-1"}, "that the head is of its image says nothing of the node"


async def test_resumed_upgrade_keeps_old_nodes_drained_after_a_failure(newer: Fleet, store: Store) -> None:
    for name in ("lab-1-1", "lab-1-2"):
        newer.machines[name] = replace(newer.machines[name], image="id-new")
    newer.reasons = dict.fromkeys(("lab-1-3", "lab-1-4"), "headway: rolls")
    newer.bad = {"new"}
    with pytest.raises(Refused, match="lab-1-3"):
        await go(newer, store)
    assert "lab-1-4" in newer.reasons


async def test_manually_drained_node_does_not_make_a_rollout_drain_all_nodes(newer: Fleet, store: Store) -> None:
    for name in NODES[:3]:
        newer.machines[name] = replace(newer.machines[name], image="id-mid")
    newer.reasons = {"lab-1-4": "eve: disk"}
    assert await go(newer, store)
    first = newer.did.index("make lab-1-1 new")
    assert [line for line in newer.did[:first] if line.startswith("drain")] == ["drain lab-1-1"]
