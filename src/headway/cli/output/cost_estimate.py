"""The answer of `headway run --estimate` and `headway submit --estimate`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headway.cli import common
from headway.cli.output import formatting, tables

if TYPE_CHECKING:
    from headway.schemas.billing.cost_estimate import EstimateOut


def print_estimate(found: EstimateOut) -> None:
    """Prints the answer of `submit --estimate` and `run --estimate`: price, start and remaining budget."""
    if found.unread:
        price = f"unknown; options that could not be interpreted: {', '.join(found.unread)}"
    elif found.usd is None:
        price = f"{formatting.usd(found.usd_per_hour or 0)} USD an hour; the total is unknown without a time limit"
    else:
        limit = formatting.duration(found.time_limit_s or 0)
        tasks = f"{found.tasks:,} tasks of " if found.tasks > 1 else ""
        most = f"at most {formatting.usd(found.usd)} USD"
        price = f"{most}: {tasks}{found.gpus} GPUs for {limit} ({found.gpu_hours:,.2f} GPU-hours)"
    place = f" on {found.expected_nodes}" if found.expected_nodes else ""
    facts: list[tuple[str, tables.Cell]] = [
        ("price", price),
        ("start", f"{formatting.local_time(found.start)}{place}" if found.start else found.waits or "unknown to Slurm"),
    ]
    if found.budget is not None:
        unit = "USD" if found.budget.unit == "usd" else "GPU-hours"
        left = (
            f"{found.budget.left:,.2f} of {found.budget.limit:,.2f} {unit} a {found.budget.per} remain for {found.team}"
        )
        facts.append(("budget", (left, formatting.budget_style(found.budget.level))))
    tables.print_facts(facts)
    if found.warning:
        common.print_note(found.warning)
