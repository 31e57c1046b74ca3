"""Each Slurm pending reason is explained together with what would let the job start."""

from __future__ import annotations

import random
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from headway.domain.cluster import Budget, Cluster, GpuHourCap, Partition, Team
from headway.domain.slurm.state import JobState, NodeState, Reservation
from headway.jobs.explain.pending import PendingReason, explain_pending
from headway.jobs.explain.phrases import format_phrase
from headway.jobs.explain.placement_search import ClusterSnapshot
from tests.support.clusters import builders

NOW = 10_000.0
NODES = tuple(f"lab-{leaf}-{place}" for leaf in (1, 2) for place in (1, 2, 3, 4))


def partition(name: str, nodes: tuple[str, ...], max_time_s: int | None, *, default: bool = False) -> Partition:
    return Partition(name, nodes, default, 1, max_time_s, 3600, (), False, 0, ())


CLUSTER = builders.cluster(
    8,
    0,
    partitions=(partition("train", NODES, None, default=True), partition("debug", NODES[:2], 3600)),
    teams=(
        Team("vision", ("alice",), 1, gpus=24, running_jobs=2, gpu_hours=GpuHourCap(Decimal(100), "week")),
        Team("speech", ("bob",), 1),
        Team("small", ("sue",), 1, budget=Budget("usd", Decimal(20000), "month")),
    ),
)


def node(name: str, used: int = 0, *states: str, **others: Any) -> NodeState:
    made = builders.node(name, *(states or ("MIXED" if used else "IDLE",)))
    return replace(made, gpus_used=used, cpus_used=16 * used, partitions=("train", "debug"), **others)


def running(number: int, nodes: tuple[str, ...], ends_in_s: int | None, **others: Any) -> JobState:
    fields: dict[str, Any] = {"account": "vision", "nodes": nodes, "node_count": len(nodes), "gpus": 8 * len(nodes)}
    fields |= {"cpus": 128 * len(nodes), "start_time": int(NOW) - 600}
    fields["time_limit_s"] = None if ends_in_s is None else 600 + ends_in_s
    return builders.job(number, **{**fields, **others})


def pending(reason: str, **others: Any) -> JobState:
    fields: dict[str, Any] = {"reason": reason, "account": "vision", "node_count": 1, "gpus": 8, "cpus": 1}
    return builders.job(900, "PENDING", **{**fields, "start_time": 0, "time_limit_s": 7200, **others})


# lab-1-4, and all of leaf 2 but lab-2-4, are in use.
BUSY = (
    *(node(name) for name in NODES[:3]),
    *(node(name, 8) for name in NODES[3:7]),
    node(NODES[7]),
)
RUNNING = (
    running(812, ("lab-1-4",), 14 * 60),
    running(813, ("lab-2-1", "lab-2-2"), 3600, user="bob", account="speech"),
    running(814, ("lab-2-3",), None, user="bob", account="speech"),
)
FULL = tuple(node(name, 8) for name in NODES)
ALL_HELD = (
    running(801, NODES[:4], 1800, gpus=32),
    running(802, NODES[4:6], 14 * 60, gpus=16),
    running(803, NODES[6:], 7000, gpus=16, user="bob", account="speech"),
)


def said(job: JobState, nodes: tuple[NodeState, ...] = BUSY, jobs: tuple[JobState, ...] = RUNNING, **more: Any) -> str:
    found = whole(job, nodes, jobs, **more)
    return format_phrase(found.needs, NOW)


def whole(
    job: JobState,
    nodes: tuple[NodeState, ...] = BUSY,
    jobs: tuple[JobState, ...] = RUNNING,
    *,
    reservations: tuple[Reservation, ...] = (),
    cluster: Cluster = CLUSTER,
) -> PendingReason:
    found = explain_pending(job, ClusterSnapshot.from_readings(cluster, nodes, (*jobs, job), reservations, NOW))
    assert found is not None
    return found


def test_resources_reason_counts_free_nodes_under_one_leaf_switch() -> None:
    got = said(pending("Resources", node_count=4, gpus=32, switches=1))
    assert got == (
        "needs 4 nodes under one leaf switch with 8 GPUs each free; 3 are free under leaf1; "
        "job 812 of alice ends in 14 min at the latest"
    )


def test_resources_reason_names_the_last_job_that_must_end() -> None:
    assert (
        said(pending("Resources", node_count=4, gpus=32))
        == "there is room: it should start in the next scheduling cycle"
    )
    got = said(pending("Resources", node_count=6, gpus=48), FULL, ALL_HELD)
    assert got == (
        "needs 6 nodes with 8 GPUs each free; none is free; 2 jobs must end, the last: "
        "job 801 of alice ends in 30 min at the latest"
    )


