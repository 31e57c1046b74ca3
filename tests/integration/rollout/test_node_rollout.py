"""What rollouts of all kinds share: which nodes come when, deadlines, waits for the controller, halting and continuing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headway.errors import Refused
from headway.rollout.image_rollout import halt_rollout
from headway.store import StoreUnavailable
from headway.store.db.rows import NodeImage
from headway.store.store import Store
from tests.support.clusters.rollout_cluster import LAB, NODES, OLD, Fleet, context, fleet, go, store

__all__ = ["fleet", "store"]  # fixtures

NO_ANSWER = "Unable to contact slurm controller"


async def test_failed_node_test_stops_the_rollout_and_keeps_the_node_drained(fleet: Fleet, store: Store) -> None:
    fleet.bad = {"new"}
    with pytest.raises(Refused, match="lab-1-1: nvidia-smi lists 0 GPUs") as caught:
        await go(fleet, store)
    assert "--back" in caught.value.hint
    assert fleet.reasons == {"lab-1-1": "headway: rolls: nvidia-smi lists 0 GPUs, not 8"}
    assert fleet.images() == {name: "id-new" if name == "lab-1-1" else "id-old" for name in NODES}
    # What is made for other reasons until it is mended is of the image that works.
    assert await store.node_images.get("lab") == NodeImage(OLD, OLD)
    assert await go(fleet, store, back=True)
    assert (set(fleet.images().values()), fleet.reasons) == ({"id-old"}, {})
    assert await store.node_images.get("lab") == NodeImage(OLD, OLD)


async def test_rollout_resumes_after_the_database_was_unavailable(fleet: Fleet, store: Store) -> None:
    fleet.lost = True
    with pytest.raises(StoreUnavailable):
        await go(fleet, store)
    assert fleet.reasons == {"lab-1-1": "headway: rolls"}, "nothing is said of the node"
    assert await go(fleet, store), "begun again, as after the server was killed"
    assert (set(fleet.images().values()), fleet.reasons) == ({"id-new"}, {})


async def test_rollout_without_deadline_waits_for_jobs_and_starts_with_idle_nodes(fleet: Fleet, store: Store) -> None:
    fleet.jobs = {"lab-1-1": {7}}

    def turn() -> None:
        if fleet.turns == 40:
            fleet.jobs = {}

    fleet.each_turn = turn
    assert await go(fleet, store)
    made = [line.split()[1] for line in fleet.did if line.startswith("make")]
    assert made == ["lab-1-2", "lab-1-3", "lab-1-4", "lab-1-1"]
    assert not [line for line in fleet.did if line.startswith("requeue")]
    assert fleet.turns >= 40


async def test_rollout_at_its_deadline_drains_all_nodes_before_requeueing(fleet: Fleet, store: Store) -> None:
    fleet.jobs = {name: {number} for number, name in enumerate(NODES)}
    assert await go(fleet, store, until=fleet.now + 60)
    first = fleet.did.index("requeue 1")
    assert {f"drain {name}" for name in NODES} <= set(fleet.did[:first])
    assert fleet.did.index("requeue 0") < fleet.did.index("test lab-1-1 thorough") < first
    assert set(fleet.images().values()) == {"id-new"}
    assert fleet.now < 1200


async def test_rollout_skips_nodes_that_are_out_for_other_reasons(fleet: Fleet, store: Store) -> None:
    fleet.reasons = {"lab-1-2": "ann: disk swap", "lab-1-3": "headway: incident 4: XID 79"}
    assert await go(fleet, store)
    assert fleet.images() == {
        "lab-1-1": "id-new", "lab-1-2": "id-old", "lab-1-3": "id-old", "lab-1-4": "id-new",
    }  # fmt: skip
    assert "say lab-1-2: is out of service and stays unchanged: ann: disk swap" in fleet.order
    assert len(fleet.reasons) == 2


async def test_interrupted_rollout_continues(fleet: Fleet, store: Store) -> None:
    """One node is of the new image and untested, another has no machine any more."""
    fleet.machines["lab-1-3"] = replace(fleet.machines["lab-1-3"], image="id-new")
    del fleet.machines["lab-1-2"]
    fleet.reasons = {"lab-1-2": "headway: rolls", "lab-1-3": "headway: rolls"}
    assert await go(fleet, store)
    made = [line for line in fleet.did if line.startswith("make")]
    assert made == ["make lab-1-2 new", "make lab-1-1 new", "make lab-1-4 new"]
    assert "test lab-1-3" in fleet.did
    assert fleet.reasons == {}


async def test_rollout_yields_to_waiting_operations(fleet: Fleet, store: Store) -> None:
    assert not await go(fleet, store, waits=True)
    assert fleet.did == []


async def test_rollout_waits_for_an_absent_controller(fleet: Fleet, store: Store) -> None:
    head = fleet.machines.pop(LAB.head)

    def turn() -> None:
        if fleet.turns == 5:
            fleet.machines[LAB.head] = head

    fleet.each_turn = turn
    assert await go(fleet, store)
    assert len([line for line in fleet.order if "waits for the controller" in line]) == 1


async def test_rollout_retries_when_the_controller_does_not_answer(fleet: Fleet, store: Store) -> None:
    fleet.errors = {"update": [NO_ANSWER] * 3}
    assert await go(fleet, store)
    assert set(fleet.images().values()) == {"id-new"}
    assert fleet.turns == 3
    assert len([line for line in fleet.order if "waits for the controller" in line]) == 1


async def test_rollout_retries_a_failed_requeue(fleet: Fleet, store: Store) -> None:
    fleet.jobs = {"lab-1-1": {7}}
    fleet.errors = {"requeue": [NO_ANSWER] * 3}
    assert await go(fleet, store, until=fleet.now)
    assert fleet.turns == 3
    assert set(fleet.images().values()) == {"id-new"}


async def test_rollout_rechecks_nodes_once_it_holds_the_lock(fleet: Fleet, store: Store) -> None:
    """Another operation had the machines to itself until then: `seen` is as old as that."""

    def returned() -> None:
        del fleet.reasons["lab-1-1"]
        fleet.jobs = {"lab-1-1": {6}}

    def busy() -> None:
        fleet.jobs["lab-1-2"] = {7}

    others = [returned, busy]

    def meanwhile() -> None:
        if others:
            others.pop(0)()

    def turn() -> None:
        fleet.jobs = {}

    fleet.at_the_lock, fleet.each_turn = meanwhile, turn
    assert await go(fleet, store)
    made = [line for line in fleet.did if line.startswith("make")]
    assert len(made) == 4
    assert fleet.did.index("test lab-1-3 thorough") < fleet.did.index("make lab-1-1 new")
    assert set(fleet.images().values()) == {"id-new"}


async def test_rollout_waits_for_a_controller_lost_before_the_lock(fleet: Fleet, store: Store) -> None:
    head = fleet.machines[LAB.head]

    def meanwhile() -> None:
        if not fleet.turns:
            del fleet.machines[LAB.head]

    def turn() -> None:
        fleet.machines[LAB.head] = head

    fleet.at_the_lock, fleet.each_turn = meanwhile, turn
    assert await go(fleet, store)
    assert set(fleet.images().values()) == {"id-new"}


async def test_halting_a_rollout_returns_only_untouched_nodes_it_drained(fleet: Fleet, store: Store) -> None:
    fleet.machines["lab-1-3"] = replace(fleet.machines["lab-1-3"], image="id-new")
    fleet.reasons = {"lab-1-1": "headway: rolls", "lab-1-2": "ann: x", "lab-1-3": "headway: rolls"}
    await halt_rollout(context(fleet, store), fleet.report)
    assert fleet.did == ["resume lab-1-1"]
    assert next(line for line in fleet.order if "stays drained" in line).startswith("say lab-1-3")
    fleet.jobs = {"lab-1-3": {7}}  # of a roll back: it has not been touched
    await halt_rollout(context(fleet, store), fleet.report)
    assert fleet.did[-1] == "resume lab-1-3"
