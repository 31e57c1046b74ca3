"""plan_actions finds dead nodes, spares to reserve and requeued jobs to start from machines, nodes and jobs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headway.domain.machines.machine import Machine, MachineState
from headway.domain.slurm.nodes_and_jobs import JobState, NodeState
from headway.health.policy.slurm_actions import DRAIN_WAITS_S, DeadNode, ReserveSpares, StartRequeuedJob, plan_actions
from tests.support.clusters.builders import cluster, job, machine, node

LAB = cluster()  # lab-1-[1-4], spare lab-2-1
SPARE = frozenset({"lab-2-1"})


def world(**changed: NodeState) -> dict[str, NodeState]:
    return {name: changed.get(name.replace("-", "_"), node(name)) for name in LAB.slot_names}


def machines(**changed: MachineState) -> dict[str, Machine]:
    return {n: machine(n, changed.get(n.replace("-", "_"), MachineState.RUNNING)) for n in (LAB.head, *LAB.slot_names)}


def actions(nodes: dict[str, NodeState], there: dict[str, Machine], jobs: tuple[JobState, ...] = ()) -> list[object]:
    return list(plan_actions(LAB, there, nodes, jobs, SPARE))


def test_healthy_cluster_needs_no_action() -> None:
    assert actions(world(), machines()) == []


def test_stopped_machine_is_dead_and_spare_is_released_at_once() -> None:
    found = actions(world(), machines(lab_1_3=MachineState.STOPPED))
    assert found == [DeadNode("lab-1-3", "its machine is stopped"), ReserveSpares(frozenset())]


def test_deleted_machine_is_reported_as_gone() -> None:
    there = machines()
    del there["lab-1-3"]
    assert DeadNode("lab-1-3", "its machine is gone") in actions(world(), there)


def test_restarted_machine_requeues_jobs_started_before() -> None:
    there = machines()
    there["lab-1-3"] = replace(there["lab-1-3"], started_at=1000.0)
    ghost = job(7, nodes=("lab-1-2", "lab-1-3"), start_time=990)
    lost = DeadNode("lab-1-3", "its machine was restarted while jobs ran", 1000.0, running=True, jobs=(7,))
    assert lost in actions(world(), there, (ghost,))
    assert lost not in actions(world(), there, (replace(ghost, start_time=1001),))
    assert lost not in actions(world(), there, (replace(ghost, nodes=("lab-1-2",)),))
    assert lost not in actions(world(), there, (replace(ghost, state="COMPLETED"),))
    assert lost not in actions(world(), machines(), (ghost,))  # a provider that can't tell


def test_stopped_leaving_node_is_dead_only_while_jobs_run() -> None:
    there = machines(lab_1_3=MachineState.STOPPED)
    leaves = node("lab-1-3", "MIXED", "DRAIN", reason="headway: leaves", cpus_used=8)
    assert dead(actions(world(lab_1_3=leaves), there)) == [DeadNode("lab-1-3", "its machine is stopped")]
    assert not dead(actions(world(lab_1_3=replace(leaves, cpus_used=0)), there))


def test_lost_node_is_handled_after_slurmd_registers() -> None:
    silent = world(lab_1_3=node("lab-1-3", "DOWN", "NOT_RESPONDING", reason="Not responding"))
    heard = world(lab_1_3=node("lab-1-3", "DOWN", reason="Not responding"))
    assert not dead(actions(silent, machines()))
    assert dead(actions(heard, machines())) == [
        DeadNode("lab-1-3", "Slurm marked it DOWN: Not responding", running=True)
    ]


@pytest.mark.parametrize("why", ["Duplicate jobid", "Kill task failed", "Prolog error"])
def test_node_drained_by_slurm_is_handled_after_its_jobs_end(why: str) -> None:
    busy = world(lab_1_3=node("lab-1-3", "MIXED", "DRAIN", reason=why, cpus_used=8))
    free = world(lab_1_3=node("lab-1-3", "IDLE", "DRAIN", reason=why))
    assert not dead(actions(busy, machines()))
    found = DeadNode("lab-1-3", f"Slurm had drained it: {why}", running=True, wait_s=DRAIN_WAITS_S)
    assert dead(actions(free, machines())) == [found]
    a_persons = world(lab_1_3=node("lab-1-3", "IDLE", "DRAIN", reason="new NIC"))
    assert not dead(actions(a_persons, machines()))


def dead(found: list[object]) -> list[object]:
    return [one for one in found if isinstance(one, DeadNode)]


def test_node_drained_by_person_is_ignored_unless_jobs_run() -> None:
    theirs = world(lab_1_3=node("lab-1-3", "IDLE", "DRAIN", reason="replacing the NIC"))
    stopped = machines(lab_1_3=MachineState.STOPPED)
    assert not dead(actions(theirs, stopped))
    theirs["lab-1-3"] = node("lab-1-3", "MIXED", "DRAIN", reason="replacing the NIC", cpus_used=8)
    assert dead(actions(theirs, stopped))
    assert not dead(actions(world(lab_1_3=node("lab-1-3", "DOWN", reason="replacing the NIC")), machines()))


def test_skips_nodes_with_incident_or_never_booted() -> None:
    ours = world(lab_1_3=node("lab-1-3", "DOWN", reason="headway: incident 3: x"))
    assert not dead(actions(ours, machines(lab_1_3=MachineState.STOPPED)))
    new = world(lab_1_3=replace(node("lab-1-3", "UNKNOWN"), boot_time=0))
    assert not dead(actions(new, machines(lab_1_3=MachineState.STOPPED)))


def test_starts_requeued_job_despite_begin_time() -> None:
    waiting = job(7, "PENDING", restarts=1, reason="BeginTime")
    chosen = job(8, "PENDING", restarts=0, reason="BeginTime")  # the user's own --begin
    assert actions(world(), machines(), (waiting, chosen)) == [StartRequeuedJob(7)]


def test_requeued_job_respects_begin_time_set_by_user() -> None:
    requeued = job(7, "PENDING", restarts=1, reason="BeginTime", submit_time=50_000, eligible_time=50_121)
    assert actions(world(), machines(), (requeued,)) == [StartRequeuedJob(7)]
    assert actions(world(), machines(), (replace(requeued, eligible_time=53_600),)) == []
