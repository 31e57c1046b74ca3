"""Starts, describes and stops sweeps, and runs the best trial again with other resources."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from headway.billing.money import cents, usd
from headway.domain.cluster import Cluster
from headway.errors import Conflict, NotFound, Refused
from headway.jobs.submission.prepare_job import prepare_run, run_out
from headway.jobs.sweeps.search import trial_parameters
from headway.jobs.sweeps.sweep_file import Sweep, read_sweep
from headway.jobs.sweeps.trial_decisions import best_trial
from headway.jobs.sweeps.trial_run import trial_command, trial_run
from headway.schemas.billing.cost_estimate import EstimateOut
from headway.schemas.submission.run_request import RunIn, RunOut
from headway.schemas.submission.submission_check import CheckJobIn, CheckJobOut
from headway.schemas.submission.sweeps import SweepBestIn, SweepIn, SweepOut, TrialOut, TrialsIn
from headway.services.access.audit import write_audit_line
from headway.services.access.ownership_rights import authorize_action, authorize_as_owner, cluster_to_work_on
from headway.services.access.role_rights import Principal
from headway.services.app_state import AppState
from headway.services.billing.cost_estimate import estimate_cost
from headway.services.job_secrets.requested import require_secrets
from headway.services.jobs.submission import new_folder_suffix, node_offer, submit_and_record
from headway.services.storage.declared_environments import runtime_of_command
from headway.services.sweeps.stored_sweep import StoredSweep
from headway.store import SweepRow, TrialRow
from headway.store.jobs.sweeps import TrialSummary

SHOWN_TRIALS = 20  # of a dry run


async def start_sweep(state: AppState, who: Principal, name: str, request: SweepIn) -> SweepOut:
    """Checks and stores a sweep; its rounds submit the trials. With `dry_run` nothing is stored. Raises InvalidSpec, and Refused
    with all faults of a trial's job."""
    user = who.user_to_act_as(request.user)
    cluster = await cluster_to_work_on(state, name, who)
    sweep = read_sweep(request.document)
    found = await runtime_of_command(state, cluster, sweep, user)
    sweep = sweep.model_copy(update={"environment": found.environment, "container": found.container})
    first = trial_run(sweep, 1, trial_parameters(sweep, 1), sweep_id="s-0", bundle="", git=None)
    prepared = prepare_run(first, cluster, user, "check", offer=node_offer(state, cluster))
    await require_secrets(state, cluster, prepared.request, user)
    estimate = await _estimate(state, who, cluster, first, user)
    rate = None if estimate.usd_per_hour is None else float(estimate.usd_per_hour)
    if sweep.max_cost is not None and not rate:
        raise Refused(f"max_cost: nothing on {name} that a trial would use has a price", hint="leave max_cost out")
    stored = StoredSweep(sweep, new_folder_suffix(who), request.bundle, request.git, rate, float(estimate.gpus or 0))
    if request.dry_run:
        row = SweepRow("", name, sweep.name, who.person, user, state.clock(), stored.document(), "planned", "", None)
        numbers = range(1, min(sweep.trial_count(), SHOWN_TRIALS) + 1) if sweep.method != "manual" else ()
        planned = [TrialRow("", name, number, trial_parameters(sweep, number), 0.0, state="") for number in numbers]
        return sweep_out(row, planned).model_copy(update=_limits(sweep, estimate) | {"warning": found.warning})
    row = await state.store.sweeps.save(
        name, sweep.name, person=who.person, user=user, document=stored.document(), key=who.idempotency_key
    )
    await write_audit_line(state, who, "sweep", name, sweep=row.id, user=user, trials=sweep.trial_count())
    state.sweeps_due.set()
    trials = await state.store.sweeps.trials(row.id)
    return sweep_out(row, trials).model_copy(update=_limits(sweep, estimate) | {"warning": found.warning})


async def _estimate(state: AppState, who: Principal, cluster: Cluster, run: RunIn, user: str) -> EstimateOut:
    """Returns what one trial costs at most."""
    asked = CheckJobIn(run=run.model_copy(update={"user": user}))
    return await estimate_cost(state, who, cluster, asked, CheckJobOut(), node_offer(state, cluster))


def _limits(sweep: Sweep, estimate: EstimateOut) -> dict[str, object]:
    count = sweep.trial_count()
    return {
        "most_gpu_hours": None if estimate.gpu_hours is None else round(estimate.gpu_hours * count, 4),
        "most_usd": None if estimate.usd is None else estimate.usd * count,
    }


async def list_sweeps(state: AppState, rows: Sequence[SweepRow]) -> list[SweepOut]:
    """Returns stored sweeps without their trials."""
    goals = {row.id: StoredSweep.of(row).sweep.metric.goal for row in rows}
    maximized = [sweep for sweep, goal in goals.items() if goal == "maximize"]
    minimized = [sweep for sweep, goal in goals.items() if goal != "maximize"]
    found = await state.store.sweeps.summaries(maximized, minimized)
    return [_sweep_out(row, found.get(row.id, TrialSummary()), ()) for row in rows]


async def get_sweep(state: AppState, name: str, sweep: str) -> SweepOut:
    """Returns the sweep with this id, or the latest with this name. Raises NotFound."""
    await state.clusters.row(name)
    row = await state.store.sweeps.get(name, sweep)
    return sweep_out(row, await state.store.sweeps.trials(row.id))


