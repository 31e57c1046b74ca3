"""Reads a cluster's usage into the ledger: runs and node states from accounting, energy and idle time from Prometheus. Both
can be interrupted and repeated.

Each reading of accounting starts some minutes before the end of the last one, because records come late, four times an
hour more than an hour before it, and once a day, and a quarter of an hour after accounting was away, a month back. A
record that is read again updates the same row. Closed invoices are not changed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import structlog

from headway.billing import energy, goodput
from headway.billing.idle_gpus_of_jobs import idle_seconds
from headway.billing.run_resources import allocations_by_group
from headway.cluster.monitoring.metric_queries import MetricQuery, MetricRow
from headway.domain.billing.ledger import DAY_S, GroupAllocation, JobRun, SpanKind
from headway.domain.cluster import Cluster
from headway.services.app_state import AppState
from headway.store.billing.runs import Sample

ROUND_EVERY_S = 60
OVERLAP_S = 600  # records come minutes late
LATE_S = 3600  # or later, if accounting was down
LATE_EVERY_S = 900  # so often records are read that are so late
PIECE_S = 900  # of the last hours, the time of one query
SWEEP_S = 31 * DAY_S  # how far back the daily reading goes
FEW_RUNS = 2000  # if a query returns no more, the next one may cover a longer time
FEW_JOBS = 200  # asked for by number in one query
SAMPLE_S = 60  # period of one sample of power and utilisation
MAX_BACKLOG_S = 3600  # older measurements are skipped if Prometheus was away for longer
MAX_BATCH = 10_000  # values in one transaction, unless one minute has more

log = structlog.get_logger("headway.billing")
_QUERIES = (
    # Averaged over the minute, so that a job that ran for a part of it is measured too.
    MetricQuery("use", 'max by (hpc_job) (avg_over_time(DCGM_FI_DEV_GPU_UTIL{hpc_job!=""}[1m]))'),
    MetricQuery("power", 'sum by (hpc_job) (avg_over_time(DCGM_FI_DEV_POWER_USAGE{hpc_job!=""}[1m]))'),
    MetricQuery(
        "nodes",
        "sum by (node) (rate(node_rapl_package_joules_total[1m]) or rate(node_rapl_dram_joules_total[1m]))",
    ),
)


async def read_accounting(state: AppState, cluster: Cluster, now: int) -> None:
    """Reads runs and node states into the store. Raises the errors of accounting; what was read before is kept."""
    name, store = cluster.name, state.store
    mark = await store.ledger_progress.get(name)
    if mark.collected_to:
        last_round = min(mark.collected_to, now)
        late = last_round // LATE_EVERY_S != now // LATE_EVERY_S
        since = last_round - (LATE_S + LATE_EVERY_S + ROUND_EVERY_S if late else OVERLAP_S)
        if mark.collected_to > now or not 0 <= now - mark.swept_at < DAY_S:  # or the clock was ahead the last time
            since = min(since, now - SWEEP_S)
    else:
        row = await state.clusters.row(name)
        first = min((life.began for life in await store.machine_lifetimes.between(name, 0, now + 1)), default=now)
        since = int(min(first, row.created_at)) - DAY_S
    last = min(mark.collected_to, now) or now
    swept = mark.swept_at if since > now - SWEEP_S and mark.collected_to else now
    if now - last > LATE_EVERY_S:  # slurmdbd may answer before slurmctld has sent it what ended meanwhile
        swept = now - DAY_S + LATE_EVERY_S
        await store.ledger_progress.update(name, swept_at=swept)  # also if this reading does not get to its end
    at, step = since, DAY_S if now - since > 2 * LATE_S else PIECE_S
    while at < now:
        until = min(at + step, now)
        found = await state.backend.usage.usage_runs(cluster, at, until)
        progress = {"collected_to": max(until, mark.collected_to if mark.collected_to <= now else 0)}
        await store.runs.save(name, ledger_entries(cluster, found), **progress)
        if until == now:
            await _end_gone(state, cluster, found, last)
        if step != PIECE_S:
            step = DAY_S if len(found) > FEW_RUNS else min(2 * step, SWEEP_S)
        at = until
    # The runs may have been read some times since the node states were.
    spans = await state.backend.usage.node_events(cluster, min(since, now - LATE_S))
    known = {(span.node, span.kind, span.began) for span in spans}
    lost = [
        replace(span, ended=max(span.began, last))
        for span in await store.node_spans.running(name)
        if span.kind is not SpanKind.SPARE and (span.node, span.kind, span.began) not in known
    ]
    await store.node_spans.save(name, [*spans, *lost])
    await _losses(state, cluster)
    await _saves(state, cluster, now)
    await store.ledger_progress.update(name, swept_at=swept, error="")


async def _end_gone(state: AppState, cluster: Cluster, found: Iterable[JobRun], at: int) -> None:
    """Ends at `at` the stored runs that accounting no longer has, as after a restored backup. Those that are not in `found`,
    the latest answer, are asked for by number: their end may have been recorded late, or their start moved since."""
    name, store = cluster.name, state.store
    here = {(run.job, run.start) for run in found}
    jobs = sorted({job for job, start in await store.runs.still_running(name) if (job, start) not in here})
    for i in range(0, len(jobs), FEW_JOBS):
        told = await state.backend.usage.runs_of_jobs(cluster, jobs[i : i + FEW_JOBS])
        await store.runs.save(name, ledger_entries(cluster, told))
        here |= {(run.job, run.start) for run in told}
    if jobs:
        await store.runs.end(name, [run for run in await store.runs.still_running(name) if run not in here], at)


def ledger_entries(cluster: Cluster, runs: Iterable[JobRun]) -> list[tuple[JobRun, list[GroupAllocation], int]]:
    """Returns the runs in the form of the store: (run, its allocations, lost seconds)."""
    return [
        (run, allocations_by_group(run, cluster.group_of), goodput.lost_s(run.state, run.start, run.end, None))
        for run in runs
    ]


async def _losses(state: AppState, cluster: Cluster) -> None:
    """Stores the losses of runs according to the trainings' own reports: only the work since their last checkpoint."""
    for job, losses in (await state.backend.usage.restart_losses(cluster)).items():
        for run in await state.store.usage.runs_of_job(cluster.name, job):
            saved = [last - lost_s for last, lost_s in losses if run.end and run.start <= last <= run.end + 1]
            if saved and run.saved_at != saved[-1]:  # resumed within the run, so it is not how the run ended
                lost = goodput.lost_s(run.state, run.start, run.end, saved[-1])
                await state.store.runs.record_loss(cluster.name, job, run.start, lost, saved[-1])


