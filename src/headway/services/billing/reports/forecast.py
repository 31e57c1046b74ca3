"""The report on what jobs will use and how long they will wait, from the ledger's last sixteen weeks."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from headway.billing import capacity as rules
from headway.billing.capacity import Ends, allocated_between
from headway.billing.forecasts.demand_forecast import (
    FEWEST_DAYS,
    FULL,
    HISTORY_DAYS,
    WEEK,
    Forecast,
    fill_dates,
    forecast_days,
)
from headway.billing.forecasts.wait_forecast import expected_waits
from headway.domain.billing.ledger import DAY_S
from headway.schemas.billing.forecast import (
    FillOut,
    ForecastDayOut,
    ForecastOut,
    PartForecastOut,
    UsedDayOut,
    WaitForecastOut,
)
from headway.services.app_state import AppState
from headway.services.billing.reports.capacity import present_gpu_seconds
from headway.services.billing.reports.fragmentation import gpu_plans_by_group, gpus_by_node
from headway.services.billing.reports.report_scope import HOUR_S, BilledCluster, ReportScope
from headway.store.billing.run_sums import ReportSpan

MAX_AGE_S = 600
NEXT_DAYS = 4 * WEEK  # that teams, sizes and waits are compared over
_SIZES = rules.SIZES[1:]  # jobs without a GPU use none
_LEAST = tuple(least for least, _ in _SIZES)


@dataclass(frozen=True, slots=True)
class _Past:
    """`used`: GPU-hours of each day by (team, size, group). `present`: GPU-hours that machines of `groups` offered each day;
    those of removed groups are unknown. `waits`: by (team, size) and day the seconds waited and the number of runs. `gpus`: in
    machines that exist now."""

    marks: range
    groups: frozenset[str]
    used: Mapping[tuple[str, str, str], Sequence[float]]
    present: Sequence[float]
    waits: Mapping[tuple[str, str], Mapping[int, Counter[int]]]
    gpus: int

    def sum_by(self, which: int) -> dict[str, list[float]]:
        """Returns the GPU-hours of each day by team (0) or by size (1)."""
        found: dict[str, list[float]] = {}
        for key, hours in self.used.items():
            _add(found.setdefault(key[which], [0.0] * len(hours)), hours)
        return found

    def waits_by(self, which: int) -> dict[str, dict[int, Counter[int]]]:
        """Returns the waits of each day by team (0) or by size (1)."""
        found: dict[str, dict[int, Counter[int]]] = {}
        for key, by_day in self.waits.items():
            mine = found.setdefault(key[which], {})
            for day, counts in by_day.items():
                mine.setdefault(day, Counter()).update(counts)
        return found

    def shares(self) -> list[float | None]:
        """Returns the allocated share of the GPUs of each day, None for days without machines."""
        used = [0.0] * (len(self.marks) - 1)
        for (_, _, group), hours in self.used.items():
            if group in self.groups:
                _add(used, hours)
        return [min(1.0, hours / had) if had else None for hours, had in zip(used, self.present, strict=True)]


async def load_forecast(state: AppState, scope: ReportScope) -> ForecastOut:
    """Returns the forecast of the cluster for all teams together; single teams are those that the person may see."""
    billed, seen = scope.billed, scope.visible_teams

    async def load() -> ForecastOut:
        past = await _load_past(state, billed)
        return await asyncio.to_thread(_report, billed.name, past)  # seconds, if there are a million runs

    # Days that are over seldom change.
    found = await state.cache.get(f"{billed.name}/forecast/{billed.now // DAY_S}", MAX_AGE_S, load)
    if seen is None:
        return found
    teams = [part for part in found.teams if part.name in seen]
    return found.model_copy(
        update={"teams": teams, "team_waits": [row for row in found.team_waits if row.name in seen]}
    )


def _report(name: str, past: _Past) -> ForecastOut:
    """Returns the forecast with all teams."""
    today, gpus, shares = past.marks[-1], past.gpus, past.shares()
    used = [0.0] * (len(past.marks) - 1)
    for hours in past.used.values():
        _add(used, hours)
    forecast = forecast_days(used)
    coming = [day.expected / (gpus * 24) for day in forecast.days[:NEXT_DAYS]] if forecast and gpus else []
    teams, sizes = past.sum_by(0), past.sum_by(1)
    team_waits, size_waits = past.waits_by(0), past.waits_by(1)
    order = [words for _, words in _SIZES]
    return ForecastOut(
        cluster=name,
        gpus=gpus,
        used=[UsedDayOut(day=day, gpu_hours=_round(hours)) for day, hours in zip(past.marks, used, strict=False)],
        forecast=[
            ForecastDayOut(
                day=today + ahead * DAY_S,
                gpu_hours=_round(day.expected),
                low=_rounded(day.low),
                high=_rounded(day.high),
            )
            for ahead, day in enumerate(forecast.days if forecast else ())
        ],
        no_forecast="" if forecast else _missing_history(len(used)),
        method=forecast.method if forecast else "",
        error=forecast.error if forecast else None,
        total_error=forecast.total_error if forecast else None,
        within=forecast.within if forecast else None,
        tested_days=forecast.tested_days if forecast else 0,
        compared_days=min(NEXT_DAYS, len(used)),
        full_days=sum(share is not None and share >= FULL for share in shares[-NEXT_DAYS:]),
        fills=_fills(forecast, gpus, today) if forecast and gpus else None,
        teams=_parts(teams, sorted(teams)),
        sizes=_parts(sizes, order),
        team_waits=_waits(team_waits, sorted(team_waits), shares, coming),
        size_waits=_waits(size_waits, order, shares, coming),
    )


async def _load_past(state: AppState, billed: BilledCluster) -> _Past:
    """Returns the whole UTC days of the last HISTORY_DAYS, from the first run and the first machine on: of days before its first
    machine the ledger knows single long runs at most."""
    today, store = billed.now // DAY_S * DAY_S, state.store
    oldest = today - HISTORY_DAYS * DAY_S
    first = await store.demand.first_start(billed.name)
    lives = await store.machine_lifetimes.between(billed.name, oldest, billed.now + 1)
    plans, by_node = gpu_plans_by_group(billed), gpus_by_node(state, billed)
    gpus = sum(
        by_node.get(life.machine, plans[life.group].gpus) for life in lives if not life.ended and life.group in plans
    )
    start = today
    if first is not None and lives:
        start = max(oldest, *(at // DAY_S * DAY_S for at in (first, min(life.began for life in lives))))
    marks = range(min(start, today), today + 1, DAY_S)
    if len(marks) < 2:
        return _Past(marks, frozenset(), {}, [], {}, gpus)
    began, ended = await store.demand.gpu_changes(billed.name, marks, _LEAST, billed.now)
    counted = range(0, marks[-1] - marks[0] + 1, DAY_S)  # from the first mark, as the sums are
    used = {
        (team, _SIZES[size][1], group): [
            max(0.0, gpu_s / HOUR_S)
            for gpu_s in allocated_between(
                counted, *(_ends(one.get((team, size, group), {})) for one in (began, ended))
            )
        ]
        for team, size, group in began
    }
    span = ReportSpan(marks[0], marks[-1], billed.now)
    there = present_gpu_seconds(billed, by_node, lives, span, marks)
    present = [sum(of_day) / HOUR_S for of_day in zip(*there.values(), strict=True)] or [0.0] * (len(marks) - 1)
    waits: dict[tuple[str, str], dict[int, Counter[int]]] = {}
    for day, team, size, waited, count in await store.demand.waits(billed.name, marks, _LEAST):
        waits.setdefault((team, _SIZES[size][1]), {}).setdefault(day, Counter())[waited] += count
    return _Past(marks, frozenset(plans), used, present, waits, gpus)


def _ends(sums: Mapping[int, tuple[float, float]]) -> dict[int, Ends]:
    return {at: Ends(*pair) for at, pair in sums.items()}


def _add(sums: list[float], hours: Sequence[float]) -> None:
    for day, value in enumerate(hours):
        sums[day] += value


def _fills(forecast: Forecast, gpus: int, today: int) -> FillOut:
    dates = fill_dates(forecast, FULL * gpus * 24)
    days = (dates.expected, dates.earliest, dates.latest)
    expected, earliest, latest = (None if day is None else today + day * DAY_S for day in days)
    return FillOut(expected=expected, earliest=earliest, latest=latest)


def _parts(by_name: Mapping[str, Sequence[float]], names: Iterable[str]) -> list[PartForecastOut]:
    found = []
    for name in names:
        if name not in by_name:
            continue
        hours = by_name[name]
        forecast = forecast_days(hours)
        coming = None if forecast is None else _round(sum(day.expected for day in forecast.days[:NEXT_DAYS]))
        error = None if forecast is None else forecast.total_error
        found.append(
            PartForecastOut(name=name, gpu_hours=_round(sum(hours[-NEXT_DAYS:])), next_gpu_hours=coming, error=error)
        )
    return found


def _waits(
    by_name: Mapping[str, Mapping[int, Counter[int]]],
    names: Iterable[str],
    past: Sequence[float | None],
    coming: Sequence[float],
) -> list[WaitForecastOut]:
    found, last = [], range(max(0, len(past) - NEXT_DAYS), len(past))
    for name in names:
        if name not in by_name:
            continue
        recent: Counter[int] = Counter()
        for day in last:
            recent.update(by_name[name].get(day, {}))
        expected = expected_waits(by_name[name], past, coming)
        found.append(
            WaitForecastOut(
                name=name,
                runs=sum(recent.values()),
                p50_s=rules.percentile(recent.items(), 50),
                p90_s=rules.percentile(recent.items(), 90),
                next_p50_s=rules.percentile(expected.items(), 50),
                next_p90_s=rules.percentile(expected.items(), 90),
            )
        )
    return found


def _missing_history(days: int) -> str:
    return f"a forecast needs {FEWEST_DAYS} whole days since the first job; there are {days}"


def _round(hours: float) -> float:
    return round(hours, 2)


def _rounded(hours: float | None) -> float | None:
    return None if hours is None else _round(hours)
