"""Invoices and who pays which part of them: invoices are for operators and admins, of its part every team sees its own."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from headway.api.auth.dependencies import Admin, Anyone, Operator, State
from headway.api.routers.billing.usage import HOUR_S, Form, MonthText, fresh, looked, sheet
from headway.billing import chargeback, invoice
from headway.billing.money import usd
from headway.errors import Refused
from headway.schemas.billing import (
    ChargebackOut,
    CloseIn,
    CollectedOut,
    InvoiceOut,
    LineOut,
    TeamCostOut,
    UnassignedOut,
)
from headway.services.authorization import write_audit_line
from headway.services.billing import invoicing
from headway.services.billing.invoicing import Bill, Look, Place, place_of

router = APIRouter(prefix="/clusters/{name}", tags=["costs"])


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
    found = await invoicing.bill(state, place, month)
    out = invoice_out(place, found)
    return sheet(out, f"{name}-{month.name}-invoice") if format == "csv" else out


@router.get("/invoices")
async def invoices(name: str, state: State, _: Operator) -> list[InvoiceOut]:
    """Those that are closed, the latest first."""
    place = await place_of(state, name)
    return [
        invoice_out(place, Bill(_bare(invoice.unpacked(row.document["invoice"])), row))
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
    row = await invoicing.close(state, place, month, who.person)
    await write_audit_line(state, who, "invoice.close", f"{name}/{month.name}", number=row.number)
    return invoice_out(place, await invoicing.bill(state, place, month))


def _bare(found: invoice.Invoice) -> chargeback.Chargeback:
    return chargeback.Chargeback(found, (), ())


def invoice_out(place: Place, bill: Bill) -> InvoiceOut:
    row, period = bill.row, bill.period
    return InvoiceOut(
        cluster=place.name,
        period=period.name,
        start=period.start,
        end=period.end,
        timezone=bill.timezone(place),
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
    look = await looked(state, name, who, period)
    found = chargeback_out(look, await invoicing.bill(state, look.place, look.month))
    return sheet(found, f"{name}-{look.month.name}-chargeback") if format == "csv" else found


def chargeback_out(look: Look, bill: Bill) -> ChargebackOut:
    place, period, seen, found = look.place, bill.period, look.seen, bill.found
    return ChargebackOut(
        cluster=place.name,
        period=period.name,
        start=period.start,
        end=period.end,
        state="closed" if bill.row else "open",
        as_of=min(place.now, period.end),
        rules=bill.rules(place),
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


# --- from the beginning again


@router.post("/ledger/rebuild")
async def rebuild(name: str, state: State, who: Admin) -> CollectedOut:
    """Accounting is read again from its beginning; what was measured and closed stays."""
    place = await place_of(state, name)
    if place.cluster is None:
        raise Refused(f"{name} is down: its accounting can't be read", hint="headway apply brings it back")
    await state.store.forget_runs(name)
    await state.collected(place.cluster, max_age_s=0)
    await write_audit_line(state, who, "ledger.rebuild", name)
    return CollectedOut(collected_to=(await state.store.mark(name)).collected_to)
