"""Stalled jobs are checked on the head and acted on once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from headway.cluster.context import ClusterContext
from headway.cluster.monitoring.metric_queries import MetricQuery, MetricRow
from headway.domain.cluster import StallRule
from headway.domain.incident import FaultAction, IncidentState
from headway.domain.machines.machine import Machine
from headway.domain.slurm.nodes_and_jobs import JobState
from headway.errors import CommandFailed, Unreachable
from headway.health.jobs import job_activity, stall_watchdog
from headway.health.jobs.rank_stacks import JobStacks
from headway.health.jobs.stall_stragglers import RankStack
from headway.health.jobs.stall_watchdog import StallWatchdog
from headway.health.policy.flaky_score import node_score
from headway.store.store import Store
from headway.transport.process import CommandResult
from tests.support.clusters import builders
from tests.support.clusters.builders import Clock, cluster, job, machine
from tests.support.clusters.builders import store as open_test_store
from tests.unit.health.jobs.test_nccl_reports import BEHIND

HEAD = machine("lab-head")
NOW = 100_000.0


class Head:
    """What the head's programs answer. A command that nobody expects fails the test."""

    def __init__(self) -> None:
        self.use = {"most": "0", "least": "0", "traffic": "0"}
        self.samples = dict.fromkeys(range(running().gpus), 10000)  # that Prometheus has
        self.words: dict[str, int] = {}
        self.done: list[list[str]] = []
        self.prometheus = True
        self.refuses = False

    async def query_instant(self, _: Any, at: Machine, queries: Sequence[MetricQuery]) -> tuple[MetricRow, ...]:
        if not self.prometheus:
            raise Unreachable(f"Prometheus on {at.name} does not answer")
        found = dict(self.use)
        for query in queries:
            if query.key == "observed_gpus":
                least = int(query.text.rpartition(">= ")[2].rstrip(")"))
                if seen := sum(count >= least for count in self.samples.values()):
                    found["observed_gpus"] = str(seen)
        values = [(query.key, found[query.key]) for query in queries if query.key in found]
        return tuple(MetricRow(key, "", {"hpc_job": "7"}, ((NOW, float(value)),)) for key, value in values)

    async def remote(
        self,
        _: Any,
        argv: Sequence[str],
        *,
        check: bool = True,
        input: bytes = b"",  # noqa: A002
        **__: Any,
    ) -> CommandResult:
        argv = list(argv)
        if argv[:3] == ["xargs", "-0", "stat"]:
            paths = input.decode().split("\0")
            said = [f"{self.words[path]} {path}" for path in paths if path in self.words]
            return CommandResult(tuple(argv), 123, "\n".join(said), "", 0.0)
        if argv[0] == "squeue":
            return CommandResult(tuple(argv), 0, "7 7\n", "", 0.0)
        assert argv[0] in ("scontrol", "scancel"), argv
        self.done.append(argv)
        if self.refuses and argv[1] == "requeue":
            raise CommandFailed(argv, 1, "Requested operation is presently disabled")
        return CommandResult(tuple(argv), 0, "", "", 0.0)


def running(**changes: Any) -> JobState:
    return job(7, **{"start_time": int(NOW) - 4000, "stdout": "/scratch/alice/7.out", **changes})


HALF_AN_HOUR, NEVER = StallRule(1800), StallRule(0)


STACKS: list[RankStack] = []  # that the nodes of a stalled job report
NCCL: dict[str, str] = {}  # what NCCL says on them


@pytest.fixture(autouse=True)
def _nodes_and_prometheus_are_fakes(monkeypatch: pytest.MonkeyPatch) -> None:
    async def machines(_: Any, cluster: str) -> dict[str, Machine]:
        return {"lab-1-2": replace(machine("lab-1-2"), address="10.0.0.12")}

    async def stacks(*_: Any) -> JobStacks:
        return JobStacks(tuple(STACKS), NCCL, {})

    STACKS.clear()
    NCCL.clear()
    monkeypatch.setattr(job_activity, "query_instant", lambda head, *asked: head.query_instant(head, *asked))
    monkeypatch.setattr(stall_watchdog, "collect_stacks", stacks)
    monkeypatch.setattr(ClusterContext, "machines", machines)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    made = await open_test_store(tmp_path, Clock())
    yield made
    await made.close()


