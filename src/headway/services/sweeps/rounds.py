"""The rounds of a sweep: each reads its jobs and metrics, stops trials, submits others, and stores the result.

Everything that a round needs is in the store, so a killed server loses nothing. A trial is stored before it is submitted, and
the head submits one job for a trial, however often it is asked."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import replace

import structlog

from headway.domain.cluster import Cluster
from headway.domain.slurm.job_states import ENDED, RUNNING
from headway.domain.slurm.nodes_and_jobs import JobState
from headway.errors import HeadwayError, NotFound, TooManySubmits, Unanswered, Unreachable
from headway.jobs.explain.reason_lines import job_reason
from headway.jobs.metrics.metric_files import JobMetrics
from headway.jobs.sweeps.search import trial_parameters
from headway.jobs.sweeps.trial_decisions import end_of_sweep, free_places, spent_usd, trials_to_begin, trials_to_stop
from headway.jobs.sweeps.trial_run import trial_run
from headway.services.access.role_rights import Principal
from headway.services.app_state import AppState
from headway.services.jobs.tagged_submission import absent_person, submit_tagged
from headway.services.jobs.training_metrics import collect_metrics, metric_files
from headway.services.sweeps.stored_sweep import StoredSweep
from headway.store import SweepRow, TrialRow

_ACTIVE = ("waiting", "submitting", "pending", "running")

log = structlog.get_logger("headway.services.sweeps")


async def advance_sweep(state: AppState, row: SweepRow) -> None:
    """Does one round of a sweep. Raises Unreachable while its cluster does not answer; the next round tries again."""
    _, cluster = await state.clusters.get(row.cluster)
    stored = StoredSweep.of(row)
    known = await state.store.sweeps.trials(row.id)
    trials, reached = await _observe(state, cluster, stored, known)
    if row.state == "running":
        for number, why in trials_to_stop(stored.sweep, trials, reached).items():
            trials = [replace(one, state="stopped", why=why) if one.number == number else one for one in trials]
        if end := end_of_sweep(stored.sweep, trials, spent_usd(trials, stored.usd_per_hour)):
            await state.store.sweeps.conclude(row.id, *end)
            row = replace(row, state=end[0], why=end[1])
    if row.state != "running":
        trials = [replace(one, state="cancelled") if one.state in _ACTIVE else one for one in trials]
    trials = [_settled(one, state.clock()) for one in trials]
    await state.store.sweeps.update_trials(new for old, new in zip(known, trials, strict=True) if new != old)
    await _cancel(state, cluster, row, trials)
    if row.state == "running":
        await _begin(state, cluster, row, stored, trials)
    elif all(trial.ended_at is not None for trial in trials):
        await state.store.sweeps.close(row.id)


def _settled(trial: TrialRow, now: float) -> TrialRow:
    """Returns the trial as ended if it was cancelled before it had a job."""
    if trial.state == "cancelled" and not trial.job_id and trial.ended_at is None:
        return replace(trial, ended_at=now)
    return trial


async def _observe(
    state: AppState, cluster: Cluster, stored: StoredSweep, known: Sequence[TrialRow]
) -> tuple[list[TrialRow], set[int]]:
    """Returns the trials as their jobs are now, and the numbers of those that have reached another rung."""
    snapshot = await state.readings.snapshot(cluster)
    if snapshot.stale:
        raise Unreachable(snapshot.stale)
    jobs: dict[int, JobState] = {}
    for trial in known:
        if trial.job_id and (trial.ended_at is None or trial.state == "failed"):
            job = snapshot.by_id.get(trial.job_id)
            if job is None and trial.ended_at is None:
                with contextlib.suppress(NotFound):
                    job = await state.readings.job(cluster, trial.job_id)
            if job is not None:
                jobs[trial.job_id] = job
    followed = [job for job in jobs.values() if job.start_time]
    more = await collect_metrics(state, cluster, followed) if followed else set()
    trials, reached = [], set()
    for trial in known:
        new = trial
        if job := jobs.get(trial.job_id):
            new = await asyncio.to_thread(_with_metric, state, cluster, stored, trial)
            new = _with_job(stored, new, job, state.clock(), complete=job.id not in more)
            if new.rungs.keys() != trial.rungs.keys():
                reached.add(trial.number)
        elif trial.job_id and trial.ended_at is None:
            new = replace(
                trial, state="failed", ended_at=state.clock(), why=f"Slurm does not know job {trial.job_id} any more"
            )
        trials.append(new)
    return trials, reached


def _with_metric(state: AppState, cluster: Cluster, stored: StoredSweep, trial: TrialRow) -> TrialRow:
    """Returns the trial with its newest value, and its values at rungs that it has reached. A value at a rung stays when the
    trial repeats that step after a restart."""
    files, name = metric_files(state), stored.sweep.metric.name
    known: JobMetrics = files.read(cluster.name, trial.job_id)
    metric = next((one for one in known.metrics if one.name == name), None)
    if metric is None:
        return trial
    rungs = dict(trial.rungs)
    for step in stored.sweep.early_stopping.rungs() if stored.sweep.early_stopping else ():
        if step <= metric.step and str(step) not in rungs:
            rungs[str(step)] = finite(files.value_at(cluster.name, trial.job_id, known, name, step))
    return replace(trial, step=metric.step, value=finite(metric.value), rungs=rungs)


def _with_job(stored: StoredSweep, trial: TrialRow, job: JobState, now: float, *, complete: bool) -> TrialRow:
    """Returns the trial with the state of its job. `complete`: the job's metrics were read to their end."""
    trial = _with_run_time(trial, job, now)
    decided = trial.state in ("stopped", "cancelled")
    if job.state not in ENDED:
        if decided:
            return trial
        return replace(
            trial, state="running" if job.state in RUNNING else "pending", ended_at=None, why=job_reason(job)
        )
    if not complete or trial.ended_at is not None:
        return trial
    trial = replace(trial, ended_at=now)
    if decided:
        return trial
    if job.state != "COMPLETED":
        return replace(trial, state="failed", why=job_reason(job) or job.state)
    if trial.step < 0:
        return replace(trial, state="failed", why=f"it did not report {stored.sweep.metric.name}")
    return replace(trial, state="done", why="")