def test_resources_reason_names_nodes_out_of_service() -> None:
    nodes = (node("lab-1-1", 6), node("lab-1-2", 0, "IDLE", "DRAIN", reason="XID 79"))
    part = running(5, ("lab-1-1",), 40, gpus=6, cpus=96)
    got = said(pending("Resources", gpus=4), nodes, (part,))
    assert got == (
        "needs 1 node with 4 GPUs free; none is free; job 5 of alice ends in 40 s at the latest; "
        "lab-1-2 is out of service: XID 79"
    )


def test_resources_reason_says_that_no_node_has_enough_gpus() -> None:
    got = said(pending("Resources", gpus=16))
    assert got == "needs 1 node with 16 GPUs free; no node of train has that"


def test_resources_reason_respects_requested_features_and_gpu_type() -> None:
    """Half of them are of another group, and free."""
    [main] = CLUSTER.groups
    groups = (replace(main, name="gpu", slots=NODES[:4]), replace(main, name="cheap", slots=NODES[4:], spot=True))
    two, held = replace(CLUSTER, groups=groups), (running(801, NODES[:4], 1800, gpus=32),)
    kinds = {name: ("h100",) if name in NODES[:4] else ("l40s",) for name in NODES}
    nodes = tuple(node(name, 8 if name in NODES[:4] else 0, gpu_types=kinds[name]) for name in NODES)
    busy = " with 8 GPUs free; none is free; job 801 of alice ends in 30 min at the latest"
    there = "there is room: it should start in the next scheduling cycle"
    for features, expected in {
        "gpu": f"needs 1 node of gpu{busy}", "gpu&leaf1": f"needs 1 node of gpu&leaf1{busy}", "spot": there,
        "gpu|spot": there, "gpu&spot": "needs 1 node of gpu&spot with 8 GPUs free; no node of train has that",
        "[gpu|spot]": "", "spot*2&gpu": "", "": there,
    }.items():  # fmt: skip
        assert said(pending("Resources", features=features), nodes, held, cluster=two) == expected, features
    for asks, expected in {
        "gres/gpu:h100:8": f"needs 1 node of h100{busy}", "gres/gpu:H100=8": f"needs 1 node of h100{busy}",
        "cpu=2,gres/gpu:l40s:8": there, "gres:gpu:8": there, "gres/gpu": there, "gres/shard:h100:2": there,
    }.items():  # fmt: skip
        assert said(pending("Resources", more={"tres-per-node": asks}), nodes, held, cluster=two) == expected, asks
    world = ClusterSnapshot.from_readings(two, nodes, held, (), NOW)
    jobs = [pending("Resources", features=one) for one in ("gpu", "spot")]
    assert len({format_phrase(found.needs, NOW) for job in jobs if (found := explain_pending(job, world))}) == 2, (
        "one world, two answers"
    )


def test_resources_reason_counts_cpus_per_gpu() -> None:
    nodes = (replace(node("lab-1-1"), cpus_used=100, states=("MIXED",)),)
    hog = running(5, ("lab-1-1",), 60, gpus=0, cpus=100)
    got = said(pending("Resources", gpus=8, more={"cpus-per-tres": "gres/gpu:16"}), nodes, (hog,))
    assert "none is free; job 5 of alice ends in 60 s" in got


def test_resources_reason_names_spare_and_reserved_nodes() -> None:
    spare = replace(node("lab-2-1"), reservation="headway_spares")
    nodes = (node("lab-1-1"), spare)
    asks = pending("Resources", node_count=2, gpus=16)
    assert said(asks, nodes, ()) == (
        "needs 2 nodes with 8 GPUs each free; only 1 node of train has that; lab-2-1 is kept as a spare"
    )
    course = Reservation("course", ("lab-2-1",), ("bob",), (), 9000, 17_200)
    got = said(asks, (nodes[0], replace(spare, reservation="course")), (), reservations=(course,))
    assert got.endswith("only 1 node of train has that; lab-2-1 is reserved by course, which ends in 2 h")


