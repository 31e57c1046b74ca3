"""invoice, chargeback: print the invoice of a month, and each team's part."""

from __future__ import annotations

from typing import Annotated

import typer

from headway.cli import common
from headway.cli.common import ClusterName
from headway.cli.options.month_option import Month
from headway.cli.output import formatting, tables
from headway.cli.output.output_formats import ReportFormat, ReportOutput, print_for_programs, print_rows
from headway.errors import Refused

_COLUMNS = ("productive", "lost", "allocated_idle", "idle", "spare", "broken", "fixed")


def invoice(
    cluster: ClusterName = None,
    period: Month = "",
    close: Annotated[
        bool, typer.Option("--close", help="Close the month permanently after its end (admins only).")
    ] = False,
    output: ReportOutput = ReportFormat.table,
) -> None:
    """Show a month's invoice: machines billed by the second, spares listed separately.

    headway invoice lab --period 2026-10 --close"""
    api = common.connect()
    name = common.choose_cluster(api, cluster)
    if close and not period:
        raise Refused("give the month to close", hint="headway invoice --period 2026-10 --close")
    found = api.billing.close_invoice(name, period) if close else api.billing.invoice(name, period)
    if print_for_programs(found, output):
        return
    state = (
        f"closed as invoice {found.number}"
        if found.state == "closed"
        else f"open, until {formatting.local_time(found.as_of)}"
    )
    common.print_line(f"{name} {found.period} ({found.timezone}): {state}")
    columns = [
        tables.Column("WHAT"), tables.Column("GROUP"), tables.Column("BILLING"), tables.Column("HOURS", right=True),
        tables.Column("USD AN HOUR", right=True), tables.Column("USD", right=True), tables.Column("OF"),
    ]  # fmt: skip
    rows: list[list[tables.Cell]] = [
        [
            line.what, line.group, line.billing, f"{line.hours:,.4f}", f"{line.usd_per_hour:,.4f}",
            formatting.usd(line.amount_usd), line.of,
        ]
        for line in found.lines
    ]  # fmt: skip
    rows.append(["total", "", "", "", "", (formatting.usd(found.total_usd), "bold"), ""])
    for tax in found.taxes:
        part = "" if tax.net_usd == found.total_usd else f" of {formatting.usd(tax.net_usd)}"
        rows.append([f"tax {tax.tax_percent:g} %{part}", "", "", "", "", formatting.usd(tax.tax_usd), ""])
    if found.taxes:
        rows.append(["due", "", "", "", "", (formatting.usd(found.due_usd), "bold"), ""])
    print_rows(columns, rows)


def chargeback(cluster: ClusterName = None, period: Month = "", output: ReportOutput = ReportFormat.table) -> None:
    """Split a month's invoice among teams, to the cent.

    headway chargeback lab --period 2026-10 -o json"""
    api = common.connect()
    found = api.billing.chargeback(common.choose_cluster(api, cluster), period)
    if print_for_programs(found, output):
        return
    fields = [
        f"{column}_usd" for column in _COLUMNS if column != "fixed" or any(team.fixed_usd for team in found.teams)
    ]
    blank = [""] * len(fields)
    fields.append("total_usd")
    columns = [
        tables.Column("TEAM", shrink=True),
        *(tables.Column(field.removesuffix("_usd").replace("_", " ").upper(), right=True) for field in fields),
    ]
    rows: list[list[tables.Cell]] = [
        [team.team or "no team", *(formatting.usd(getattr(team, field)) for field in fields)] for team in found.teams
    ]
    rows += [
        [(f"({cost.what}{', ' + cost.centre if cost.centre else ''})", "dim"), *blank, formatting.usd(cost.usd)]
        for cost in found.unassigned
    ]
    if found.invoice_total_usd is not None:
        rows.append(["invoice", *blank, (formatting.usd(found.invoice_total_usd), "bold")])
    print_rows(columns, rows)
    if found.state == "open":
        common.print_note(f"{found.period} is open: these figures may still change")
