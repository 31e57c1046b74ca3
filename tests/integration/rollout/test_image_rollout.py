"""A new node image is rolled out node by node in the right order, Slurm receives the right commands, and a roll that
was stopped or killed continues."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headway.catalog.providers import SSH
from headway.domain.changeset import Disturbs
from headway.domain.slurm.node_reasons import ROLLOUT_REASON
from headway.errors import Refused
from headway.rollout.image_rollout import plan_rollout, read_rollout_state
from headway.rollout.rollout_changes import RolloutState, rollout_changes
from headway.store.db.rows import NodeImage
from headway.store.store import Store
from tests.support.clusters.rollout_cluster import LAB, NEW, OLD, Fleet, context, fleet, go, store

__all__ = ["fleet", "store"]


async def test_rollout_drains_recreates_tests_and_returns_nodes_one_by_one(fleet: Fleet, store: Store) -> None:
    assert await go(fleet, store)
    assert set(fleet.images().values()) == {"id-new"}
    assert fleet.reasons == {}
    assert fleet.did[:5] == [
        "drain lab-1-1",
        "make lab-1-1 new",
        "test lab-1-1 thorough",
        "resume lab-1-1",
        "drain lab-1-2",
    ]
    assert [line for line in fleet.did if "thorough" in line] == ["test lab-1-1 thorough"]
    assert fleet.machines[LAB.head].image == "id-old"
    assert await store.node_images.get("lab") == NodeImage("", OLD)
    fleet.did.clear()
    assert await go(fleet, store)
    assert fleet.did == []


async def test_machine_whose_setup_was_interrupted_is_created_again(fleet: Fleet, store: Store) -> None:
    first, second = LAB.slot_names[:2]
    for name in (first, second):
        fleet.machines[name] = replace(fleet.machines[name], image="id-new")
        fleet.reasons[name] = ROLLOUT_REASON
    fleet.unfinished = {second}
    assert await go(fleet, store)
    assert [line for line in fleet.did if line.startswith("make")][:1] == [f"make {second} new"]
    assert f"make {first} new" not in fleet.did


async def test_failed_machine_creation_stops_the_rollout(fleet: Fleet, store: Store) -> None:
    fleet.unmakable = {"lab-1-1"}
    with pytest.raises(Refused, match="no room"):
        await go(fleet, store)
    assert fleet.reasons == {"lab-1-1": "headway: rolls: lab-1-1: no room"}
    fleet.unmakable = set()
    assert await go(fleet, store)
    assert set(fleet.images().values()) == {"id-new"}
    assert fleet.reasons == {}


async def test_rollout_plan_lists_nodes_and_reasons_without_changes(fleet: Fleet, store: Store) -> None:
    fleet.jobs = {"lab-1-2": {7}}
    fleet.reasons = {"lab-1-4": "ann: x"}
    found = await plan_rollout(context(fleet, store), back=False, head=True, by=False)
    assert [(change.where, change.disturbs) for change in found.changes] == [
        ("lab-1-1", Disturbs.REBUILD), ("lab-1-3", Disturbs.REBUILD), ("lab-1-2", Disturbs.REBUILD),
        ("lab-head", Disturbs.REBUILD),
    ]  # fmt: skip
    assert "once job 7 has ended" in found.changes[2].why
    assert "lab-1-4" in found.notes[0]
    by = await plan_rollout(context(fleet, store), back=False, head=False, by=True)
    assert [change.disturbs for change in by.changes if change.where == "lab-1-2"] == [Disturbs.JOBS]
    assert "--head" in by.notes[-1]
    assert fleet.did == []
    with pytest.raises(Refused, match="no previous image"):
        await plan_rollout(context(fleet, store), back=True, head=False, by=False)
    fleet.traits = SSH
    fleet.machines = {name: replace(one, image="") for name, one in fleet.machines.items()}
    with pytest.raises(Refused, match="are your own"):
        await plan_rollout(context(fleet, store), back=False, head=False, by=False)


async def test_rollout_plan_explains_that_nothing_is_to_do(fleet: Fleet, store: Store) -> None:
    fleet.machines = {name: replace(one, image="id-new") for name, one in fleet.machines.items()}
    seen = await read_rollout_state(context(fleet, store))
    assert isinstance(seen, RolloutState)
    found = rollout_changes(LAB, seen, "id-new", NEW, head=True, deadline=False)
    assert (found.changes, found.notes) == ((), ())
    assert NEW in found.why_empty
