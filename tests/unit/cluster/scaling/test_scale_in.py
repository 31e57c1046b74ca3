"""Machines leave a running cluster: drain, wait or requeue jobs, delete, and mark the slot in Slurm, in this order."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headway.changes.cluster_changes import DesiredState, changeset
from headway.changes.desired_accounts import desired_accounts
from headway.cluster.changeset_execution import ChangeSetExecution
from headway.cluster.context import ClusterContext
from headway.cluster.scaling import scale_in
from headway.cluster.scaling.scale_in import MachineRemoval, YieldedToOperation
from headway.domain.changeset import Change, ChangeSet, Disturbs
from headway.domain.machines.machine import MachineState
from headway.domain.machines.observed_state import Observed
from headway.domain.machines.scale_in_deadline import Deadline
from headway.errors import Refused
from tests.support.clusters import builders
from tests.support.clusters.slurm_cluster import FakeProvider, FakeSlurm

LAB = builders.cluster(3, 0)
MACHINES = {name: builders.machine(name) for name in (LAB.head, *LAB.slot_names)}


class World:
    """A controller with jobs on nodes, and a provider that deletes."""

    def __init__(self, **jobs: tuple[int, ...]) -> None:
        self.slurm = FakeSlurm(LAB.slot_names, **jobs)
        self.did = self.slurm.did
        self.provider = FakeProvider(MACHINES.values(), self.did)
        self.now = 1000.0

    async def sleep(self, seconds: float) -> None:
        self.now += seconds

    async def report(self, *_: Any, **__: Any) -> None: ...

    def leaving(self, deadline: float | None = None) -> MachineRemoval:
        context: Any = ClusterContext(self.provider, None, self.slurm, Path())  # type: ignore[arg-type]
        head = MACHINES[LAB.head]
        until = None if deadline is None else Deadline(deadline)
        return MachineRemoval(
            LAB, context, self.report, head, MACHINES, until, clock=lambda: self.now, sleep=self.sleep
        )


@pytest.fixture(autouse=True)
def told(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Whenever Prometheus is told which machines there are."""
    found: list[str] = []

    async def tell(cluster: Any, _: Any) -> None:
        found.append(cluster.name)

    monkeypatch.setattr(scale_in, "update_scrape_targets", tell)
    return found


async def test_scrape_targets_are_updated_while_busy_machines_are_awaited(told: list[str]) -> None:
    world = World(lab_1_2=(7,))
    await world.leaving(world.now + 60).remove_machines(["lab-1-2", "lab-1-3"])
    assert told == ["lab"], "once, when lab-1-3 has gone and lab-1-2 works on; the apply tells of the rest"


async def test_idle_node_is_drained_deleted_and_marked_without_machine() -> None:
    world = World()
    await world.leaving().remove_machines(["lab-1-3"])
    assert world.did == [
        "scontrol update NodeName=lab-1-3 State=DRAIN Reason=headway: leaves",
        "delete lab-1-3",
        "scontrol update NodeName=lab-1-3 State=DOWN Reason=headway: no machine",
        "scontrol update NodeName=lab-1-3 State=UNDRAIN",
        "scontrol update NodeName=lab-1-3 State=DOWN Reason=headway: no machine",
    ]


async def test_node_with_a_job_stays_without_a_deadline() -> None:
    world = World(lab_1_2=(7,))
    with pytest.raises(Refused, match="lab-1-2 runs job 7") as caught:
        await world.leaving().remove_machines(["lab-1-2", "lab-1-3"])
    assert "--deadline" in caught.value.hint
    assert "delete lab-1-3" in world.did
    assert "delete lab-1-2" not in world.did
    assert world.did[-1] == "scontrol update NodeName=lab-1-2 State=RESUME"


async def test_previous_drain_reason_is_restored_if_the_node_stays() -> None:
    world = World(lab_1_2=(7,), lab_1_3=(8,))
    world.slurm.reasons["lab-1-2"] = "ann: a bad fan"
    leaving = world.leaving()

    async def sleep(seconds: float) -> None:
        world.now += seconds
        world.slurm.reasons |= {"lab-1-2": "headway: leaves: ann: a bad fan", "lab-1-3": "headway: leaves"}

    leaving.sleep = sleep
    with pytest.raises(Refused):
        await leaving.remove_machines(["lab-1-2", "lab-1-3"])
    assert world.did == [
        "scontrol update NodeName=lab-1-2 State=DRAIN Reason=headway: leaves: ann: a bad fan",
        "scontrol update NodeName=lab-1-3 State=DRAIN Reason=headway: leaves",
        "scontrol update NodeName=lab-1-2 State=DRAIN Reason=ann: a bad fan",
        "scontrol update NodeName=lab-1-3 State=RESUME",
    ]
    world.did.clear()
    world.slurm.reasons["lab-1-2"] = "headway: leaves: ann: a bad fan"
    with pytest.raises(Refused):  # the next one finds its own word there
        await leaving.remove_machines(["lab-1-2"])
    assert world.did[0] == "scontrol update NodeName=lab-1-2 State=DRAIN Reason=ann: a bad fan"