def _with_run_time(trial: TrialRow, job: JobState, now: float) -> TrialRow:
    """Returns the trial with the seconds that its job has run, those before a requeue included."""
    if not job.start_time or (job.state not in RUNNING and job.state not in ENDED):
        return trial
    earlier = trial.earlier_s
    if trial.started_at and trial.started_at != job.start_time:
        earlier = trial.run_s
    end = job.end_time if job.state in ENDED and job.end_time else now
    return replace(
        trial, started_at=float(job.start_time), earlier_s=earlier, run_s=earlier + max(0.0, end - job.start_time)
    )


async def _cancel(state: AppState, cluster: Cluster, row: SweepRow, trials: Sequence[TrialRow]) -> None:
    """Cancels the jobs of trials that were stopped, again in each round until they have ended."""
    ending = [one for one in trials if one.state in ("stopped", "cancelled") and one.ended_at is None]
    for trial in ending:
        with contextlib.suppress(NotFound):
            await state.backend.jobs.cancel(cluster, str(trial.job_id), row.user, as_operator=False)
    if ending:
        state.live.request_refresh(cluster.name, tuple(one.job_id for one in ending))


async def _begin(
    state: AppState, cluster: Cluster, row: SweepRow, stored: StoredSweep, trials: Sequence[TrialRow]
) -> None:
    """Submits the trials that may begin, after those whose submission was interrupted."""
    sweep, next_number = stored.sweep, len(trials) + 1
    new = [
        TrialRow(row.id, row.cluster, number, trial_parameters(sweep, number), state.clock())
        for number in range(next_number, next_number + trials_to_begin(sweep, trials))
    ]
    # Trials of a program begin in its order. From now on the head knows them, so their time starts.
    queued = [one for one in trials if one.state == "waiting"][: free_places(sweep, trials)]
    begun = [replace(one, state="submitting", at=state.clock()) for one in queued]
    waiting = [one for one in trials if one.state == "submitting"] + begun + new
    if not waiting:
        return
    try:
        who = await absent_person(state, cluster, row.person)
    except HeadwayError as error:
        await state.store.sweeps.conclude(row.id, "stopped", error.message)
        return
    await state.store.sweeps.add_trials(new)
    await state.store.sweeps.update_trials(begun)
    for trial in waiting:
        try:
            job = await _submit(state, who, cluster, row, stored, trial)
        except (TooManySubmits, Unreachable) as error:  # tried again in the next round
            log.info("a trial waits for its submission", sweep=row.id, trial=trial.number, error=error.message)
            if not isinstance(error, Unanswered):
                return
            continue
        except HeadwayError as error:
            done = replace(trial, state="failed", ended_at=state.clock(), why=error.message)
        else:
            done = replace(trial, state="pending", job_id=job)
        await state.store.sweeps.update_trials([done])


async def _submit(
    state: AppState, who: Principal, cluster: Cluster, row: SweepRow, stored: StoredSweep, trial: TrialRow
) -> int:
    """Submits a trial and returns its job's number. Raises Unanswered if it is not known whether it was submitted."""
    run = trial_run(stored.sweep, trial.number, trial.parameters, sweep_id=row.id, bundle=stored.bundle, git=stored.git)
    links = {"pipeline": row.id, "step": str(trial.number)}
    return await submit_tagged(
        state, who, cluster, run, user=row.user, mark=stored.mark, series=row.id, number=trial.number, at=trial.at, links=links
    )  # fmt: skip


def finite(value: float) -> float | None:
    """Returns the value; None for NaN and infinite ones."""
    return value if abs(value) < float("inf") else None
