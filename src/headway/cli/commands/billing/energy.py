"""energy: kilowatt-hours by team."""

from __future__ import annotations

from headway.cli import common
from headway.cli.common import ClusterName
from headway.cli.options.month_option import Month
from headway.cli.output import formatting, tables
from headway.cli.output.output_formats import Format, Output, print_for_programs, print_rows


def energy(cluster: ClusterName = None, period: Month = "", output: Output = Format.table) -> None:
    """Report kilowatt-hours by team, measured or estimated, including the site's overhead (PUE)."""
    api = common.connect()
    found = api.billing.energy(common.choose_cluster(api, cluster), period)
    if print_for_programs(found, output):
        return
    columns = [
        tables.Column("TEAM"),
        *(tables.Column(word, right=True) for word in ("KWH", "MEASURED", "ESTIMATED", "USD")),
    ]
    rows: list[list[tables.Cell]] = [
        [
            who, f"{energy_out.kwh:,.2f}", f"{energy_out.measured_kwh:,.2f}", f"{energy_out.estimated_kwh:,.2f}",
            "" if energy_out.usd is None else formatting.usd(energy_out.usd),
        ]
        for who, energy_out in (*((team.team or "no team", team) for team in found.teams), ("all", found.total))
    ]  # fmt: skip
    print_rows(columns, rows)
    common.print_note(f"PUE {found.pue:g}: energy of the site divided by energy of the machines")
    if found.simulated:
        common.print_note("power is of SIMULATED GPUs")
