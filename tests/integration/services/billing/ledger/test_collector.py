"""The ledger catches up after a gap in its sources, and handles reports that cannot be stored."""

from __future__ import annotations

import math
from typing import Any

import pytest

from headway.cluster.monitoring.metric_queries import MetricRow
from headway.domain.billing.ledger import CheckpointStats, JobRun, NodeSpan, SpanKind
from headway.domain.cluster import Cluster
from headway.errors import Unreachable
from headway.services.billing.billing_round import run_billing_round
from headway.services.billing.ledger import collector as collecting
from headway.store import StoreUnavailable
from tests.support.billing.billing_cluster import OCTOBER, Accounting, H, accounting, at, got, run, server
from tests.support.servers.server_fakes import Server

__all__ = ["accounting", "server"]  # fixtures

JOBS = range(1, 6)


def metrics(_: Cluster, __: Any, since: float, until: float, step: int) -> tuple[MetricRow, ...]:
    moments = range(int(since), int(until) + 1, step)
    watts = tuple((float(moment), 100.0 + moment % 7) for moment in moments)
    idle = tuple((float(moment), 0.0) for moment in moments)
    of_jobs = [
        MetricRow(key, "", {"hpc_job": str(job)}, values)
        for job in JOBS
        for key, values in (("use", idle), ("power", watts))
    ]
    return (*of_jobs, MetricRow("nodes", "", {"node": "lab-1-1"}, watts))


async def figures(server: Server) -> list[tuple[int, ...]]:
    found = [one for job in JOBS for one in await server.store.usage.runs_of_job("lab", job)]
    return [(one.job, one.measured_s, one.idle_s, one.energy_j, one.cpu_measured_s) for one in found]


