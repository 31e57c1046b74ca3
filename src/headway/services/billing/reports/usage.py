"""Usage sums by team, user, partition, GPU type and node group."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from headway.billing.energy import Energy, estimate_j
from headway.billing.money import apportion, cents, usd
from headway.billing.periods import Period
from headway.errors import Refused
from headway.schemas.billing.usage import UsageOut, UsageRow
from headway.services.access.role_rights import Principal
from headway.services.app_state import AppState
from headway.services.billing.priced_usage import usage_cost
from headway.services.billing.reports.report_scope import BilledCluster, to_hours, visible_teams
from headway.store.billing.run_sums import NONE, Only, ReportSpan
from headway.store.billing.usage import BY, Total

MAX_GPUS = 2**31 - 1  # the largest number that a database column holds


@dataclass(frozen=True, slots=True)
class UsageFilter:
    """Filter of a usage report; empty fields accept everything. The value "-" selects usage without a team, user etc."""

    team: str = ""
    user: str = ""
    partition: str = ""
    gpu: str = ""
    group: str = ""
    least_gpus: int = 0
    most_gpus: int | None = None


def parse_dimensions(words: Iterable[str]) -> list[str]:
    """Returns the ledger's columns for the requested dimensions, such as "team" or "user,gpu". Raises Refused for
    unknown ones."""
    names = ["gpu_type" if name == "gpu" else name for word in words for name in word.split(",")]
    if unknown := [name for name in names if name not in BY]:
        raise Refused(f"usage can't be summed by {unknown[0]}", hint="use team, user, partition, gpu or group")
    return list(dict.fromkeys(names))


def usage_selection(billed: BilledCluster, who: Principal, filters: UsageFilter) -> Only:
    """Returns the filter in the form of the store, limited to the teams whose usage the person may see."""
    teams = visible_teams(billed, who)
    if filters.team:
        team = "" if filters.team == NONE else filters.team
        teams = (team,) if teams is None or team in teams else ()
    sized = filters.least_gpus or filters.most_gpus is not None
    gpus = (filters.least_gpus, MAX_GPUS if filters.most_gpus is None else filters.most_gpus) if sized else None
    return Only(teams, filters.user, filters.partition, filters.gpu, filters.group, gpus)


async def load_usage(
    state: AppState, billed: BilledCluster, period: Period, by: Sequence[str], only: Only, stale: str = ""
) -> UsageOut:
    """Returns sums of the period by the columns in `by`. `stale` says why the ledger could not be refreshed."""
    span = ReportSpan(period.start, period.end, billed.now)
    totals, costs = await asyncio.gather(
        state.store.usage.totals(billed.name, span, [*by, "gpu_type"], only),
        usage_cost(state, billed, period, only, tuple(by)),
    )
    grouped: dict[tuple[str, ...], list[Total]] = {}
    for total in totals:
        grouped.setdefault(total.by[: len(by)], []).append(total)
    shown = ["gpu" if dimension == "gpu_type" else dimension for dimension in by]
    cost, keys = dict(costs), sorted(grouped)
    exact = [cost.get(key, Fraction(0)) for key in keys]
    whole = cents(sum(exact, Fraction(0)))
    rows = [
        _row(dict(zip(shown, key, strict=True)), grouped[key], its_cents, billed.costs.pue)
        for key, its_cents in zip(keys, apportion(whole, exact), strict=True)
    ]
    return UsageOut(
        cluster=billed.name,
        start=period.start,
        end=period.end,
        as_of=billed.now,
        stale=stale,
        simulated=billed.simulated,
        rows=sorted(rows, key=lambda row: (-row.gpu_hours, -row.cpu_hours, *row.by.values())),
        total=_row({}, totals, whole, billed.costs.pue),
    )


def energy_sum(parts: Iterable[Total]) -> Energy:
    """Returns the energy of these sums; the last of their `by` values must be the GPU type."""
    measured = estimated = 0
    for part in parts:
        measured += part.energy_j
        estimated += estimate_j(part.by[-1], part.unmeasured_gpu_s, part.unmeasured_cpu_s)
    return Energy(measured, estimated)


def _row(by: dict[str, str], parts: Sequence[Total], whole_cents: int, pue: float) -> UsageRow:
    energy = energy_sum(parts)

    def hours(name: str) -> float:
        return to_hours(sum(getattr(part, name) for part in parts))

    return UsageRow(
        by=by,
        runs=sum(part.runs for part in parts),
        gpu_hours=hours("gpu_s"),
        cpu_hours=hours("cpu_s"),
        lost_gpu_hours=hours("lost_gpu_s"),
        idle_gpu_hours=hours("idle_gpu_s"),
        waited_hours=hours("waited_s"),
        usd=usd(whole_cents),
        energy_kwh=round(energy.kwh(pue), 4),
        energy_estimated=energy.marked,
    )
