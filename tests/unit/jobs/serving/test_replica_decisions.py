"""A replica is drained only when others are healthy; failures make pauses; the number follows the requests."""

from __future__ import annotations

from typing import Any

from headway.domain.slurm.nodes_and_jobs import NodeState
from headway.jobs.serving.replica_decisions import (
    must_drain,
    next_step,
    pause_after_failures,
    reason_to_leave,
    start_failed,
    with_step,
)
from headway.jobs.serving.service_file import Service, read_service
from headway.store import ReplicaRow
from tests.support.clusters import builders


def service(**change: Any) -> Service:
    return read_service({"name": "chat", "run": "serve", **change})


def replica(number: int, state: str = "serving", **fields: Any) -> ReplicaRow:
    return ReplicaRow(
        "v-1", "lab", number, **{"version": 1, "port": 17000, "at": 0.0, "since": 0.0, "state": state, **fields}
    )


def node(name: str, *states: str, reason: str = "") -> dict[str, NodeState]:
    return {name: builders.node(name, *states, reason=reason)}


def test_old_replica_stays_until_its_successor_is_healthy() -> None:
    leaving = {1: "node n1 is out of service"}
    step = next_step(1, [replica(1)], leaving, may_start=True)
    assert (step.start, step.drain, step.end) == (1, {}, {})
    for state in ("submitting", "pending", "starting"):
        step = next_step(1, [replica(1), replica(2, state)], leaving, may_start=True)
        assert (step.start, step.drain, step.end) == (0, {}, {}), state
    step = next_step(1, [replica(1), replica(2)], leaving, may_start=True)
    assert (step.start, step.drain) == (0, leaving)
    assert [one.state for one in with_step([replica(1), replica(2)], step, 5.0)] == ["draining", "serving"]


def test_replicas_move_one_by_one_as_successors_get_healthy() -> None:
    old, leaving = [replica(1), replica(2)], {1: "old", 2: "old"}
    assert next_step(2, [*old, replica(3), replica(4, "starting")], leaving, may_start=True).drain == {1: "old"}
    assert next_step(2, [*old, replica(3), replica(4)], leaving, may_start=True).drain == leaving


def test_sick_replica_leaves_first_and_is_replaced() -> None:
    sick = [replica(1), replica(2, "unhealthy")]
    step = next_step(2, sick, {2: "sick"}, may_start=True)
    assert (step.start, step.drain) == (1, {2: "sick"})
    step = next_step(1, sick, {}, may_start=True)
    assert step.drain == {2: "fewer replicas are wanted"}


def test_fewer_replicas_are_drained_the_latest_first_and_those_that_start_end() -> None:
    some = [replica(1), replica(2), replica(3, "pending")]
    step = next_step(1, some, {}, may_start=True)
    assert (list(step.drain), list(step.end)) == ([2], [3])
    assert next_step(0, [replica(1)], {}, may_start=True).drain == {1: "fewer replicas are wanted"}


def test_replica_whose_job_ends_is_drained_also_if_no_other_is_healthy() -> None:
    step = next_step(1, [replica(1)], {1: "preempted"}, may_start=True, at_once=[1])
    assert (step.start, step.drain) == (1, {1: "preempted"})
    job = builders.job(5, start_time=100, time_limit_s=900)
    assert not must_drain(service(), job, [], 969.0)
    assert must_drain(service(), job, [], 971.0)
    assert must_drain(service(drain_s=5), job, [600.0], 596.0)
    assert not must_drain(service(drain_s=5), job, [600.0], 594.0)


def test_preempted_replica_leaves_while_its_grace_time_runs() -> None:
    job = builders.job(5, more={"preempttime": 500})
    assert "preempts it" in reason_to_leave(service(), 1, replica(1), job, {}, 501.0)
    assert (
        reason_to_leave(service(), 1, replica(1), builders.job(5, "PENDING", more={"preempttime": 500}), {}, 501.0)
        == ""
    )


def test_reasons_to_leave() -> None:
    nodes = node("n1", "MIXED", "DRAIN", reason="kernel")
    assert reason_to_leave(service(), 1, replica(1, node="n1"), None, nodes, 0.0) == "node n1 is out of service: kernel"
    assert reason_to_leave(service(), 1, replica(1, node="n1"), None, node("n1", "MIXED"), 0.0) == ""
    assert reason_to_leave(service(), 2, replica(1), None, {}, 0.0) == "version 2 replaces it"
    assert reason_to_leave(service(), 1, replica(1, "unhealthy"), None, {}, 29.0) == ""
    assert "not been healthy" in reason_to_leave(service(), 1, replica(1, "unhealthy"), None, {}, 31.0)
    quick = service(start_s=60, drain_s=40)
    job = builders.job(5, start_time=100, time_limit_s=900)
    assert reason_to_leave(quick, 1, replica(1, node="n1"), job, {}, 890.0) == ""
    assert reason_to_leave(quick, 1, replica(1, node="n1"), job, {}, 901.0) == "its time limit is near"
    short = builders.job(5, start_time=900, time_limit_s=100)
    assert reason_to_leave(quick, 1, replica(1, node="n1"), short, {}, 940.0) == "", "half of its time is left to it"


def test_start_fails_after_its_time() -> None:
    assert not start_failed(service(start_s=60), replica(1, "starting"), 60.0)
    assert start_failed(service(start_s=60), replica(1, "starting"), 61.0)
    assert not start_failed(service(start_s=60), replica(1, "pending"), 1e6), "the queue may take long"


def test_pauses_grow_with_failures_in_a_row() -> None:
    def failed(number: int, at: float) -> ReplicaRow:
        return replica(number, "ended", failed=True, ended_at=at)

    assert pause_after_failures([replica(1)]) == (0, 0.0)
    assert pause_after_failures([failed(1, 10.0)]) == (1, 12.0)
    assert pause_after_failures([failed(1, 10.0), failed(2, 20.0), failed(3, 30.0)]) == (3, 38.0)
    assert pause_after_failures([failed(1, 10.0), replica(2, healthy_at=15.0)]) == (0, 0.0)
    assert pause_after_failures([failed(n, 10.0 * n) for n in range(1, 20)]) == (19, 190.0 + 300.0)