async def add_trials(state: AppState, who: Principal, name: str, sweep: str, request: TrialsIn) -> list[TrialOut]:
    """Adds trials with given parameters to a sweep of `method: manual`; they begin when `parallel` permits. Raises Refused for
    parameters that the file does not have, and Conflict if the sweep has ended."""
    cluster = await cluster_to_work_on(state, name, who)
    row = await state.store.sweeps.get(name, sweep)
    await authorize_as_owner(state, cluster, who, row, f"add trials to {row.name}")
    stored = StoredSweep.of(row)
    if stored.sweep.method != "manual":
        raise Refused(
            f"sweep {row.name} chooses its parameters itself", hint="method: manual takes trials from a program"
        )
    names = set(stored.sweep.parameters)
    for given in request.parameters:
        if wrong := names.symmetric_difference(given):
            raise Refused(f"parameters: {', '.join(sorted(wrong))}", hint=f"give exactly {', '.join(sorted(names))}")
    new = await state.store.sweeps.add_given_trials(row, request.parameters, stored.sweep.trial_count())
    await write_audit_line(state, who, "sweep-trials", name, sweep=row.id, trials=[trial.number for trial in new])
    state.sweeps_due.set()
    return [_trial_out(trial, stored.gpus) for trial in new]


async def stop_sweep(state: AppState, who: Principal, name: str, sweep: str) -> SweepOut:
    """Begins no further trial of a sweep; the next round cancels those that wait or run. Raises Conflict if it has ended."""
    cluster = await cluster_to_work_on(state, name, who)
    row = await state.store.sweeps.get(name, sweep)
    await authorize_action(state, cluster, who, row, f"stop sweep {row.name}")
    if not await state.store.sweeps.conclude(row.id, "stopped", f"{who.person} stopped it"):
        raise Conflict(f"sweep {row.name} has ended already: {row.state}", hint=f"headway sweep show {row.id}")
    await write_audit_line(state, who, "sweep-stop", name, sweep=row.id, of=row.user)
    state.sweeps_due.set()
    return await get_sweep(state, name, row.id)


async def run_best(state: AppState, who: Principal, name: str, sweep: str, request: SweepBestIn) -> RunOut:
    """Submits the command of the best trial, or of the one that is named, with the resources of the request, in a new folder
    with the sweep's files. The job's lineage names sweep, trial and the trial's job."""
    cluster = await cluster_to_work_on(state, name, who)
    row = await state.store.sweeps.get(name, sweep)
    await authorize_as_owner(state, cluster, who, row, f"run a trial of {row.name}")
    stored = StoredSweep.of(row)
    trials = await state.store.sweeps.trials(row.id)
    best = best_trial(stored.sweep, trials)
    if request.trial is not None:
        best = next((trial for trial in trials if trial.number == request.trial), None)
    if best is None:
        what = f"no trial {request.trial}" if request.trial else f"no trial with a value of {stored.sweep.metric.name}"
        raise NotFound(f"sweep {row.name} has {what} yet", hint=f"headway sweep show {row.id}")
    changed = request.model_dump(exclude={"trial", "dry_run"}, exclude_none=True)
    run = trial_run(
        stored.sweep, best.number, best.parameters, sweep_id=row.id, bundle=stored.bundle, git=stored.git
    ).model_copy(update={**changed, "name": f"{row.name}-best"})
    prepared = prepare_run(run, cluster, row.user, new_folder_suffix(who), offer=node_offer(state, cluster))
    if request.dry_run:
        return run_out(prepared, name, row.user)
    done = await submit_and_record(
        state, who, cluster, prepared, row.user, "run", parent=best.job_id, pipeline=row.id, step=str(best.number)
    )
    return run_out(prepared, name, row.user, done.job_id, done.message)


def sweep_out(row: SweepRow, trials: Sequence[TrialRow]) -> SweepOut:
    """Returns the answer about a sweep with all its trials."""
    summary = TrialSummary(
        ended=sum(trial.ended_at is not None for trial in trials),
        run_s=sum(trial.run_s for trial in trials),
        first=trials[0] if trials else None,
        best=best_trial(StoredSweep.of(row).sweep, trials),
    )
    return _sweep_out(row, summary, trials)


def _sweep_out(row: SweepRow, summary: TrialSummary, trials: Sequence[TrialRow]) -> SweepOut:
    stored = StoredSweep.of(row)
    sweep, rate, best, first = stored.sweep, stored.usd_per_hour, summary.best, summary.first
    hours = summary.run_s / 3600
    return SweepOut(
        id=row.id,
        cluster=row.cluster,
        name=row.name,
        person=row.person,
        user=row.user,
        created_at=row.at,
        ended_at=row.ended_at,
        state=row.state,
        why=row.why,
        method=sweep.method,
        metric=sweep.metric.name,
        goal=sweep.metric.goal,
        parameters=list(sweep.parameters),
        trial_count=sweep.trial_count(),
        parallel=sweep.parallel,
        trials=[_trial_out(trial, stored.gpus) for trial in trials],
        ended_trials=summary.ended,
        best=best.number if best else None,
        best_value=best.value if best else None,
        command=trial_command(sweep.run, first.number, first.parameters) if first else sweep.run,
        gpus=stored.gpus,
        gpu_hours=round(hours * stored.gpus, 4),
        usd=None if rate is None else usd(cents(Fraction(hours * rate))),
        max_cost=sweep.max_cost,
    )


def _trial_out(trial: TrialRow, gpus: float) -> TrialOut:
    return TrialOut(
        number=trial.number,
        parameters=dict(trial.parameters),
        state=trial.state,
        job_id=trial.job_id,
        step=trial.step if trial.step >= 0 else None,
        value=trial.value,
        rungs=dict(trial.rungs),
        why=trial.why,
        run_s=round(trial.run_s, 1),
        gpu_hours=round(trial.run_s / 3600 * gpus, 4),
    )
