"""Invoices (for operators and admins) and chargeback (each team sees its own part)."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from headway.api.auth.dependencies import Admin, Anyone, Operator, State
from headway.api.http.billing_parameters import CSV_OR_JSON, MonthText, ReportFormat, csv_response
from headway.schemas.base import API_PREFIX
from headway.schemas.billing.chargeback import ChargebackOut
from headway.schemas.billing.invoices import CloseIn, InvoiceOut
from headway.schemas.billing.usage import CollectedOut
from headway.services.billing import month_closing
from headway.services.billing.invoice_views import load_chargeback, load_closed_invoices, load_invoice
from headway.services.billing.ledger import ledger_refresh
from headway.services.billing.ledger.ledger_refresh import load_report_scope
from headway.services.billing.reports.report_scope import load_billed_cluster

router = APIRouter(prefix=f"{API_PREFIX}/clusters/{{name}}", tags=["costs"])


@router.get("/invoice", response_model=InvoiceOut, responses=CSV_OR_JSON)
async def invoice_of(
    name: str,
    state: State,
    _: Operator,
    period: MonthText = "",
    format: ReportFormat = "json",  # noqa: A002
) -> InvoiceOut | Response:
    """Returns a month's invoice: the closed one, otherwise the costs up to now."""
    billed = await load_billed_cluster(state, name)
    month = billed.month(period)
    report = await load_invoice(state, billed, month)
    return csv_response(report, f"{name}-{month.name}-invoice") if format == "csv" else report


@router.get("/invoices")
async def list_invoices(name: str, state: State, _: Operator) -> list[InvoiceOut]:
    """Returns the closed invoices, the latest first."""
    return await load_closed_invoices(state, await load_billed_cluster(state, name))


@router.post("/invoice/close", name="close")
async def close_month(name: str, body: CloseIn, state: State, who: Admin) -> InvoiceOut:
    """Closes a month's invoice permanently. Later changes become corrections on the next one."""
    billed = await load_billed_cluster(state, name)
    month = billed.month(body.period)
    await month_closing.close_month(state, who, billed, month)
    return await load_invoice(state, billed, month)


@router.get("/chargeback", response_model=ChargebackOut, responses=CSV_OR_JSON)
async def chargeback_of(
    name: str,
    state: State,
    who: Anyone,
    period: MonthText = "",
    format: ReportFormat = "json",  # noqa: A002
) -> ChargebackOut | Response:
    """Returns which team pays which part of a month's invoice. The parts and the unassigned costs add up to the
    invoice's net sum to the cent."""
    scope = await load_report_scope(state, name, who, period)
    report = await load_chargeback(state, scope)
    return csv_response(report, f"{name}-{scope.month.name}-chargeback") if format == "csv" else report


@router.post("/ledger/rebuild", name="rebuild")
async def rebuild_ledger(name: str, state: State, who: Admin) -> CollectedOut:
    """Reads Slurm's accounting again from its beginning. Measurements and closed invoices are kept."""
    return await ledger_refresh.rebuild_ledger(state, who, await load_billed_cluster(state, name))
