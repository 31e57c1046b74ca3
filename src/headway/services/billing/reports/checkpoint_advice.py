"""Reports how long trainings pause for checkpoints, and recommends a checkpoint interval."""

from __future__ import annotations

import heapq
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from headway.billing import goodput as good
from headway.billing.goodput import Advice, Cause
from headway.billing.money import cents, usd
from headway.billing.periods import Period
from headway.billing.prices.price_segments import Segment
from headway.domain.billing.ledger import CheckpointStats, MachineLifetime
from headway.errors import Refused
from headway.schemas.billing.goodput import AdviceOut
from headway.services.access.role_rights import Principal
from headway.services.app_state import AppState
from headway.services.billing.priced_usage import priced_segments
from headway.services.billing.reports.loss_attribution import CHECKPOINTS, MAX_NAMED_JOBS, data_began_at
from headway.services.billing.reports.report_scope import HOUR_S, BilledCluster, ReportScope, visible_teams
from headway.services.billing.reports.runs import load_runs_of_job
from headway.store.billing.losses import Saved
from headway.store.billing.run_sums import Only
from headway.store.billing.usage import RunRow

FAILURE_HISTORY_S = 90 * 86_400  # seconds; the failure rate of nodes is measured over this period


DEFAULT_FAILURE_HOURS = 24 * 365.0  # assumed for a node that has not failed yet


MIN_CHECKPOINTS = 2  # needed to know how often a job writes one


MAX_ADVISED_JOBS = 100  # those that would save most


_MILLIONTHS = 10**6  # of a dollar


@dataclass(frozen=True, slots=True)
class CheckpointStall:
    """The time that a job's checkpoints took in a period. `usd` is what the whole job cost in it, `failure_s` its mean
    time to failure."""

    job: int
    saves: CheckpointStats
    failure_s: float
    gpu_s: int
    usd: Fraction

    @property
    def share(self) -> float:
        """Returns the share of its time that went into checkpoints, 0 to 1."""
        return min(1.0, self.saves.stalled_s / self.saves.up_s)

    @property
    def advice(self) -> Advice:
        """Returns the recommended interval."""
        return good.checkpoint_advice(self.saves.every_s, self.failure_s, self.saves.write_s)

    def out(self) -> AdviceOut:
        """Returns the advice in the form of the API, with what it would save in the period."""
        advice = advice_out(self.job, self.saves.write_s, self.failure_s, self.advice)
        return advice.model_copy(update={"saves_usd": usd(cents(self.usd * Fraction(self.advice.saves)))})


@dataclass(frozen=True, slots=True)
class CheckpointCosts:
    """Checkpoint pauses of all jobs of a period. `dearest` are the jobs that a better interval would save most, largest
    first."""

    dearest: tuple[CheckpointStall, ...] = ()
    gpu_s: int = 0
    usd: Fraction = Fraction(0)
    longest: tuple[int, ...] = ()  # jobs whose pauses cost most

    @property
    def causes(self) -> list[Cause]:
        """Returns the pauses as a cause of loss. They are also contained in the productive time."""
        return [Cause("checkpoints", CHECKPOINTS, self.gpu_s, self.usd, self.longest)] if self.longest else []


async def advise_checkpoints(
    state: AppState, who: Principal, billed: BilledCluster, job: int, every_s: float, write_s: float, nodes: int
) -> AdviceOut:
    """Returns the best interval between checkpoints, in seconds. Zeros are replaced by the values measured of the job
    (0: no job). Raises Refused if the interval or the writing time is neither given nor measured."""
    teams = visible_teams(billed, who)
    runs = await load_runs_of_job(state, billed.name, job, teams) if job else []
    measured = (await state.store.checkpoints.of_jobs(billed.name, [job])).get(job) if runs else None
    if measured is not None and measured.count >= MIN_CHECKPOINTS:
        every_s, write_s = every_s or measured.every_s, write_s or measured.write_s
    if not every_s or not write_s:
        raise Refused(
            f"no checkpoints of job {job} were measured" if job else "every_s and write_s are missing",
            hint="every_s=600&write_s=20; headway_train measures them by itself (docs/howto/checkpoints.md)",
        )
    hours = await failure_hours(state, billed, Period("", billed.now - FAILURE_HISTORY_S, billed.now))
    failure_s = _failure_s(hours, nodes or _nodes(runs) or 1)
    return advice_out(job, write_s, failure_s, good.checkpoint_advice(every_s, failure_s, write_s))