async def test_node_resumed_during_the_wait_is_drained_again() -> None:
    world = World(lab_1_2=(7,))
    leaving = world.leaving(deadline=world.now + 600)
    did: list[str] = []

    async def sleep(seconds: float) -> None:
        world.now += seconds
        if world.now == 1010:
            world.slurm.jobs["lab-1-2"] = {8}  # the first has ended, another one has started
            del world.slurm.reasons["lab-1-2"]
        if world.now == 1020:
            did.extend(world.did)
            world.slurm.reasons["lab-1-2"] = "headway: incident 5: a GPU is gone"
        if world.now == 1030:
            world.slurm.end(8)

    leaving.sleep = sleep
    await leaving.remove_machines(["lab-1-2"])
    drains = "scontrol update NodeName=lab-1-2 State=DRAIN Reason=headway: leaves"
    assert did == [drains, drains]
    assert world.did[2] == f"{drains}: headway: incident 5: a GPU is gone"
    assert world.did[3] == "delete lab-1-2"
    assert world.now >= 1030


async def test_job_started_during_the_eviction_is_requeued_before_deletion() -> None:
    world = World(lab_1_2=(7,))
    came = False

    def end(job: int) -> None:
        nonlocal came
        world.slurm.jobs["lab-1-2"] = world.slurm.jobs["lab-1-2"] - {job} | (set() if came else {8})
        came = True

    world.slurm.end = end  # type: ignore[method-assign]
    await world.leaving(deadline=world.now).remove_machines(["lab-1-2"])
    order = [words for words in world.did if words.startswith(("scontrol requeue", "delete"))]
    assert order == ["scontrol requeue 7", "scontrol requeue 8", "delete lab-1-2"]


async def test_job_that_ends_before_the_deadline_is_not_requeued() -> None:
    world = World(lab_1_2=(7,))
    leaving = world.leaving(deadline=world.now + 600)

    async def sleep(seconds: float) -> None:
        world.now += seconds
        if world.now >= 1100:
            world.slurm.end(7)

    leaving.sleep = sleep
    await leaving.remove_machines(["lab-1-2"])
    assert not [words for words in world.did if "requeue" in words]
    assert "delete lab-1-2" in world.did


async def test_jobs_are_warned_and_requeued_before_the_machine_is_deleted() -> None:
    world = World(lab_1_2=(7,))
    await world.leaving(deadline=world.now + 90).remove_machines(["lab-1-2"])
    order = [words.split()[1] for words in world.did if words.split()[1] in ("notify", "requeue", "lab-1-2")]
    assert order == ["notify", "requeue", "lab-1-2"]
    assert world.now < 1100


async def test_machine_is_deleted_although_its_job_does_not_leave() -> None:
    world = World(lab_1_2=(7,))
    world.slurm.keeps_jobs = {7}
    await world.leaving(deadline=world.now).remove_machines(["lab-1-2"])
    assert "delete lab-1-2" in world.did


async def test_machine_stays_until_the_requeue_of_its_job_succeeds() -> None:
    world = World(lab_1_2=(7,))
    world.slurm.errors["requeue"] = ["Socket timed out on send/recv operation"] * 3
    await world.leaving(deadline=world.now).remove_machines(["lab-1-2", "lab-1-3"])
    order = [words for words in world.did if words.startswith(("scontrol requeue", "scancel", "delete"))]
    assert order == ["delete lab-1-3", *["scontrol requeue 7"] * 4, "delete lab-1-2"]


async def test_deadline_applies_only_to_the_nodes_it_was_given_for() -> None:
    """The file may have changed since, by somebody who said nothing of jobs."""
    world = World(lab_1_2=(7,), lab_1_3=(8,))
    leaving = world.leaving()
    leaving.deadline = Deadline(world.now, frozenset({"lab-1-3"}))
    with pytest.raises(Refused, match="lab-1-2 runs job 7"):
        await leaving.remove_machines(["lab-1-2", "lab-1-3"])
    assert "delete lab-1-3" in world.did
    assert "delete lab-1-2" not in world.did
    assert world.did[-1] == "scontrol update NodeName=lab-1-2 State=RESUME"


async def test_other_work_runs_while_jobs_are_waited_for() -> None:
    """A deadline may be days away: groups that scale by themselves can't wait so long."""
    world, turns = World(lab_1_2=(7,)), list[tuple[str, ...]]()

    async def look(names: Collection[str]) -> None:
        turns.append(tuple(names))

    leaving = world.leaving(deadline=world.now + 5)
    leaving.waiting_work = SimpleNamespace(step=look)  # type: ignore[assignment]
    await leaving.remove_machines(["lab-1-2", "lab-1-3"])
    assert set(turns) == {("lab-1-2",)}
    assert len(turns) >= 5
    assert leaving.waited


