"""What was used, and the runs behind it. A person sees what their own teams used; operators and admins see everything."""

from __future__ import annotations

import asyncio
from bisect import bisect
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Query
from starlette.responses import Response

from headway.api.auth.dependencies import MAX_PATH_NUMBER, Anyone, State
from headway.api.http.pagination import Cursor, read, written
from headway.billing.energy import Energy, estimate_j
from headway.billing.goodput import within
from headway.billing.money import apportion, cents, usd
from headway.billing.periods import Period, moment, zone
from headway.errors import HeadwayError, NotAllowed, Refused
from headway.schemas import spreadsheets
from headway.schemas.base import Wire
from headway.schemas.billing import RunLine, RunsOut, UsageOut, UsageRow
from headway.services.authorization import may_see_team_usage
from headway.services.billing import invoicing
from headway.services.billing.invoicing import Look, Place, place_of
from headway.services.billing.loss_attribution import QUEUE, behind
from headway.services.context import AppState
from headway.services.identity import Principal, Right
from headway.store.billing.sums import NONE, Only, Span
from headway.store.billing.usage import BY, Order, RunRow, Total, run_place

router = APIRouter(prefix="/clusters/{name}", tags=["costs"])
GPU = {"gpu": "gpu_type"}  # what people call it
HOUR_S = 3600
MOST_RUNS = 1000
_ANY_GPUS = 2**31 - 1
MonthText = Annotated[str, Query(max_length=7, description="a month, as 2026-10; the one that is now unless said")]
Form = Annotated[Literal["json", "csv"], Query(alias="format")]
Name = Annotated[str, Query(max_length=64, description='"-": that has none')]
When = Annotated[str, Query(max_length=40, description="2026-10, 2026-10-03, 2026-10-03T12:00, or unix seconds")]


@dataclass(frozen=True, slots=True)
class Which:
    """What somebody asks about; "" = all of it."""

    team: str = ""
    user: str = ""
    partition: str = ""
    gpu: str = ""
    group: str = ""
    least_gpus: int = 0
    most_gpus: int | None = None


def _which(
    team: Name = "",
    user: Name = "",
    partition: Name = "",
    gpu: Name = "",
    group: Name = "",
    least_gpus: Annotated[int, Query(ge=0, le=_ANY_GPUS, description="runs of so many GPUs or more")] = 0,
    most_gpus: Annotated[int | None, Query(ge=0, le=_ANY_GPUS, description="runs of so many GPUs or fewer")] = None,
) -> Which:
    return Which(team, user, partition, gpu, group, least_gpus, most_gpus)


Asked = Annotated[Which, Depends(_which)]


async def fresh(state: AppState, place: Place) -> str:
    """Brings the ledger up to date where it can be; why it could not."""
    if place.cluster is None:
        return ""
    if away := state.live.snapshot(place.name).stale:
        return away
    try:
        await state.collected(place.cluster)
    except HeadwayError as error:
        return error.message.splitlines()[0]
    except (TimeoutError, OSError) as error:
        return str(error) or type(error).__name__
    return ""


def teams_seen(place: Place, who: Principal) -> tuple[str, ...] | None:
    """None: all of them. Raises NotAllowed for a cluster that is gone, whose teams nobody knows any more."""
    if who.may(Right.ADMIN) or who.may(Right.OPERATE_NODES):
        return None
    if place.cluster is None:
        raise NotAllowed(f"{place.name} is down: what it used is for operators and admins", hint="ask one of them")
    return tuple(team.name for team in place.cluster.teams if may_see_team_usage(place.cluster, who, team.name))


async def runs_of_job(state: AppState, name: str, job: int, seen: tuple[str, ...] | None) -> list[RunRow]:
    """Of the newest cluster of that name that had a job of this number, as far as one sees them."""
    runs = await state.store.runs_of(name, job)
    ends = await state.store.data_ends(name)
    newest = bisect(ends, runs[-1].start) if runs else 0
    return [one for one in runs if bisect(ends, one.start) == newest and (seen is None or one.team in seen)]


async def looked(state: AppState, name: str, who: Principal, period: str) -> Look:
    """With the ledger brought up to date."""
    place = await place_of(state, name)
    look = Look(place, place.month(period), teams_seen(place, who))
    await fresh(state, place)
    return look