def tender(
    head: Head, stall: StallRule = HALF_AN_HOUR, idle: StallRule = NEVER, store: Store | None = None
) -> StallWatchdog:
    context = ClusterContext(cast(Any, None), cast(Any, store), cast(Any, head), Path("/nowhere"))
    return StallWatchdog(cluster(health=builders.health(stall=stall, idle=idle)), context, clock=lambda: NOW)


async def look(of: StallWatchdog, *jobs: JobState) -> list[tuple[str, str]]:
    of.checked_at = 0.0
    return await of.check_jobs(HEAD, jobs)


async def test_notifies_owner_once_per_run_of_stalled_job() -> None:
    head = Head()
    asked = tender(head)
    told = "no report and no output for 30 min, and its GPUs did nothing; its owner is notified"
    assert await look(asked, running()) == [("job 7", told)]
    assert await look(asked, running()) == []
    assert len(await look(asked, running(restarts=1))) == 1
    assert [argv[:3] for argv in head.done] == [["scontrol", "notify", "7"]] * 2


def stack(rank: int, slow: Sequence[int], node: str = "") -> RankStack:
    """Returns where a rank is: in a data loader, or in the collective operation that waits for it."""
    place = "load (t.py:3)" if rank in slow else "all_reduce (d.py:9)"
    return RankStack(rank, node or f"lab-1-{rank // 4 + 1}", (place,))


async def test_message_and_incident_name_the_rank_for_which_the_others_wait(store: Store) -> None:
    STACKS.extend(stack(rank, [2]) for rank in range(8))
    ((_, text),) = await look(tender(Head(), store=store), running())
    where = "rank 2 is in load (t.py:3) on lab-1-1, and 7 ranks wait in all_reduce (d.py:9)"
    assert f"; {where}; incident 1 has the evidence; its owner" in text
    (found,) = await store.incidents.search("lab")
    incident = await store.incidents.get(found.number)
    assert (incident.node, incident.what, incident.state) == (
        "lab-1-1",
        "job 7 waits for rank 2",
        IncidentState.RETURNED,
    )
    assert incident.steps[-1].text == f"job 7 stalls: {where}; the node stays in service, and this counts 1 against it"
    ranks = incident.steps[0].evidence["ranks"]
    assert isinstance(ranks, list)
    assert ranks[2:4] == ["rank 2 on lab-1-1: load (t.py:3)", "rank 3 on lab-1-1: all_reduce (d.py:9)"]
    assert node_score([incident], builders.health(), incident.opened_at) == 1


async def test_stragglers_on_several_nodes_are_named_and_no_node_is_blamed(store: Store) -> None:
    STACKS.extend(stack(rank, [2, 6]) for rank in range(8))
    ((_, text),) = await look(tender(Head(), store=store), running())
    assert "ranks 2,6 are in load" in text
    (incident,) = await store.incidents.search("lab")
    assert (incident.what, incident.score) == ("job 7 stalls", 0)


async def test_stall_of_all_ranks_in_one_collective_leaves_its_stacks_and_nccls_report(store: Store) -> None:
    STACKS.extend(stack(rank, []) for rank in range(8))
    NCCL["lab-1-1"] = "NCCL version 2.28.9\nno communicator data collected!\n"
    ((_, text),) = await look(tender(Head(), store=store), running())
    assert "; all of its 8 ranks are in all_reduce (d.py); incident 1 has the evidence; its owner" in text
    incident = await store.incidents.get(1)
    assert (incident.node, incident.what, incident.score) == ("lab-1-1", "job 7 stalls", 0)
    assert incident.steps[-1].text.endswith("the node stays in service, and this does not count against it")
    evidence = incident.steps[0].evidence
    assert evidence["nccl"] == NCCL
    assert len(cast(list[str], evidence["ranks"])) == 8


async def test_rank_that_nccl_names_is_named_although_all_stacks_are_alike(store: Store) -> None:
    STACKS.extend(replace(stack(rank, []), pid=100 + rank) for rank in range(8))
    NCCL["lab-1-1"] = BEHIND
    ((_, text),) = await look(tender(Head(), store=store), running())
    said = "by NCCL rank 5 on lab-1-2 has started 41 AllReduce operations, and others 42"
    assert f"; all of its 8 ranks are in all_reduce (d.py); {said}; incident 1" in text
    incident = await store.incidents.get(1)
    assert (incident.node, incident.what, incident.score) == ("lab-1-2", "job 7 waits for rank 5", 1)