async def test_clear_reports_a_wait_and_steps_aside_for_other_operations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headway.cluster.scaling.scale_in.POLL_S", 0.0)
    did: list[str] = []

    class Other:
        async def step(self, names: Collection[str]) -> None:
            did.append(f"look past {' '.join(names)}")

        async def other_operation_waits(self) -> bool:
            return others

        async def finish_tasks(self) -> None:
            did.append("rest")

        async def close(self) -> None:
            did.append("close")

    def run(world: World, deadline: float | None) -> ChangeSetExecution:
        goal = DesiredState(LAB, {}, desired_accounts(LAB), LAB.slot_names[:2])
        changes = ChangeSet("lab", (Change("machine.delete", "lab-1-3", "lab-1-3", "goes"),))
        context = world.leaving().context
        until = None if deadline is None else Deadline(deadline)
        return ChangeSetExecution(goal, context, world.report, None, {}, Observed(MACHINES), changes, until, Other())  # type: ignore[arg-type]

    others = False
    assert await run(World(lab_1_3=(7,)), 1.0).clear()
    assert did == ["look past lab-1-3", "rest"]
    assert not await run(World(), 1.0).clear()
    did.clear()
    others, world = True, World(lab_1_3=(7,))
    with pytest.raises(YieldedToOperation):
        await run(world, 4e9).clear()
    assert did == ["look past lab-1-3", "rest"], "what is being made meanwhile is not lost"
    assert world.did == ["scontrol update NodeName=lab-1-3 State=DRAIN Reason=headway: leaves"]
    others = False
    monkeypatch.setattr("headway.cluster.scaling.scale_in.LATE_JOB_S", 0.0)
    did.clear()
    with pytest.raises(Refused):
        await run(World(lab_1_3=(7,)), None).clear()
    assert did == ["close"]


async def test_no_machine_is_deleted_during_a_restore() -> None:
    """Nobody could say what runs there; asking the controller would fail, and the restore with it."""
    world = World(lab_1_3=(7,))
    goal = DesiredState(LAB, {}, desired_accounts(LAB), LAB.slot_names[:2])
    changes = ChangeSet("lab", (Change("machine.delete", "lab-1-3", "lab-1-3", "goes"),))
    said: list[str] = []

    async def report(step: str, text: str, **_: Any) -> None:
        said.append(f"{step}: {text}")

    context = world.leaving().context
    run = ChangeSetExecution(goal, context, report, None, {}, Observed(MACHINES), changes, rests=True)  # type: ignore[arg-type]
    assert not await run.clear()
    assert world.did == []
    (line,) = said
    assert line.startswith("lab-1-3: stays, although the file")


async def test_no_running_machine_is_deleted_while_the_head_is_down() -> None:
    world = World(lab_1_2=(7,))
    leaving = world.leaving()
    leaving.head = replace(MACHINES[LAB.head], state=MachineState.STOPPED)
    with pytest.raises(Refused, match="lab-head is down, so Headway can't check for jobs on lab-1-2"):
        await leaving.remove_machines(["lab-1-2"])
    assert world.did == []
    leaving.machines = {"lab-1-2": replace(MACHINES["lab-1-2"], state=MachineState.STOPPED)}
    await leaving.remove_machines(["lab-1-2"])  # where nothing runs nothing ends
    assert world.did == ["delete lab-1-2"]


async def test_failed_deletion_does_not_stop_the_other_deletions() -> None:
    world = World()
    world.provider.stuck = {"lab-1-2"}
    leaving = world.leaving()
    with pytest.raises(Refused, match="device busy"):
        await leaving.remove_machines(["lab-1-2", "lab-1-3"])
    assert "delete lab-1-3" in world.did
    assert world.slurm.reasons == {"lab-1-2": "headway: leaves", "lab-1-3": "headway: no machine"}
    assert leaving.gone == {"lab-1-3"}


async def test_machines_are_deleted_at_once_without_a_head() -> None:
    world = World()
    leaving = world.leaving()
    leaving.head = None
    await leaving.remove_machines(["lab-1-2"])
    assert world.did == ["delete lab-1-2"]


def test_plan_names_jobs_on_machines_to_be_deleted() -> None:
    goal = DesiredState(LAB, {}, desired_accounts(LAB), LAB.slot_names[:1])
    found = changeset(goal, Observed(MACHINES, jobs={"lab-1-3": (7, 8)}))
    idle, busy = (change for change in found.changes if change.kind == "machine.delete")
    assert (idle.where, idle.disturbs) == ("lab-1-2", Disturbs.NODE_DRAIN)
    assert (busy.where, busy.disturbs, busy.data["jobs"]) == ("lab-1-3", Disturbs.JOBS, [7, 8])
    assert "runs jobs 7, 8" in busy.why