async def _saves(state: AppState, cluster: Cluster, now: int) -> None:
    """Stores the checkpoint statistics that trainings reported. Invalid ones are skipped and logged."""
    stats = await state.backend.usage.checkpoint_stats(cluster)
    saves = {job: job_stats for job, job_stats in stats.items() if job_stats.fits_database}
    if left := sorted(stats.keys() - saves.keys()):
        log.info("checkpoints not kept", cluster=cluster.name, jobs=left[:10])
    if saves:
        await state.store.checkpoints.record(cluster.name, saves, now)


async def read_measurements(state: AppState, cluster: Cluster, now: int) -> None:
    """Reads energy and idle time from Prometheus into the store, up to the last full minute. Raises its errors; what was
    read before is kept."""
    name = cluster.name
    mark = await state.store.ledger_progress.get(name)
    until = (now - 2 * 10) // SAMPLE_S * SAMPLE_S  # the latest scrapes are stored by then
    if mark.measured_to > now + MAX_BACKLOG_S:  # the clock was ahead: continue from here, and measure nothing twice
        await state.store.ledger_progress.update(name, measured_to=until)
        return
    since = max(mark.measured_to, until - MAX_BACKLOG_S)
    if until <= since:
        return
    rows = await state.backend.monitoring.query_metrics(cluster, _QUERIES, since + SAMPLE_S, until, SAMPLE_S)
    for measured_to, some in _pieces(rows, until):  # each with its mark, so an interrupted reading continues there
        await state.store.runs.add_measurements(
            name, job_samples(some), measured_to, await _hosts(state, cluster, some)
        )


def _pieces(rows: Iterable[MetricRow], until: int) -> Iterator[tuple[int, list[MetricRow]]]:
    """Yields batches of (measured until, rows), a few minutes each, because no other writer can work while one is
    stored."""
    minutes: dict[int, list[tuple[MetricRow, tuple[float, float]]]] = {}
    for row in rows:
        for value in row.values:
            minutes.setdefault(int(value[0]), []).append((row, value))
    piece: list[tuple[MetricRow, tuple[float, float]]] = []
    last = 0
    for moment in sorted(minutes):
        if piece and len(piece) + len(minutes[moment]) > MAX_BATCH:
            yield last, _by_row(piece)
            piece = []
        piece += minutes[moment]
        last = moment
    yield until, _by_row(piece)


def _by_row(values: Iterable[tuple[MetricRow, tuple[float, float]]]) -> list[MetricRow]:
    found: dict[int, tuple[MetricRow, list[tuple[float, float]]]] = {}
    for row, value in values:
        found.setdefault(id(row), (row, []))[1].append(value)
    return [replace(row, values=tuple(some)) for row, some in found.values()]


async def _hosts(state: AppState, cluster: Cluster, rows: Sequence[MetricRow]) -> dict[energy.Part, tuple[int, int]]:
    """Returns (joules, CPU-seconds) by part of a run, from the energy counters of the nodes it ran on."""
    drawn = [
        (row.labels.get("node", ""), int(at), watts) for row in rows if row.key == "nodes" for at, watts in row.values
    ]
    if not drawn:
        return {}
    moments = [at for _, at, _ in drawn]
    holds = await state.store.runs.allocations(cluster.name, min(moments) - SAMPLE_S, max(moments))
    cpus = {name: group.plan.cpus for name, group in cluster.group_of.items()}
    cpus |= {node.name: node.cpus for node in state.live.snapshot(cluster.name).nodes if node.cpus}
    return await asyncio.to_thread(energy.shared, drawn, SAMPLE_S, holds, cpus)


def job_samples(rows: Iterable[MetricRow]) -> list[Sample]:
    """Returns samples of every job and minute, from Prometheus rows."""
    found: dict[tuple[int, int], dict[str, float]] = {}
    for row in rows:
        job = row.labels.get("hpc_job", "")
        if job.isdigit():
            for at, value in row.values:
                found.setdefault((int(job), int(at)), {})[row.key] = value
    return [
        (
            job,
            at,
            SAMPLE_S,
            idle_seconds(values.get("use"), SAMPLE_S),
            round(values["power"] * SAMPLE_S) if "power" in values else None,
        )
        for (job, at), values in sorted(found.items())
    ]