def hours_of(seconds: float) -> float:
    return round(seconds / HOUR_S, 4)


def sheet(found: Wire, name: str) -> Response:
    headers = {"content-disposition": f'attachment; filename="{name}.csv"'}
    return Response(spreadsheets.text(found), media_type="text/csv", headers=headers)


def stretch(place: Place, start: str, end: str) -> Period:
    """From `start` (this month's beginning unless said) to `end` (now). Raises Refused."""
    where = zone(place.costs.timezone)
    try:
        begun = moment(start, where) if start else place.month("").start
        done = moment(end, where) if end else place.now
    except (ValueError, OverflowError) as error:
        raise Refused(str(error), hint="for example --from 2026-10-01 --to 2026-11-01") from None
    if not 0 <= begun < done <= 2**37:
        raise Refused("the end must come after the start", hint="for example --from 2026-10-01 --to 2026-11-01")
    return Period("", begun, done)


@router.get("/usage", response_model=UsageOut)
async def usage(
    name: str,
    state: State,
    who: Anyone,
    which: Asked,
    by: Annotated[list[str] | None, Query(max_length=5, description="team, user, partition, gpu or group")] = None,
    start: When = "",
    end: When = "",
    format: Form = "json",  # noqa: A002
) -> UsageOut | Response:
    """Sums by team, user, partition, GPU type and group. What still runs counts until now."""
    place = await place_of(state, name)
    names = [GPU.get(one, one) for words in by or ["team"] for one in words.split(",")]
    if unknown := [one for one in names if one not in BY]:
        raise Refused(f"usage can't be told by {unknown[0]}", hint="by team, user, partition, gpu, group")
    period, only = stretch(place, start, end), narrowed(place, who, which)
    stale = await fresh(state, place)
    found = await usage_of(state, place, period, list(dict.fromkeys(names)), only, stale)
    return sheet(found, f"{name}-usage") if format == "csv" else found


def narrowed(place: Place, who: Principal, which: Which) -> Only:
    teams = teams_seen(place, who)
    if which.team:
        team = "" if which.team == NONE else which.team
        teams = (team,) if teams is None or team in teams else ()
    sized = which.least_gpus or which.most_gpus is not None
    gpus = (which.least_gpus, _ANY_GPUS if which.most_gpus is None else which.most_gpus) if sized else None
    return Only(teams, which.user, which.partition, which.gpu, which.group, gpus)


async def usage_of(
    state: AppState, place: Place, period: Period, by: Sequence[str], only: Only, stale: str = ""
) -> UsageOut:
    span = Span(period.start, period.end, place.now)
    totals, costs = await asyncio.gather(
        state.store.usage(place.name, span, [*by, "gpu_type"], only),
        invoicing.held_cost(state, place, period, only, tuple(by)),
    )
    grouped: dict[tuple[str, ...], list[Total]] = {}
    for one in totals:
        grouped.setdefault(one.by[: len(by)], []).append(one)
    shown = ["gpu" if one == "gpu_type" else one for one in by]
    cost, keys = dict(costs), sorted(grouped)
    exact = [cost.get(key, Fraction(0)) for key in keys]
    whole = cents(sum(exact, Fraction(0)))
    rows = [
        _row(dict(zip(shown, key, strict=True)), grouped[key], its_cents, place.costs.pue)
        for key, its_cents in zip(keys, apportion(whole, exact), strict=True)
    ]
    return UsageOut(
        cluster=place.name,
        start=period.start,
        end=period.end,
        as_of=place.now,
        stale=stale,
        simulated=place.simulated,
        rows=sorted(rows, key=lambda row: (-row.gpu_hours, -row.cpu_hours, *row.by.values())),
        total=_row({}, totals, whole, place.costs.pue),
    )


def energy_sum(parts: Iterable[Total]) -> Energy:
    """By GPU type, which is the last name of each part."""
    measured = estimated = 0
    for one in parts:
        measured += one.energy_j
        estimated += estimate_j(one.by[-1], one.unmeasured_gpu_s, one.unmeasured_cpu_s)
    return Energy(measured, estimated)


