"""What was used and what it cost: usage, the runs behind it, invoices, chargeback, budgets. A person sees what their own
teams used; operators and admins see everything, and invoices are theirs alone."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Annotated, Literal

from fastapi import APIRouter, Query
from starlette.responses import Response

from headway.api import reckoning
from headway.api.access import Admin, Anyone, Operator, Principal, Right, State, audit, sees_usage
from headway.api.reckoning import Bill, Place, place_of
from headway.api.state import AppState
from headway.errors import HeadwayError, NotAllowed, Refused
from headway.ledger import chargeback, invoice
from headway.ledger.energy import KWH_J, Energy, estimate_j
from headway.ledger.money import cents, usd
from headway.ledger.periods import Period, moment, zone
from headway.store.usage import BY, Only, RunRow, Span, Total
from headway.wire.ledger import (
    BudgetOut,
    ChargebackOut,
    CloseIn,
    CollectedOut,
    InvoiceOut,
    LineOut,
    RunLine,
    RunsOut,
    TeamCostOut,
    UnassignedOut,
    UsageOut,
    UsageRow,
)

router = APIRouter(prefix="/clusters/{name}", tags=["costs"])
GPU = {"gpu": "gpu_type"}  # what people call it
HOUR_S = 3600
MOST_RUNS = 1000
MonthText = Annotated[str, Query(max_length=7, description="a month, as 2026-10; the one that is now unless said")]
Form = Annotated[Literal["json", "csv"], Query(alias="format")]
Name = Annotated[str, Query(max_length=64)]
When = Annotated[str, Query(max_length=40, description="2026-10, 2026-10-03, 2026-10-03T12:00, or unix seconds")]


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
    if who.may(Right.ADMIN) or who.may(Right.NODES):
        return None
    if place.cluster is None:
        raise NotAllowed(f"{place.name} is down: what it used is for operators and admins", hint="ask one of them")
    return tuple(team.name for team in place.cluster.teams if sees_usage(place.cluster, who, team.name))


def stretch(place: Place, start: str, end: str) -> Period:
    """From `start` (this month's beginning unless said) to `end` (now). Raises Refused."""
    where = zone(place.costs.timezone)
    try:
        begun = moment(start, where) if start else place.month("").start
        done = moment(end, where) if end else place.now
    except (ValueError, OverflowError) as error:
        raise Refused(str(error), hint="for example --from 2026-10-01 --to 2026-11-01") from None
    if not 0 <= begun < done <= 2**40:
        raise Refused("the end must come after the start", hint="for example --from 2026-10-01 --to 2026-11-01")
    return Period("", begun, done)


# --- usage


@router.get("/usage", response_model=UsageOut)
async def usage(
    name: str,
    state: State,
    who: Anyone,
    by: Annotated[list[str] | None, Query(max_length=5, description="team, user, partition, gpu or group")] = None,
    start: When = "",
    end: When = "",
    team: Name = "",
    user: Name = "",
    partition: Name = "",
    gpu: Name = "",
    format: Form = "json",  # noqa: A002
) -> UsageOut | Response:
    """Sums by team, user, partition, GPU type and group. What still runs counts until now."""
    place = await place_of(state, name)
    names = [GPU.get(one, one) for words in by or ["team"] for one in words.split(",")]
    if unknown := [one for one in names if one not in BY]:
        raise Refused(f"usage can't be told by {unknown[0]}", hint="by team, user, partition, gpu, group")
    only = narrowed(place, who, team, user, partition, gpu)
    found = await usage_of(state, place, stretch(place, start, end), list(dict.fromkeys(names)), only)
    if format == "csv":
        return _csv(_usage_rows(found), f"{name}-usage.csv")
    return found


def narrowed(place: Place, who: Principal, team: str, user: str, partition: str, gpu: str) -> Only:
    teams = teams_seen(place, who)
    if team:
        teams = (team,) if teams is None or team in teams else ()
    return Only(teams, user, partition, gpu)


async def usage_of(state: AppState, place: Place, period: Period, by: Sequence[str], only: Only) -> UsageOut:
    stale = await fresh(state, place)
    span = Span(period.start, period.end, place.now)
    totals = await state.store.usage(place.name, span, [*by, "gpu_type"], only)
    cost = dict(await reckoning.held_cost(state, place, period, only, tuple(by)))
    grouped: dict[tuple[str, ...], list[Total]] = {}
    for one in totals:
        grouped.setdefault(one.by[: len(by)], []).append(one)
    shown = ["gpu" if one == "gpu_type" else one for one in by]
    rows = [
        _row(dict(zip(shown, key, strict=True)), parts, cost.get(key, Fraction(0)), place.costs.pue)
        for key, parts in grouped.items()
    ]
    return UsageOut(
        cluster=place.name,
        start=period.start,
        end=period.end,
        as_of=place.now,
        stale=stale,
        simulated=place.cluster.simulated_gpus if place.cluster else False,
        rows=sorted(rows, key=lambda row: (-row.gpu_hours, -row.cpu_hours, *row.by.values())),
        total=_row({}, totals, sum(cost.values(), Fraction(0)), place.costs.pue),
    )


def energy_of(parts: Iterable[Total]) -> Energy:
    """By GPU type, which is the last name of each part."""
    measured = estimated = 0
    for one in parts:
        measured += one.energy_j
        estimated += estimate_j(one.by[-1], 1, 0, one.unmeasured_gpu_s) if one.unmeasured_gpu_s else 0
        estimated += estimate_j("", 0, 1, one.unmeasured_cpu_s)
    return Energy(measured, estimated)


def _row(by: dict[str, str], parts: Sequence[Total], cost: Fraction, pue: float) -> UsageRow:
    energy = energy_of(parts)

    def hours(name: str) -> float:
        seconds: int = sum(getattr(one, name) for one in parts)
        return round(seconds / HOUR_S, 4)

    return UsageRow(
        by=by,
        runs=sum(one.runs for one in parts),
        gpu_hours=hours("gpu_s"),
        cpu_hours=hours("cpu_s"),
        lost_gpu_hours=hours("lost_gpu_s"),
        idle_gpu_hours=hours("idle_gpu_s"),
        waited_hours=hours("waited_s"),
        usd=usd(cents(cost)),
        energy_kwh=round(energy.kwh(pue), 4),
        energy_estimated=energy.estimated_j > 0,
    )


def _usage_rows(found: UsageOut) -> list[list[object]]:
    fields = [name for name in UsageRow.model_fields if name != "by"]
    names = list(found.rows[0].by) if found.rows else []
    return [[*names, *fields], *([*row.by.values(), *(getattr(row, f) for f in fields)] for row in found.rows)]


# --- the runs behind a figure


@router.get("/usage/runs")
async def runs(
    name: str,
    state: State,
    who: Anyone,
    start: When = "",
    end: When = "",
    team: Name = "",
    user: Name = "",
    partition: Name = "",
    gpu: Name = "",
    job: Annotated[int, Query(ge=0, le=2**53)] = 0,
    lossy: Annotated[bool, Query(description="only those that lost or idled, the dearest first")] = False,
    cursor: Annotated[str, Query(max_length=12, pattern=r"^\d*$")] = "",
    limit: Annotated[int, Query(ge=1, le=MOST_RUNS)] = 100,
) -> RunsOut:
    """Every run of every job, the latest first; of one job the first first."""
    place = await place_of(state, name)
    period, only = stretch(place, start, end), narrowed(place, who, team, user, partition, gpu)
    await fresh(state, place)
    after = int(cursor or 0)
    if job:
        found = [one for one in await state.store.runs_of(name, job) if only.teams is None or one.team in only.teams]
    else:
        span = Span(period.start, period.end, place.now)
        found = await state.store.runs(name, span, only, lossy=lossy, after=after, limit=limit + 1)
    cut = found if job else found[:limit]
    more = str(after + limit) if len(found) > len(cut) else ""
    return RunsOut(cluster=name, start=period.start, end=period.end, runs=[_run(one, place) for one in cut], next=more)


def _run(one: RunRow, place: Place) -> RunLine:
    elapsed = max(0, (one.end or place.now) - one.start)
    blind = max(0, elapsed - one.measured_s)
    estimated = estimate_j(one.gpu_type, one.gpus, one.cpus, blind)
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
        time_limit_s=one.time_limit_s,
        used_cpu_s=one.used_cpu_s,
        memory_mib=one.memory_mib,
        used_memory_mib=one.used_memory_mib,
        lost_s=one.lost_s,
        idle_s=one.idle_s,
        energy_kwh=round((one.energy_j + estimated) * place.costs.pue / KWH_J, 4),
        energy_estimated=estimated > 0,
    )