async def test_collector_measures_in_batches_and_resumes_after_a_failure(
    server: Server, accounting: Accounting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everybody else writes in between; nothing is counted twice or lost."""
    cluster = (await server.state.clusters.get("lab"))[1]
    accounting.runs = [run(job, 0, 0, gpus=1, cpus=8) for job in JOBS]
    server.backend.answers["query_metrics"] = metrics
    monkeypatch.setattr(collecting, "MAX_BATCH", 100)
    real, marks = server.store.runs.add_measurements, []

    async def measure(name: str, found: Any, measured_to: int, hosts: Any) -> None:
        if len(marks) == 3:
            marks.append(0)
            raise StoreUnavailable("the server's database does not answer", hint="")
        mark = await server.store.ledger_progress.get(name)
        assert all(mark.measured_to < moment <= measured_to for _, moment, *_ in found)
        await real(name, found, measured_to, hosts)
        marks.append(measured_to - OCTOBER.start)

    monkeypatch.setattr(server.store.runs, "add_measurements", measure)
    at(server, H + 20)
    await run_billing_round(server.state, cluster)
    assert marks == [540, 1080, 1620, 0], "11 values of each minute: 9 minutes at once"
    assert (await server.store.ledger_progress.get("lab")).measured_to == OCTOBER.start + 1620
    await run_billing_round(server.state, cluster)
    assert (marks[4], marks[-1]) == (2160, H)
    joules = sum(60 * (100 + moment % 7) for moment in range(OCTOBER.start + 60, OCTOBER.start + H + 1, 60))
    cpus = cluster.group_of["lab-1-1"].plan.cpus
    for _, measured_s, idle_s, energy_j, cpu_s in await figures(server):
        assert (measured_s, idle_s, cpu_s) == (H, H, 8 * H)
        assert energy_j == pytest.approx(joules + joules * 8 / cpus, abs=len(marks)), (
            "a node's share is rounded in each"
        )


async def test_hour_without_metrics_counts_as_measured(server: Server, accounting: Accounting) -> None:
    cluster = (await server.state.clusters.get("lab"))[1]
    at(server, H + 20)
    await run_billing_round(server.state, cluster)
    assert (await server.store.ledger_progress.get("lab")).measured_to == OCTOBER.start + H


@pytest.mark.parametrize(
    "bad",
    [
        CheckpointStats(10**20, 1.0, 1.0),
        CheckpointStats(3, math.nan, 1.0),
        CheckpointStats(3, 1.0, math.inf),
        CheckpointStats(-1, 1, 1),
    ],
)
async def test_unstorable_checkpoint_stats_of_one_job_are_skipped(
    server: Server, accounting: Accounting, bad: CheckpointStats
) -> None:
    cluster = (await server.state.clusters.get("lab"))[1]
    accounting.runs = [run(job, 0, 0, gpus=1, cpus=8) for job in JOBS]
    server.backend.answers |= {"checkpoint_stats": {1: bad, 2: CheckpointStats(4, 2.0, 60.0)}, "query_metrics": metrics}
    at(server, H + 20)
    await run_billing_round(server.state, cluster)
    assert await server.store.checkpoints.of_jobs("lab", [1, 2]) == {2: CheckpointStats(4, 2.0, 60.0)}
    assert (await server.store.ledger_progress.get("lab")).measured_to == OCTOBER.start + H
    assert await got(await server.client(), "usage?period=2026-10")


async def test_run_on_a_booting_node_starts_when_the_node_is_up(server: Server, accounting: Accounting) -> None:
    """Slurm has given it the node and a start already; when the node is up it moves that start, in the same record."""
    cluster = (await server.state.clusters.get("lab"))[1]
    submit = {"submit": OCTOBER.start - 90, "eligible": OCTOBER.start - 60}
    accounting.runs = [run(1, 0, 0, **submit), run(2, 0, 0, **submit)]
    server.backend.answers["query_metrics"] = metrics
    at(server, 540)
    await run_billing_round(server.state, cluster)
    before = {one.job: one for job in (1, 2) for one in await server.store.usage.runs_of_job("lab", job)}
    server.backend.answers["query_metrics"] = ()
    # The second was requeued, which makes it another record: of the one before accounting still knows.
    again = {"submit": OCTOBER.start + 560}
    accounting.runs = [run(1, 600, 0, **submit), run(2, 0, 559, state="NODE_FAIL", **submit), run(2, 600, 0, **again)]
    for moment in (660, 720):
        at(server, moment)
        await run_billing_round(server.state, cluster)
    accounting.runs = [run(1, 600, 4200, **submit), *accounting.runs[1:]]
    at(server, 5000)
    await run_billing_round(server.state, cluster)
    admin = await server.client()
    for _ in range(2):
        [one] = await server.store.usage.runs_of_job("lab", 1)
        assert (one.start - OCTOBER.start, one.end - OCTOBER.start, one.state) == (600, 4200, "COMPLETED")
        assert one.energy_j == before[1].energy_j > 0, "what its node drew meanwhile was drawn"
        assert [(one.start - OCTOBER.start, one.state) for one in await server.store.usage.runs_of_job("lab", 2)] == [
            (0, "NODE_FAIL"), (600, "RUNNING"),
        ]  # fmt: skip
        usage = await got(admin, "usage?start=2026-10")
        assert (usage["total"]["runs"], usage["total"]["gpu_hours"]) == (3, 8 * (3600 + 559 + 4400) / H)
        assert (await admin.post("/api/v1/clusters/lab/ledger/rebuild")).status_code == 200
        await run_billing_round(server.state, cluster)


async def test_run_before_a_restore_is_kept_in_addition_to_the_later_run(
    server: Server, accounting: Accounting
) -> None:
    cluster = (await server.state.clusters.get("lab"))[1]
    submit = {"submit": OCTOBER.start - 90}
    accounting.runs = [run(1, 0, 0, **submit)]
    at(server, H)
    await run_billing_round(server.state, cluster)
    accounting.runs = [run(1, 2 * H, 0, nodes=("lab-1-2",), **submit)]
    at(server, 2 * H + 60)
    await run_billing_round(server.state, cluster)
    assert [(one.start - OCTOBER.start, one.end) for one in await server.store.usage.runs_of_job("lab", 1)] == [
        (0, OCTOBER.start + H), (2 * H, 0),
    ]  # fmt: skip


async def test_each_minute_reads_few_minutes_and_each_quarter_hour_finds_late_records(
    server: Server, accounting: Accounting
) -> None:
    """So that the memory for an answer does not grow with the jobs of the last hour, here and in slurmdbd."""
    cluster = (await server.state.clusters.get("lab"))[1]
    at(server, 2 * H + 30)
    await run_billing_round(server.state, cluster)
    accounting.runs = [run(1, H + 1500, H + 1600)]  # its record came an hour late
    found = []
    for minute in range(1, 16):
        accounting.asked.clear()
        at(server, 2 * H + 30 + 60 * minute)
        await run_billing_round(server.state, cluster)
        assert max(until - since for since, until in accounting.asked) <= 900
        found.append((len(accounting.asked), len(await server.store.usage.runs_of_job("lab", 1))))
    assert found[:14] == [(1, 0)] * 14
    assert found[14] == (6, 1)


async def round_at(server: Server, moment: int) -> None:
    cluster = (await server.state.clusters.get("lab"))[1]
    at(server, moment)
    await run_billing_round(server.state, cluster)


async def runs_of(server: Server, job: int) -> list[tuple[int, int, str]]:
    """Returns (start, end, state); times in seconds of October, an end of 0 means running."""
    found = await server.store.usage.runs_of_job("lab", job)
    return [(one.start - OCTOBER.start, one.end and one.end - OCTOBER.start, one.state) for one in found]


@pytest.mark.parametrize("arrives", [0, 60, 840])  # seconds after a late reading
async def test_record_that_is_almost_an_hour_late_is_found_within_a_quarter_of_an_hour(
    server: Server, accounting: Accounting, arrives: int
) -> None:
    for minute in range(arrives // 60 + 1):
        await round_at(server, 4 * H + 30 + 60 * minute)
    came = 4 * H + 31 + arrives
    accounting.runs = [run(1, came - 3690, came - 3590)]
    for minute in range(arrives // 60 + 1, 16):
        await round_at(server, 4 * H + 30 + 60 * minute)
    assert await runs_of(server, 1) == [(came - 3690, came - 3590, "COMPLETED")]


@pytest.mark.parametrize("away_s", [2400, 3 * H, 30 * H])
async def test_slurmdbd_answers_after_an_outage_before_it_has_what_ended_meanwhile(
    server: Server, accounting: Accounting, away_s: int
) -> None:
    accounting.runs = [run(1, 0, 0)]
    await round_at(server, 2 * H + 30)
    accounting.away = True
    back = 2 * H + 30 + away_s
    with pytest.raises(Unreachable):
        await round_at(server, back - 60)
    accounting.away = False
    await round_at(server, back)
    assert await runs_of(server, 1) == [(0, 0, "RUNNING")]
    accounting.runs = [run(1, 0, 2 * H + 600), run(2, 2 * H + 700, 2 * H + 900)]  # slurmctld has sent its queue
    await round_at(server, back + 60)
    assert await runs_of(server, 1) == [(0, 2 * H + 600, "COMPLETED")]
    for minute in range(2, 16):
        await round_at(server, back + 60 * minute)
    assert await runs_of(server, 2) == [(2 * H + 700, 2 * H + 900, "COMPLETED")]
    accounting.asked.clear()
    await round_at(server, back + 960)
    assert len(accounting.asked) == 1, "the month is read once"


async def test_run_whose_node_boots_during_a_round_is_one_run(server: Server, accounting: Accounting) -> None:
    submit = {"submit": OCTOBER.start + H}
    accounting.runs = [run(1, 2 * H, 0, state="CONFIGURING", **submit)]
    await round_at(server, 2 * H + 870)
    now = 2 * H + 930

    def answer(cluster: Cluster, since: int, until: int) -> tuple[JobRun, ...]:
        if until == OCTOBER.start + now:
            accounting.runs = [run(1, now + 5, 0, **submit)]
        return accounting(cluster, since, until)

    server.backend.answers["usage_runs"] = answer
    await round_at(server, now)
    assert await runs_of(server, 1) == [(now + 5, 0, "RUNNING")]


async def test_month_is_read_again_after_the_clock_was_ahead(server: Server, accounting: Accounting) -> None:
    await round_at(server, 10 * H)
    await round_at(server, 10 * H + 700)  # ten minutes ahead
    accounting.runs = [run(1, H, H + 60)]
    await round_at(server, 10 * H + 120)
    assert await runs_of(server, 1) == [(H, H + 60, "COMPLETED")]


async def test_node_state_that_ended_while_its_events_were_not_read_gets_its_end(
    server: Server, accounting: Accounting
) -> None:
    """sacct may answer where sacctmgr does not: the runs are read further than the node states then."""
    began = OCTOBER.start + H
    events = [NodeSpan("lab-1-1", SpanKind.DOWN, began, 0, "broken")]
    server.backend.answers["node_events"] = lambda _, since: tuple(
        one for one in events if not one.ended or one.ended >= since
    )
    await round_at(server, 2 * H + 30)
    known, server.backend.answers["node_events"] = server.backend.answers["node_events"], Unreachable("sacctmgr")
    for minute in range(1, 13):
        with pytest.raises(Unreachable):
            await round_at(server, 2 * H + 30 + 60 * minute)
    events[0] = NodeSpan("lab-1-1", SpanKind.DOWN, began, OCTOBER.start + 2 * H + 60, "broken")
    server.backend.answers["node_events"] = known
    await round_at(server, 2 * H + 30 + 780)
    [span] = await server.store.node_spans.between("lab", began, OCTOBER.start + 3 * H)
    assert span.ended == OCTOBER.start + 2 * H + 60