def _row(by: dict[str, str], parts: Sequence[Total], whole_cents: int, pue: float) -> UsageRow:
    energy = energy_sum(parts)

    def hours(name: str) -> float:
        return hours_of(sum(getattr(one, name) for one in parts))

    return UsageRow(
        by=by,
        runs=sum(one.runs for one in parts),
        gpu_hours=hours("gpu_s"),
        cpu_hours=hours("cpu_s"),
        lost_gpu_hours=hours("lost_gpu_s"),
        idle_gpu_hours=hours("idle_gpu_s"),
        waited_hours=hours("waited_s"),
        usd=usd(whole_cents),
        energy_kwh=round(energy.kwh(pue), 4),
        energy_estimated=energy.marked,
    )


# --- the runs behind a figure


def order_of(lossy: bool, waited: bool) -> Order:
    return "lossy" if lossy else "waited" if waited else "latest"


@router.get("/usage/runs")
async def runs(
    name: str,
    state: State,
    who: Anyone,
    which: Asked,
    start: When = "",
    end: When = "",
    job: Annotated[int, Query(ge=0, le=MAX_PATH_NUMBER)] = 0,
    lossy: Annotated[bool, Query(description="only those that lost or idled, the dearest first")] = False,
    waited: Annotated[bool, Query(description="only those that began then, the longest wait first")] = False,
    cause: Annotated[
        str, Query(max_length=4000, description="only those behind a cause of loss, as goodput words it")
    ] = "",
    cursor: Cursor = "",
    limit: Annotated[int, Query(ge=1, le=MOST_RUNS)] = 100,
) -> RunsOut:
    """Every run of every job, the latest first; of one job the first first, and as a whole. A cursor names the last run that was
    read, so that those which begin in between neither come twice nor push others out."""
    place = await place_of(state, name)
    period, only = stretch(place, start, end), narrowed(place, who, which)
    await fresh(state, place)
    first = order_of(lossy, waited or cause == QUEUE)
    numbers = 2 if first == "latest" and not cause else 3
    after = read(cursor, *[int] * numbers, str) if cursor else None
    mine = None
    if job:
        found = await runs_of_job(state, name, job, only.teams)
    else:
        span = Span(period.start, period.end, place.now)
        mine = await behind(state, name, span, only, cause) if cause and cause != QUEUE else None
        found = await state.store.runs(name, span, only, first=first, behind=mine, after=after, limit=limit + 1)
    cut = found if job else found[:limit]
    more = written(run_place(cut[-1], first, mine)) if len(found) > len(cut) else ""
    whole = Period("", min((one.start for one in cut), default=0), place.now + 1)
    asked = whole if job else period
    costs = await invoicing.run_costs(state, place, cut, asked)
    wholes = await invoicing.run_costs(state, place, cut, whole)
    lines = [_run(one, place, asked, *usds) for one, *usds in zip(cut, costs, wholes, strict=True)]
    return RunsOut(cluster=name, start=period.start, end=period.end, runs=lines, next=more)


def _run(one: RunRow, place: Place, asked: Period, cost: Fraction, whole: Fraction) -> RunLine:
    """As sums over the stretch count it: what it held, lost, idled and drew there."""
    end = max(one.start, one.end or place.now)
    elapsed, until = end - one.start, min(asked.end, place.now)
    held, lost, idle = within(one.start, end, one.lost_s, one.idle_s, asked.start, until)
    gpu_s, cpu_s = one.gpus * (elapsed - one.measured_s), one.cpus * elapsed - one.cpu_measured_s
    drawn = (one.energy_j, estimate_j(one.gpu_type, gpu_s, cpu_s))
    energy = Energy(*(joules * held // max(1, elapsed) for joules in drawn))
    return RunLine(
        job=one.job,
        team=one.team,
        user=one.user,
        partition=one.partition,
        group=one.group,
        state=one.state,
        nodes=one.nodes,
        node_count=one.node_count,
        gpu_type=one.gpu_type,
        gpus=one.gpus,
        cpus=one.cpus,
        start=one.start,
        end=one.end or None,
        waited_s=max(0, one.start - one.eligible),
        elapsed_s=elapsed,
        held_s=held,
        time_limit_s=one.time_limit_s,
        used_cpu_s=one.used_cpu_s,
        memory_mib=one.memory_mib,
        used_memory_mib=one.used_memory_mib,
        lost_s=lost,
        idle_s=idle,
        energy_kwh=round(energy.kwh(place.costs.pue), 4),
        energy_estimated=energy.marked,
        usd=usd(cents(cost)),
        usd_whole=usd(cents(whole)),
    )