# --- invoices


@router.get("/invoice", response_model=InvoiceOut)
async def invoice_of(
    name: str,
    state: State,
    _: Operator,
    period: MonthText = "",
    format: Form = "json",  # noqa: A002
) -> InvoiceOut | Response:
    """Of one month: as it was closed, else as far as it has come."""
    place = await place_of(state, name)
    month = place.month(period)
    found = await reckoning.bill(state, place, month)
    out = invoice_out(place, month, found)
    if format == "csv":
        fields = list(LineOut.model_fields)
        rows = [fields, *([getattr(line, field) for field in fields] for line in out.lines)]
        return _csv(rows, f"{name}-{month.name}-invoice.csv")
    return out


@router.get("/invoices")
async def invoices(name: str, state: State, _: Operator) -> list[InvoiceOut]:
    """Those that are closed, the latest first."""
    place = await place_of(state, name)
    return [
        invoice_out(place, (kept := invoice.unpacked(row.document["invoice"])).period, Bill(_bare(kept), row))
        for row in reversed(await state.store.invoices(name))
    ]


@router.post("/invoice/close")
async def close(name: str, ask: CloseIn, state: State, who: Admin) -> InvoiceOut:
    """For good: what turns out later is a correction on the next one."""
    place = await place_of(state, name)
    month = place.month(ask.period)
    stale = await fresh(state, place)
    if stale:
        raise Refused(f"accounting of {name} can't be read: {stale}", hint="close it once that works again")
    row = await reckoning.close(state, place, month, who.person)
    await audit(state, who, "invoice.close", f"{name}/{month.name}", number=row.number)
    return invoice_out(place, month, await reckoning.bill(state, place, month))