def test_exclusive_job_needs_whole_free_nodes() -> None:
    nodes = (node("lab-1-1", 2), node("lab-1-2", 8))
    jobs = (running(5, ("lab-1-1",), 40, gpus=2, cpus=32), running(6, ("lab-1-2",), 90, gpus=8))
    mine = pending("Resources", gpus=0, more={"oversubscribe": "none"})
    got = said(mine, nodes, jobs)
    assert got == "needs 1 whole node free; none is free; job 5 of alice ends in 40 s at the latest"
    assert said(pending("Resources", gpus=0, more={"oversubscribe": "none"}), (node("lab-1-1"),), ()).startswith(
        "there is room"
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


@pytest.mark.parametrize(
    ("reason", "fields", "expected"),
    [
        (
            "QOSGrpGRES",
            {"gpus": 16},
            "team vision holds 16 of 24 GPUs; this needs 16 GPUs: job 812 of alice ends in 14 min at the latest",
        ),
        (
            "QOSGrpGRES",
            {"gpus": 32, "node_count": 4},
            "never starts as it is: it requests 32 GPUs and team vision may hold 24",
        ),
        ("QOSGrpJobsLimit", {}, "team vision runs 2 of 2 jobs; job 812 of alice ends in 14 min at the latest"),
        (
            "QOSMaxJobsPerUserLimit",
            {"user": "carol"},
            "carol runs 1 job; job 815 of carol ends in 2 h 30 min at the latest",
        ),
        (
            "QOSMaxJobsPerUserLimit",
            {"user": "sue", "account": "small"},
            "the budget of team small is spent (20,000 USD a month): it starts with the next month, "
            "or when the budget is raised",
        ),
        ("QOSMaxGRESPerUser", {"user": "carol", "account": "speech"}, "carol holds 0 GPUs"),
        (
            "AssocMaxJobsLimit",
            {"account": "speech", "user": "bob"},
            "bob runs 2 jobs; job 813 of bob ends in 60 min at the latest",
        ),
        (
            "QOSGrpGRESMinutes",
            {},
            "team vision has 100 GPU hours a week and too few of them left (it may run 2 h, 16 GPU hours). "
            "It starts with the next week; a shorter --time may fit now",
        ),
        (
            "QOSGrpGRESMinutes",
            {"gpus": 64},
            "never starts as it is: it may use 128 GPU hours and team vision has 100 a week; "
            "request a shorter --time or fewer GPUs",
        ),
        (
            "QOSGrpGRESMinutes",
            {"gpus": 512, "time_limit_s": 48 * 3600},
            "never starts as it is: it may use 24,576 GPU hours and team vision has 100 a week; "
            "request a shorter --time or fewer GPUs",
        ),
        (
            "QOSGrpGRESMinutes",
            {"time_limit_s": None},
            "never starts as it is: it has no time limit, and team vision has 100 GPU hours a week; "
            "cancel it and submit with --time",
        ),
        (
            "AssocMaxWallDurationPerJobLimit",
            {},
            "never starts as it is: cancel it and submit with a shorter --time, or have the limit changed",
        ),
        (
            "QOSMaxGRESMinutesPerJob",
            {},
            "never starts as it is: cancel it and submit with a shorter --time or fewer GPUs, or have the limit changed",
        ),
        (
            "QOSMaxCpuPerNode",
            {},
            "never starts as it is: cancel it and submit with fewer CPUs, or have the limit changed",
        ),
        ("QOSMinGRES", {}, "never starts as it is: cancel it and submit with more GPUs, or have the limit changed"),
    ],
)
def test_qos_and_association_limits_are_explained(reason: str, fields: dict[str, Any], expected: str) -> None:
    small = running(815, ("lab-1-4",), 9000, gpus=8, user="carol")
    assert said(pending(reason, **fields), jobs=(*RUNNING, small)) == expected


def test_every_limit_reason_has_a_readable_text() -> None:
    words = {reason: whole(pending(reason)).reason for reason in ("QOSGrpGRES", "QOSMaxJobsPerUserLimit", "AssocGrpCpuLimit",
             "QOSMaxWallDurationPerJobLimit", "QOSGrpGRESRunMinutes", "QOSMinCpuNotSatisfied", "MaxGRESPerAccount",
             "AssocMaxCPUMinutesPerJobLimit", "QOSMaxMemoryPerJob")}  # fmt: skip
    assert words == {
        "QOSGrpGRES": "the team holds as many GPUs as the limit allows",
        "QOSMaxJobsPerUserLimit": "its user runs as many jobs as the team allows, or the team's budget is spent",
        "AssocGrpCpuLimit": "the team, or its user in it, holds as many CPUs as the limit allows",
        "QOSMaxWallDurationPerJobLimit": "requests more time than a job may use",
        "QOSGrpGRESRunMinutes": "the team has too few GPU hours left for this job",
        "QOSMinCpuNotSatisfied": "requests fewer CPUs than the minimum for a job",
        "MaxGRESPerAccount": "the team holds as many GPUs as the limit allows",
        "AssocMaxCPUMinutesPerJobLimit": "requests more CPU hours than a job may use",
        "QOSMaxMemoryPerJob": "requests more memory than a job may use",
    }


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