def advice_out(job: int, write_s: float, failure_s: float, advice: Advice) -> AdviceOut:
    """Returns the advice in the form of the API."""
    return AdviceOut(
        job=job,
        now_s=round(advice.now_s, 1),
        best_s=round(advice.best_s, 1),
        write_s=round(write_s, 3),
        failure_s=round(failure_s),
        saves=round(advice.saves, 6),
    )


async def load_checkpoint_stalls(state: AppState, scope: ReportScope) -> CheckpointCosts:
    """Returns the pauses of all jobs in the scope that report their checkpoints. Jobs are streamed, and only the top
    ones are kept in memory."""
    billed, month = scope.billed, scope.month
    segments = await priced_segments(state, billed, month)
    hours = await failure_hours(state, billed, Period("", billed.now - FAILURE_HISTORY_S, billed.now))
    gpu_s, millionths = 0, 0
    dearest: list[tuple[float, int, CheckpointStall]] = []
    longest: list[tuple[int, int]] = []
    async for found_stall in _stalls(state, scope, segments, hours):
        share, whole = (
            found_stall.share,
            float(found_stall.usd),
        )  # shares are measured, so exact products would gain nothing
        still = round(whole * share * _MILLIONTHS)
        gpu_s, millionths = gpu_s + round(found_stall.gpu_s * share), millionths + still
        _keep(longest, (still, -found_stall.job), MAX_NAMED_JOBS)
        _keep(dearest, (whole * found_stall.advice.saves, -found_stall.job, found_stall), MAX_ADVISED_JOBS)
    return CheckpointCosts(
        tuple(stall for *_, stall in sorted(dearest, reverse=True)),
        gpu_s,
        Fraction(millionths, _MILLIONTHS),
        tuple(-job for _, job in sorted(longest, reverse=True)),
    )


async def _stalls(
    state: AppState, scope: ReportScope, segments: Sequence[Segment], hours: float | None
) -> AsyncIterator[CheckpointStall]:
    rows: list[Saved] = []
    name = scope.billed.name
    async for row in state.store.losses.with_checkpoints(
        name, scope.span, Only(scope.visible_teams), MIN_CHECKPOINTS, await data_began_at(state, name)
    ):
        if rows and rows[-1].job != row.job:
            yield _stall(rows, scope, segments, hours)
            rows = []
        rows.append(row)
    if rows:
        yield _stall(rows, scope, segments, hours)


def _stall(
    rows: Sequence[Saved], scope: ReportScope, segments: Sequence[Segment], hours: float | None
) -> CheckpointStall:
    now, last = scope.billed.now, rows[-1]

    def seconds(saved: Saved, start: int, end: int) -> int:
        return max(0, min(saved.end or now, end, now) - max(saved.start, start))

    gpu_s = round(sum(row.gpus * seconds(row, scope.month.start, scope.month.end) for row in rows))
    cost = Fraction(0)
    for row in rows:
        for segment in segments:
            if segment.group == row.group and (allocated := seconds(row, segment.start, segment.end)):
                cost += segment.usd_per_second * Fraction(row.units * allocated, row.per_node)
    saves = CheckpointStats(last.saves, last.stalled_s, last.up_s)
    return CheckpointStall(last.job, saves, _failure_s(hours, _nodes(rows)), gpu_s, cost)


def _keep(into: list[Any], item: Any, most: int) -> None:
    """Keeps the `most` largest items in the heap."""
    if len(into) < most:
        heapq.heappush(into, item)
    else:
        heapq.heappushpop(into, item)


def _nodes(rows: Sequence[RunRow] | Sequence[Saved]) -> int:
    """Returns the number of nodes of a job's last run in all groups. `rows` are its runs, the last at the end."""
    return sum(row.node_count for row in rows if row.start == rows[-1].start)


def _failure_s(hours: float | None, nodes: int) -> float:
    """Returns the mean time between failures of a job on this many nodes, in seconds."""
    return (hours or DEFAULT_FAILURE_HOURS) * HOUR_S / nodes


async def failure_hours(state: AppState, billed: BilledCluster, month: Period) -> float | None:
    """Returns the mean time between failures of one node in hours: machine hours / incidents that took a node out of
    service; None without incidents. A previous cluster of this name, deleted with its data, does not count."""
    month = replace(month, start=max(month.start, await data_began_at(state, billed.name)))
    lives = await state.store.machine_lifetimes.between(billed.name, month.start, month.end)
    hours = sum(_seconds(life, month, billed.now) for life in lives) / HOUR_S
    failures = await state.store.incidents.count_failures(billed.name, month.start, month.end)
    return round(hours / failures, 2) if failures and hours else None


def _seconds(life: MachineLifetime, month: Period, now: int) -> int:
    return max(0, min(life.ended or now, month.end, now) - max(life.began, month.start))
