"""Goodput: the productive share of the GPU time that was allocated to jobs, and how the rest was lost."""

from __future__ import annotations

import asyncio
from dataclasses import fields
from fractions import Fraction

from headway.billing import goodput as good
from headway.billing.goodput import Cause, Parts
from headway.billing.money import cents, usd
from headway.errors import NotFound
from headway.schemas.billing.goodput import CauseOut, GoodputOut, JobGoodputOut, PartsOut
from headway.services.access.role_rights import Principal
from headway.services.app_state import AppState
from headway.services.billing import monthly_bill
from headway.services.billing.priced_usage import SegmentTotals, priced_segments, unpriced_segments
from headway.services.billing.reports.checkpoint_advice import CheckpointCosts, failure_hours, load_checkpoint_stalls
from headway.services.billing.reports.loss_attribution import QUEUE, attribute_losses, data_began_at
from headway.services.billing.reports.report_scope import BilledCluster, ReportScope, to_hours, visible_teams
from headway.services.billing.reports.runs import load_runs_of_job
from headway.store.billing.run_sums import Only
from headway.store.billing.usage import RunRow, Times


async def load_goodput(state: AppState, scope: ReportScope) -> GoodputOut:
    """Returns the month's goodput by team, the causes of loss (the most expensive first) and advice on checkpoints."""
    billed, month = scope.billed, scope.month
    sums = SegmentTotals(state, billed, Only(scope.visible_teams), timed=True)
    segments = await priced_segments(state, billed, month)
    every = [*segments, *await unpriced_segments(state, billed, month)]

    async def all_runs() -> tuple[dict[str, Times], CheckpointCosts]:
        return await sums.times_by_team(every), await load_checkpoint_stalls(state, scope)

    (times, stalled), lost = await asyncio.gather(
        all_runs(), attribute_losses(state, scope, segments)
    )  # two long queries at a time
    by_use = sorted(times.items(), key=lambda item: (-item[1].gpu_s, item[0]))
    parts = {team: _parts(team_times) for team, team_times in by_use if team_times.gpu_s or team_times.waited_gpu_s}
    whole = Parts(
        *(sum(getattr(part, field) for part in parts.values()) for field in ("productive", "lost", "idle", "waiting"))
    )
    causes = [
        *lost.causes(whole, await sums.idle_cost_usd(segments)),
        *await _queue(state, scope, sums, whole),
        *stalled.causes,
    ]
    return GoodputOut(
        cluster=billed.name,
        period=month.name,
        start=month.start,
        end=month.end,
        as_of=billed.now,
        simulated=billed.simulated,
        total=_parts_out("", whole),
        teams=[_parts_out(team, team_parts) for team, team_parts in parts.items()],
        causes=[
            CauseOut(
                kind=cause.kind,
                what=cause.what,
                gpu_hours=to_hours(cause.gpu_s),
                usd=usd(cents(cause.usd)),
                jobs=list(cause.jobs),
            )
            for cause in good.ranked(causes)
        ],
        failure_hours=await failure_hours(state, billed, month),
        failures=await state.store.incidents.count_failures(
            billed.name, max(month.start, await data_began_at(state, billed.name)), month.end
        ),
        checkpoints=[stall.out() for stall in stalled.dearest],
    )


async def load_job_goodput(state: AppState, billed: BilledCluster, job: int, who: Principal) -> JobGoodputOut:
    """Returns one job's goodput over all its runs. Raises NotFound if the ledger has no run of it that the person may
    see."""
    runs = await load_runs_of_job(state, billed.name, job, visible_teams(billed, who))
    if not runs:
        raise NotFound(
            f"the ledger of {billed.name} has no run of job {job}", hint=f"headway usage {billed.name} --runs"
        )
    parts = [_parts_of(run, billed.now) for run in runs]
    total = Parts(*(sum(getattr(part, field.name) for part in parts) for field in fields(Parts)))
    return JobGoodputOut(
        cluster=billed.name,
        job=job,
        user=runs[-1].user,
        runs=len({run.start for run in runs}),
        as_of=billed.now,
        simulated=billed.simulated,
        total=_parts_out(runs[-1].team, total),
    )


def _parts_of(run: RunRow, now: int) -> Parts:
    """Returns the parts of one run's GPU-seconds, counted in the same way as the store's sums (store.billing.usage)."""
    during = max(0, (run.end or now) - run.start)
    lost = min(run.lost_s, during)
    idle = min(run.idle_s, during - lost)
    times = (during - lost - idle, lost, idle, max(0, run.start - run.eligible))
    return Parts(*(round(seconds * run.gpus) for seconds in times))


def _parts(times: Times) -> Parts:
    return Parts(
        times.gpu_s - times.lost_gpu_s - times.idle_gpu_s, times.lost_gpu_s, times.idle_gpu_s, times.waited_gpu_s
    )


def _parts_out(team: str, parts: Parts) -> PartsOut:
    return PartsOut(
        team=team,
        productive_gpu_hours=to_hours(parts.productive),
        lost_gpu_hours=to_hours(parts.lost),
        idle_gpu_hours=to_hours(parts.idle),
        waited_gpu_hours=to_hours(parts.waiting),
        goodput=None if parts.goodput is None else round(parts.goodput, 6),
        ettr=None if parts.ettr is None else round(parts.ettr, 6),
    )


async def _queue(state: AppState, scope: ReportScope, sums: SegmentTotals, whole: Parts) -> list[Cause]:
    """Returns waiting jobs as a cause of loss: at most the cost of GPUs that were idle meanwhile. Only for people who
    may see the invoice."""
    if scope.visible_teams is not None or not whole.waiting:
        return []
    found = (await monthly_bill.load_bill(state, scope.billed, scope.month, sums)).chargeback
    idle = sum(team.cents["idle"] for team in found.teams) + sum(
        cost.cents for cost in found.unassigned if cost.what == "idle"
    )
    allocated = sum(
        sum(team.cents[column] for column in ("productive", "lost", "allocated_idle")) for team in found.teams
    )
    waited = Fraction(allocated, 100) * whole.waiting / whole.allocated if whole.allocated else Fraction(idle, 100)
    return [Cause("queue", QUEUE, whole.waiting, min(Fraction(idle, 100), waited))]