def _bare(found: invoice.Invoice) -> chargeback.Chargeback:
    return chargeback.Chargeback(found, (), ())


def invoice_out(place: Place, period: Period, bill: Bill) -> InvoiceOut:
    row = bill.row
    return InvoiceOut(
        cluster=place.name,
        period=period.name,
        start=period.start,
        end=period.end,
        timezone=place.costs.timezone,
        state="closed" if row else "open",
        as_of=min(place.now, period.end),
        number=row.number if row else None,
        closed_at=row.closed_at if row else None,
        closed_by=row.closed_by if row else "",
        lines=[
            LineOut(
                what=line.what,
                group=line.group,
                billing=line.billing,
                usd_per_hour=line.usd_per_hour,
                hours=round(line.seconds / HOUR_S, 4),
                seconds=line.seconds,
                amount_usd=usd(line.amount_cents),
                of=line.of,
            )
            for line in bill.found.invoice.lines
        ],
        total_usd=usd(bill.found.invoice.total_cents),
    )


# --- chargeback


@router.get("/chargeback", response_model=ChargebackOut)
async def chargeback_of(
    name: str,
    state: State,
    who: Anyone,
    period: MonthText = "",
    format: Form = "json",  # noqa: A002
) -> ChargebackOut | Response:
    """Who pays which part of the month's invoice: its teams and what is unassigned sum to it to the cent."""
    place = await place_of(state, name)
    month, seen = place.month(period), teams_seen(place, who)
    await fresh(state, place)
    found = chargeback_out(place, month, await reckoning.bill(state, place, month), seen)
    if format == "csv":
        fields = list(TeamCostOut.model_fields)
        rows: list[list[object]] = [list(fields), *([getattr(one, f) for f in fields] for one in found.teams)]
        rows += [
            [f"({one.what}{': ' + one.centre if one.centre else ''})", *[""] * 6, one.usd] for one in found.unassigned
        ]
        return _csv(rows, f"{name}-{month.name}-chargeback.csv")
    return found


