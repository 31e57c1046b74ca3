"""Usage, runs, node states, invoices, chargebacks and prices of clouds as CSV, for API and commands. The columns are the
fields of the models in this folder: a new field is a new column."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Decimal
from functools import singledispatch

from headway.schemas.base import ResponseModel
from headway.schemas.billing.chargeback import ChargebackOut, TeamCostOut
from headway.schemas.billing.invoices import InvoiceLineOut, InvoiceOut
from headway.schemas.billing.node_states import NodeStateOut, NodeStatesOut
from headway.schemas.billing.offers import OfferOut, OffersOut
from headway.schemas.billing.usage import RunLine, RunsOut, UsageOut, UsageRow
from headway.schemas.csv_cells import csv_line, safe_cell

Row = list[object]


@singledispatch
def to_csv(found: ResponseModel) -> str:
    """Returns the report as CSV, with the column names in the first line. Raises TypeError for a report without a
    table."""
    raise TypeError(f"{type(found).__name__} has no spreadsheet form")


@to_csv.register
def _usage(found: UsageOut) -> str:
    fields = [name for name in UsageRow.model_fields if name != "by"]
    names = list(found.rows[0].by) if found.rows else []
    rows = ([*map(_cell, row.by.values()), *_values(row, fields)] for row in found.rows)
    return _lines([[*names, *fields], *rows])


@to_csv.register
def _runs(found: RunsOut) -> str:
    return _lines(_table(RunLine, found.runs))


@to_csv.register
def _nodes(found: NodeStatesOut) -> str:
    return _lines(_table(NodeStateOut, found.states))


@to_csv.register
def _invoice(found: InvoiceOut) -> str:
    return _lines(_table(InvoiceLineOut, found.lines))


@to_csv.register
def _chargeback(found: ChargebackOut) -> str:
    """Returns the chargeback as CSV. Each unassigned cost is a row of its own, with its name in brackets."""
    rows = _table(TeamCostOut, found.teams)
    blank = [""] * (len(rows[0]) - 2)
    rows += [
        [f"({cost.what}{': ' + cost.centre if cost.centre else ''})", *blank, _money(cost.usd)]
        for cost in found.unassigned
    ]
    return _lines(rows)


@to_csv.register
def _offers(found: OffersOut) -> str:
    return _lines(_table(OfferOut, found.offers))


def _table(kind: type[ResponseModel], found: Iterable[ResponseModel]) -> list[Row]:
    fields = list(kind.model_fields)
    return [list(fields), *(_values(model, fields) for model in found)]


def _values(model: ResponseModel, fields: Sequence[str]) -> Row:
    return [_cell(getattr(model, field)) for field in fields]


def _cell(value: object) -> object:
    """Returns the value of a cell. Amounts stay numbers, so that a spreadsheet can sum them."""
    return _money(value) if isinstance(value, Decimal) else safe_cell(value)


def _money(amount: Decimal) -> str:
    """Returns the amount with two decimals, or with more if the amount has more: 0.70, 0.0125."""
    return f"{amount:.2f}" if amount == round(amount, 2) else str(amount)


def _lines(rows: Iterable[Row]) -> str:
    return "".join(csv_line(row).removesuffix("\r\n") + "\n" for row in rows)