async def test_stall_without_ranks_and_nccl_leaves_no_incident(store: Store) -> None:
    ((_, text),) = await look(tender(Head(), store=store), running())
    assert text.endswith("its GPUs did nothing; its owner is notified")
    assert await store.incidents.search("lab") == ()


async def test_open_incident_of_the_node_gets_the_evidence(store: Store) -> None:
    opened = await store.incidents.open("lab", "lab-1-1", "XID 79", FaultAction.REBOOT, NOW, {})
    STACKS.extend(stack(rank, [2]) for rank in range(8))
    await look(tender(Head(), store=store), running())
    (found,) = await store.incidents.search("lab")
    assert (found.number, found.state, found.score) == (opened.number, IncidentState.SEEN, 0)
    assert (await store.incidents.get(found.number)).steps[-1].text.startswith("job 7 stalls: rank 2 is in load")


@pytest.mark.parametrize("path", ["/scratch/alice/7.out", "/var/lib/headway/reports/7.jsonl"])
async def test_job_with_recent_output_or_report_is_not_stalled(path: str) -> None:
    head = Head()
    head.words = {path: int(NOW) - 60}
    assert await look(tender(head), running()) == []


async def test_does_not_act_when_prometheus_is_down() -> None:
    head = Head()
    head.prometheus = False
    assert await look(tender(head), running()) == []
    assert head.done == []


@pytest.mark.parametrize(
    ("counts", "said"),
    [
        ([360] * 8, True),  # of 10 s each
        ([350] * 8, True),  # some were missed
        ([300] * 8, False),  # Prometheus was away for ten minutes
        ([360] * 7 + [30], False),  # the agent of one of its nodes was
        ([360] * 7, False),  # and had not come back
    ],
)
async def test_does_not_act_on_incomplete_gpu_samples(counts: list[int], said: bool) -> None:
    head = Head()
    head.samples = dict(enumerate(counts))
    only_idle = tender(head, stall=StallRule(0), idle=StallRule(3600, acts=True))
    assert bool(await look(only_idle, running(gpus=8))) is said


async def test_acting_rules_requeue_stalled_jobs_and_cancel_idle_jobs() -> None:
    head = Head()
    assert (await look(tender(head, stall=StallRule(1800, acts=True)), running()))[0][1].endswith("; requeued")
    assert head.done[-1] == ["scontrol", "requeue", "7"]
    only_idle = tender(head, stall=StallRule(0), idle=StallRule(3600, acts=True))
    assert (await look(only_idle, running()))[0][1] == "its GPUs did nothing for 1 h; cancelled"
    assert head.done[-1] == ["scancel", "7"]


async def test_stalled_job_is_requeued_at_most_three_times() -> None:
    head = Head()
    asked = tender(head, stall=StallRule(1800, acts=True))
    words = [(await look(asked, running(restarts=turn)))[0][1] for turn in range(4)]
    assert [text.endswith("; requeued") for text in words] == [True, True, True, False]
    assert "is not requeued again" in words[-1]
    assert head.done.count(["scontrol", "requeue", "7"]) == 3


async def test_reports_stalled_job_that_cannot_be_requeued() -> None:
    head = Head()
    head.refuses = True
    ((_, words),) = await look(tender(head, stall=StallRule(1800, acts=True)), running())
    assert "not requeued" in words


async def test_stall_time_restarts_when_suspended_job_resumes() -> None:
    head, resumed = Head(), running(start_time=int(NOW) - 9000, suspend_time=int(NOW) - 20)
    of = tender(head, StallRule(1800, acts=True), StallRule(3600, acts=True))
    assert await look(of, resumed) == []
    assert await look(of, replace(resumed, state="SUSPENDED")) == []
    assert head.done == []
    [(_, said)] = await look(of, replace(resumed, suspend_time=int(NOW) - 1900))
    assert said.endswith("requeued")


async def test_skips_jobs_without_gpus_young_or_pending_jobs() -> None:
    head = Head()

    async def never(*_: Any, **__: Any) -> CommandResult:
        raise AssertionError("asked")

    head.remote = never  # type: ignore[method-assign]
    asked = tender(head)
    assert await look(asked, running(gpus=0), running(start_time=int(NOW) - 60), running(state="PENDING")) == []


async def test_job_comment_overrides_stall_time() -> None:
    head = Head()
    assert await look(tender(head), running(comment="stall=7200")) == []
    assert await look(tender(head, stall=StallRule(0)), running(comment="stall=600")) != []
