"""Each Slurm pending reason is explained together with what would let the job start."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from headway.domain.slurm.nodes_and_jobs import JobState, Reservation
from headway.jobs.explain.pending_explanation import explain_pending
from headway.jobs.explain.placement_search import ClusterSnapshot
from tests.support.clusters import builders
from tests.support.clusters.explained_jobs import (
    ALL_HELD,
    BUSY,
    CLUSTER,
    FULL,
    NODES,
    NOW,
    RUNNING,
    node,
    pending,
    running,
    said,
    whole,
)


def test_priority_reason_counts_jobs_ahead() -> None:
    first = builders.job(880, "PENDING", reason="Resources", user="bob", priority=9, gpus=16, node_count=2)
    others = (first, *(builders.job(890 + i, "PENDING", reason="Priority", priority=5) for i in range(2)))
    held = builders.job(899, "PENDING", reason="JobHeldUser", priority=50)
    got = said(pending("Priority", priority=3, gpus=8), BUSY, (*RUNNING, *others, held))
    assert got == "3 jobs go before it, first job 880 of bob for 16 GPUs"


def test_jobs_ahead_in_several_partitions_count_once() -> None:
    others = (
        builders.job(880, "PENDING", reason="Priority", user="bob", priority=9, partition="debug,train"),
        builders.job(881, "PENDING", reason="Priority", priority=8, partition="debug"),
        builders.job(882, "PENDING", reason="Priority", priority=7, partition="train"),
        builders.job(883, "PENDING", reason="Priority", priority=1, partition="train"),
        builders.job(884, "PENDING", reason="Priority", priority=9, partition="other"),
    )
    mine = pending("Priority", priority=3, gpus=8, partition="train,debug")
    assert said(mine, BUSY, (*RUNNING, *others)).startswith("3 jobs go before it, first job 880 of bob")
    one = pending("Priority", priority=3, gpus=8, partition="debug")
    assert said(one, BUSY, (*RUNNING, *others)).startswith("2 jobs go before it, first job 880 of bob")


@pytest.mark.parametrize(
    ("dependency", "expected"),
    [
        ("afterok:812(unfulfilled)", "needs job 812 to succeed, which runs and ends in 14 min at the latest"),
        ("afterany:814(unfulfilled)", "needs job 814 to end, which runs without a time limit"),
        ("afternotok:700(unfulfilled)", "needs job 700 to fail, which is pending (Priority)"),
        ("singleton(unfulfilled)", "needs the other jobs named train of alice to end"),
        ("afterok:1(fulfilled),after:812+30(unfulfilled)", "may start 30 min after job 812 starts, in 20 min"),
        ("after:700+30(unfulfilled)", "may start 30 min after job 700 starts, which is pending (Priority)"),
        ("after:812(unfulfilled)", "needs job 812 to start, which has started"),
        ("after:700(unfulfilled)", "needs job 700 to start, which is pending (Priority)"),
        ("afterok:5(unfulfilled)?afterok:6_*(unfulfilled)", "needs job 5 to succeed or needs job 6_* to succeed"),
    ],
)  # fmt: skip
def test_dependency_reason_describes_the_jobs_it_waits_for(dependency: str, expected: str) -> None:
    before = builders.job(700, "PENDING", reason="Priority")
    assert said(pending("Dependency", dependency=dependency), jobs=(*RUNNING, before)) == expected


def test_dependency_on_array_task_reports_the_state_of_that_task() -> None:
    tasks = (
        running(12, ("lab-1-4",), 7200, array_job_id=12, array_task="1"),
        running(13, ("lab-1-3",), 600, array_job_id=12, array_task="2"),
        builders.job(14, "PENDING", reason="Resources", array_job_id=12, array_task="3-9%2"),
    )
    standing = {
        "12_1": ", which runs and ends in 2 h at the latest",
        "12_2": ", which runs and ends in 10 min at the latest",
        "12_3": ", which is pending (Resources)",
        "12": ", with tasks that still wait",
        "12_*": ", with tasks that still wait",
    }
    for name, stands in standing.items():
        got = said(pending("Dependency", dependency=f"afterok:{name}(unfulfilled)"), jobs=tasks)
        assert got == f"needs job {name} to succeed{stands}"


@pytest.mark.parametrize(
    ("reason", "fields", "expected"),
    [
        ("DependencyNeverSatisfied", {}, "never starts: cancel it"),
        ("BeginTime", {"eligible_time": 10_360}, "may start in 6 min"),
        ("BeginTime", {"eligible_time": 9_000}, "starts in the next scheduling cycle"),
        ("JobHeldUser", {}, "needs a release: on its page, or scontrol release 900"),
        ("JobHeldAdmin", {}, "needs a release by an operator: on its page, or scontrol release 900"),
        ("launch failed requeued held", {}, "needs a release: on its page, or scontrol release 900"),
        (
            "PartitionTimeLimit",
            {"partition": "debug"},
            "never starts as it is: it requests 2 h, debug allows 60 min; request less or use train",
        ),
        (
            "PartitionNodeLimit",
            {"partition": "debug", "node_count": 3},
            "never starts as it is: it requests 3 nodes, debug has 2 nodes",
        ),
        ("PartitionDown", {}, "needs an operator to set partition train to UP"),
        ("Licenses", {"licenses": "matlab:2"}, "needs licences that other jobs hold: matlab:2"),
        (
            "BadConstraints",
            {"features": "a100"},
            "no node fits its request (--constraint=a100): cancel it and submit it with another request",
        ),
        ("InvalidAccount", {}, "never starts: cancel it"),
        ("SomethingNew", {}, ""),
    ],
)
def test_other_pending_reasons_are_explained(reason: str, fields: dict[str, Any], expected: str) -> None:
    assert said(pending(reason, **fields)) == expected


def test_required_nodes_down_or_reserved_are_explained() -> None:
    down = node("lab-1-3", 0, "DOWN", "NOT_RESPONDING", reason="XID 79")
    nodes = (*BUSY[:2], down, *BUSY[3:])
    text = "ReqNodeNotAvail, UnavailableNodes:lab-1-3"
    assert said(pending(text), nodes) == "needs lab-1-3 (down+not_responding: XID 79) back in service"
    kept = replace(node("lab-1-1"), reservation="maint")
    window = Reservation("maint", ("lab-1-1",), ("root",), ("MAINT",), 9000, 17_200)
    got = said(pending("ReqNodeNotAvail", required_nodes=("lab-1-1",)), (kept, *BUSY[1:]), reservations=(window,))
    assert got == "lab-1-1 is reserved by maint, which ends in 2 h"
    later = replace(window, start_time=11_800, flags=("MAINT", "SPEC_NODES"))
    got = said(pending("ReqNodeNotAvail, Reserved for maintenance"), reservations=(later,))
    assert got == "would overlap reservation maint, which begins in 30 min: a shorter --time may start it before"


def test_reservation_reason_is_explained() -> None:
    mine = pending("Reservation", reservation="course")
    assert said(mine) == "reservation course does not exist: cancel the job and submit it without --reservation"
    course = Reservation("course", ("lab-1-1",), ("alice",), (), 10_600, 20_000)
    assert said(mine, reservations=(course,)) == "reservation course begins in 10 min"
    held = (replace(node("lab-1-1", 8), reservation="course"), *BUSY[1:])
    user = running(70, ("lab-1-1",), 120, reservation="course")
    got = said(mine, held, (user,), reservations=(replace(course, start_time=1),))
    assert got == "needs 1 node with 8 GPUs free; none is free; job 70 of alice ends in 2 min at the latest"


def test_array_task_limit_is_explained() -> None:
    tasks = tuple(running(870 + i, ("lab-1-4",), 60 * i, array_job_id=870, array_task=str(i), gpus=1) for i in (1, 2))
    mine = pending("JobArrayTaskLimit", array_job_id=870, array_task="3-99", array_limit=2)
    assert said(mine, jobs=tasks) == (
        "its array runs 2 of at most 2 tasks at once; job 870_1 of alice ends in 60 s at the latest"
    )


def test_explanation_includes_expected_start_time_and_nodes() -> None:
    got = whole(
        pending("Resources", node_count=8, gpus=64, start_time=int(NOW) + 840, scheduled_nodes=NODES), FULL, ALL_HELD
    )
    assert (got.reason, got.starts_at, got.nodes) == ("waits until enough nodes or GPUs are free", 10_840, NODES)
    assert whole(pending("Priority", start_time=5)).starts_at == 0
    assert whole(pending("QOSGrpGRESMinutes", start_time=int(NOW) + 840)).starts_at == 0, "Slurm names one all the same"
    assert explain_pending(running(1, ("lab-1-1",), 5), ClusterSnapshot.from_readings(CLUSTER, BUSY, RUNNING)) is None


def test_incremental_snapshot_update_equals_a_full_rebuild() -> None:
    """As if it were looked through current."""
    rng = random.Random(3)

    def some(number: int) -> JobState:
        state = rng.choice(("RUNNING", "PENDING", "PENDING", "COMPLETED"))
        partition = rng.choice(("train", "debug", "train,debug"))
        reason = rng.choice(("Priority", "Resources", "Dependency"))
        nodes = ("lab-1-1",) if state == "RUNNING" else ()
        limit = rng.choice((None, 60, 90))
        return builders.job(
            number,
            state,
            partition=partition,
            reason=reason,
            nodes=nodes,
            priority=rng.randrange(9),
            time_limit_s=limit,
        )

    jobs = {number: some(number) for number in range(40)}
    world = ClusterSnapshot.from_readings(CLUSTER, BUSY, jobs.values(), (), NOW)
    for reading in range(30):
        after = {number: job for number, job in jobs.items() if rng.random() > 0.1}
        after |= {number: some(number) for number in (*rng.sample(sorted(after), 5), 100 + reading)}
        gone = [job for number, job in jobs.items() if after.get(number) is not job]
        come = [job for number, job in after.items() if jobs.get(number) is not job]
        world = world.update(NOW + reading, tuple(after.values()), after, gone, come)
        current = ClusterSnapshot.from_readings(CLUSTER, BUSY, after.values(), (), NOW + reading)
        assert {name: turns for name, turns in world.queue_keys.items() if turns} == current.queue_keys
        assert world.running == current.running
        for job in after.values():
            assert world.jobs_ahead(job) == current.jobs_ahead(job)
        jobs = after