def chargeback_out(place: Place, period: Period, bill: Bill, seen: tuple[str, ...] | None) -> ChargebackOut:
    found = bill.found
    return ChargebackOut(
        cluster=place.name,
        period=period.name,
        start=period.start,
        end=period.end,
        state="closed" if bill.row else "open",
        as_of=min(place.now, period.end),
        rules={"idle": place.rules.idle, "spare": place.rules.spare, "broken": place.rules.broken},
        invoice_total_usd=usd(found.invoice.total_cents) if seen is None else None,
        teams=[
            TeamCostOut(
                team=one.team,
                total_usd=usd(one.total_cents),
                **{f"{column}_usd": usd(one.cents[column]) for column in chargeback.COLUMNS},
            )
            for one in found.teams
            if seen is None or one.team in seen
        ],
        unassigned=[UnassignedOut(what=one.what, centre=one.centre, usd=usd(one.cents)) for one in found.unassigned]
        if seen is None
        else [],
    )


# --- budgets


@router.get("/budgets")
async def budgets(name: str, state: State, who: Anyone) -> list[BudgetOut]:
    """Of the teams that one sees: what is used in this period, and what is left."""
    place = await place_of(state, name)
    seen = teams_seen(place, who)
    await fresh(state, place)
    return [one for one in await budgets_of(state, place) if seen is None or one.team in seen]


async def budgets_of(state: AppState, place: Place) -> list[BudgetOut]:
    if place.cluster is None:
        return []
    held_back = await state.store.capped_teams(place.name)
    return [
        BudgetOut(
            team=one.team,
            unit=one.budget.unit,
            per=one.budget.per,
            limit=float(one.budget.limit),
            used=float(one.used),
            left=float(one.left),
            warn_at=float(one.budget.limit * Decimal(str(one.budget.warn))),
            level=one.level.value,
            cap=one.budget.cap,
            held_back=one.team in held_back,
            start=one.start,
        )
        for one in await reckoning.budget_standings(state, place.cluster, place.now)
    ]


# --- from the beginning again


@router.post("/ledger/rebuild")
async def rebuild(name: str, state: State, who: Admin) -> CollectedOut:
    """Accounting is read again from its beginning; what was measured and closed stays."""
    place = await place_of(state, name)
    if place.cluster is None:
        raise Refused(f"{name} is down: its accounting can't be read", hint="headway apply brings it back")
    await state.store.forget_runs(name)
    await state.collected(place.cluster, max_age_s=0)
    await audit(state, who, "ledger.rebuild", name)
    return CollectedOut(collected_to=(await state.store.mark(name)).collected_to)


def _csv(rows: Iterable[Iterable[object]], file: str) -> Response:
    """A cell that a spreadsheet would take for a formula is quoted: names come from people."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for row in rows:
        writer.writerow([f"'{cell}" if isinstance(cell, str) and cell[:1] in "=+-@" and cell else cell for cell in row])
    headers = {"content-disposition": f'attachment; filename="{file}"'}
    return Response(text.getvalue(), media_type="text/csv", headers=headers)
