"""The single runs behind a usage figure."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from headway.billing.energy import Energy, estimate_j
from headway.billing.goodput import part_within
from headway.billing.money import cents, usd
from headway.billing.periods import Period
from headway.schemas.billing.usage import RunLine, RunsOut
from headway.services.app_state import AppState
from headway.services.billing.priced_usage import run_costs
from headway.services.billing.reports.loss_attribution import QUEUE, runs_behind_cause
from headway.services.billing.reports.report_scope import BilledCluster
from headway.services.cursors import decode_cursor, encode_cursor
from headway.store.billing.run_sums import Only, ReportSpan
from headway.store.billing.usage import BY_SIZE, Order, RunRow, run_place

SORTS: dict[str, Order] = {"ran": "longest", "gpus": "largest", "gpu_hours": "gpu_time"}


async def load_runs_of_job(state: AppState, name: str, job: int, seen: tuple[str, ...] | None) -> list[RunRow]:
    """Returns a job's runs in the newest cluster of that name that had this job, limited to the teams `seen` (None:
    all)."""
    runs = await state.store.usage.runs_of_job(name, job)
    ends = await state.store.operations.data_deletion_times(name)
    newest = bisect(ends, runs[-1].start) if runs else 0
    return [run for run in runs if bisect(ends, run.start) == newest and (seen is None or run.team in seen)]


@dataclass(frozen=True, slots=True)
class RunSelection:
    """Filter and order of the runs of a period.

    `job`: only this job's runs, over its whole life. `lossy`: only runs that lost or idled, the most expensive
    first. `waited`: only runs that started in the period, the longest wait first. `cause`: only runs behind this
    cause of loss, in the words of goodput. `sort`: another order, from SORTS."""

    job: int = 0
    lossy: bool = False
    waited: bool = False
    cause: str = ""
    sort: str = ""

    @property
    def order(self) -> Order:
        """Returns the order in which the store lists them."""
        if self.sort in SORTS and not self.cause:
            return SORTS[self.sort]
        return run_order(self.lossy, self.waited or self.cause == QUEUE)


async def load_runs(
    state: AppState, billed: BilledCluster, period: Period, only: Only, selection: RunSelection, cursor: str, limit: int
) -> RunsOut:
    """Returns one page of runs and their costs. Raises Refused for a cursor that does not belong to this order."""
    order, cause = selection.order, selection.cause
    kinds = [int, float, int, int] if order in BY_SIZE else [int] * (2 if order == "latest" and not cause else 3)
    after = decode_cursor(cursor, *kinds, str) if cursor else None
    now = billed.now
    if after is not None and order in BY_SIZE:  # all pages count runs that have not ended until the same time
        now, after = after[0], after[1:]
    behind = None
    if selection.job:
        found = await load_runs_of_job(state, billed.name, selection.job, only.teams)
    else:
        span = ReportSpan(period.start, period.end, now)
        if cause and cause != QUEUE:
            behind = await runs_behind_cause(state, billed.name, span, only, cause)
        found = await state.store.usage.runs(
            billed.name, span, only, first=order, behind=behind, after=after, limit=limit + 1
        )
    page = found if selection.job else found[:limit]
    next_cursor = ""
    if len(found) > len(page):
        place = run_place(page[-1], order, behind, now)
        next_cursor = encode_cursor((now, *place) if order in BY_SIZE else place)
    lifetime = Period("", min((run.start for run in page), default=0), billed.now + 1)
    shown_period = lifetime if selection.job else period
    costs = await run_costs(state, billed, page, shown_period)
    whole_costs = await run_costs(state, billed, page, lifetime)
    lines = [_run_line(run, billed, shown_period, *usd) for run, *usd in zip(page, costs, whole_costs, strict=True)]
    return RunsOut(cluster=billed.name, start=period.start, end=period.end, runs=lines, next=next_cursor)


async def whole_run_lines(state: AppState, billed: BilledCluster, runs: Sequence[RunRow]) -> list[RunLine]:
    """Returns these runs with their cost, over their whole time."""
    lifetime = Period("", min((run.start for run in runs), default=0), billed.now + 1)
    costs = await run_costs(state, billed, runs, lifetime)
    return [_run_line(run, billed, lifetime, cost, cost) for run, cost in zip(runs, costs, strict=True)]


def run_order(lossy: bool, waited: bool) -> Order:
    """Returns the store's name of the order."""
    return "lossy" if lossy else "waited" if waited else "latest"


def _run_line(run: RunRow, billed: BilledCluster, period: Period, cost: Fraction, whole: Fraction) -> RunLine:
    """Returns the run, with the time that was allocated, lost, idle and used within the period, counted in the same way
    as the sums of that period."""
    end = max(run.start, run.end or billed.now)
    elapsed, until = end - run.start, min(period.end, billed.now)
    allocated, lost, idle = part_within(run.start, end, run.lost_s, run.idle_s, period.start, until)
    gpu_s, cpu_s = run.gpus * (elapsed - run.measured_s), run.cpus * elapsed - run.cpu_measured_s
    drawn = (run.energy_j, estimate_j(run.gpu_type, round(gpu_s), cpu_s))
    energy = Energy(*(joules * allocated // max(1, elapsed) for joules in drawn))
    return RunLine(
        job=run.job,
        team=run.team,
        user=run.user,
        partition=run.partition,
        group=run.group,
        state=run.state,
        nodes=run.nodes,
        node_count=run.node_count,
        gpu_type=run.gpu_type,
        gpus=run.gpus,
        cpus=run.cpus,
        start=run.start,
        end=run.end or None,
        waited_s=max(0, run.start - run.eligible),
        elapsed_s=elapsed,
        allocated_s=allocated,
        time_limit_s=run.time_limit_s,
        used_cpu_s=run.used_cpu_s,
        memory_mib=run.memory_mib,
        used_memory_mib=run.used_memory_mib,
        lost_s=lost,
        idle_s=idle,
        energy_kwh=round(energy.kwh(billed.costs.pue), 4),
        energy_estimated=energy.marked,
        usd=usd(cents(cost)),
        usd_whole=usd(cents(whole)),
    )
