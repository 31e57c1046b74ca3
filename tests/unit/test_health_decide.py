"""What the watch decides from machines, nodes and jobs."""

from __future__ import annotations

from dataclasses import replace

from headway.cluster.spares import wanted_reserve
from headway.domain.live import JobState, NodeState
from headway.domain.machine import Machine, MachineState
from headway.health.decide import Down, Reserve, Return, StartNow, decide
from tests.builders import cluster, job, machine, node

LAB = cluster()  # lab-1-[1-4], spare lab-2-1
SPARE = frozenset({"lab-2-1"})


def world(**changed: NodeState) -> dict[str, NodeState]:
    return {name: changed.get(name.replace("-", "_"), node(name)) for name in LAB.slot_names}


def machines(**changed: MachineState) -> dict[str, Machine]:
    return {n: machine(n, changed.get(n.replace("-", "_"), MachineState.RUNNING)) for n in (LAB.head, *LAB.slot_names)}


def actions(nodes: dict[str, NodeState], there: dict[str, Machine], jobs: tuple[JobState, ...] = ()) -> list[object]:
    return list(decide(LAB, there, nodes, jobs, SPARE))


def test_all_well_needs_nothing() -> None:
    assert actions(world(), machines()) == []


def test_a_killed_machine_goes_down_and_the_spare_leaves_the_reserve_in_the_same_look() -> None:
    found = actions(world(), machines(lab_1_3=MachineState.STOPPED))
    assert found == [Down("lab-1-3", "headway: machine is stopped"), Reserve(frozenset())]


def test_a_deleted_machine_is_told_apart_from_a_stopped_one() -> None:
    there = machines()
    del there["lab-1-3"]
    assert Down("lab-1-3", "headway: machine is gone") in actions(world(), there)


def test_a_machine_started_again_under_its_job_goes_down_so_that_the_job_is_requeued() -> None:
    there = machines()
    there["lab-1-3"] = replace(there["lab-1-3"], started_at=1000.0)
    ghost = job(7, nodes=("lab-1-2", "lab-1-3"), start_time=990)
    lost = Down("lab-1-3", "headway: machine was started again under its jobs")
    assert lost in actions(world(), there, (ghost,))
    assert lost not in actions(world(), there, (replace(ghost, start_time=1001),))
    assert lost not in actions(world(), there, (replace(ghost, nodes=("lab-1-2",)),))
    assert lost not in actions(world(), there, (replace(ghost, state="COMPLETED"),))
    assert lost not in actions(world(), machines(), (ghost,))  # a provider that can't tell
    # Down once; then it may return, although Slurm may not have taken the job off yet.
    down = world(lab_1_3=node("lab-1-3", "DOWN", reason=lost.reason))
    assert actions(down, there, (ghost,))[0] == Return("lab-1-3")


def test_a_machine_that_runs_again_returns_once_slurmd_registered() -> None:
    silent = world(lab_1_3=node("lab-1-3", "DOWN", "NOT_RESPONDING", reason="headway: machine is stopped"))
    heard = world(lab_1_3=node("lab-1-3", "DOWN", reason="headway: machine is stopped"))
    assert Return("lab-1-3") not in actions(silent, machines())
    assert Return("lab-1-3") in actions(heard, machines())


def test_a_person_s_drain_or_reason_is_left_alone() -> None:
    drained = world(lab_1_3=node("lab-1-3", "DOWN", "DRAIN", reason="headway: machine is stopped"))
    theirs = world(lab_1_3=node("lab-1-3", "DOWN", reason="replacing the NIC"))
    assert not [a for a in actions(drained, machines()) if isinstance(a, Return)]
    assert not [a for a in actions(theirs, machines()) if isinstance(a, Return)]


def test_a_requeued_job_is_started_without_waiting_out_begin_time() -> None:
    waiting = job(7, "PENDING", restarts=1, reason="BeginTime")
    chosen = job(8, "PENDING", restarts=0, reason="BeginTime")  # the user's own --begin
    assert actions(world(), machines(), (waiting, chosen)) == [StartNow(7)]


def test_the_node_that_returned_stands_by_next_and_a_busy_one_is_never_taken() -> None:
    busy = world(lab_2_1=node("lab-2-1", "ALLOCATED", cpus_used=128))
    for name in ("lab-1-1", "lab-1-2", "lab-1-4"):
        busy[name] = node(name, "ALLOCATED", cpus_used=128)
    assert wanted_reserve(LAB, busy, frozenset()) == {"lab-1-3"}
    busy["lab-1-3"] = node("lab-1-3", "MIXED", cpus_used=1)
    assert wanted_reserve(LAB, busy, frozenset()) == frozenset()


def test_a_cluster_without_spares_reserves_nothing() -> None:
    bare = cluster(spares=0)
    assert wanted_reserve(bare, {n: node(n) for n in bare.slot_names}, frozenset()) == frozenset()
