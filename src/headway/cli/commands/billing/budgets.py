"""budgets: the budgets of teams."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headway.cli import common
from headway.cli.common import ClusterName
from headway.cli.output import formatting, tables
from headway.cli.output.output_formats import Format, Output, print_for_programs, print_rows

if TYPE_CHECKING:
    from headway.schemas.billing.budgets import BudgetOut


def budgets(cluster: ClusterName = None, output: Output = Format.table) -> None:
    """Show the budgets of teams: limit, used, left."""
    api = common.connect()
    name = common.choose_cluster(api, cluster)
    found = api.billing.budgets(name)
    if print_for_programs(found, output):
        return
    if not found:
        common.print_line(f"no visible team of {name} has a budget; set teams.NAME.budget in its file")
        return
    columns = [
        tables.Column("TEAM"),
        tables.Column("USED", right=True),
        tables.Column("OF", right=True),
        tables.Column("LEFT", right=True),
        tables.Column("UNIT"),
        tables.Column("PER"),
        tables.Column("UNTIL", drop_order=1),
        tables.Column("STATE"),
    ]
    rows: list[list[tables.Cell]] = [
        [
            budget.team, f"{budget.used:,.2f}", f"{budget.limit:,.2f}", f"{budget.left:,.2f}", budget.unit, budget.per,
            formatting.local_time(budget.end), (_state(budget), formatting.budget_style(budget.level)),
        ]
        for budget in found
    ]  # fmt: skip
    print_rows(columns, rows)


def _state(budget: BudgetOut) -> str:
    return "jobs are held" if budget.held_back else {"ok": "ok", "warn": "almost spent", "over": "spent"}[budget.level]
