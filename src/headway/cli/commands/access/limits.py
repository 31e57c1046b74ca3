"""limits: shows a person's own limits on a cluster, and what they use of them."""

from __future__ import annotations

from headway.cli import common
from headway.cli.common import ClusterName
from headway.cli.output import tables
from headway.cli.output.output_formats import Format, Output, print_json
from headway.domain.dataset import format_bytes


def limits(cluster: ClusterName = None, output: Output = Format.table) -> None:
    """Show your own limits on a cluster, and what you use of them.

    headway limits lab"""
    api = common.connect()
    found = api.clusters.limits(common.choose_cluster(api, cluster))
    if output is Format.json:
        print_json(found)
        return
    if found.stale:
        common.print_note(f"your use can't be read: {found.stale}")
    if not found.limits:
        common.print_note(f"{found.user or 'you'} has no limits of its own on {found.cluster}")
        return
    columns = [
        tables.Column("WHERE"), tables.Column("WHAT"), tables.Column("USED", right=True),
        tables.Column("LIMIT", right=True),
    ]  # fmt: skip
    rows: list[list[tables.Cell]] = [
        [row.where, row.what, _amount(row.used, row.unit), _amount(row.limit, row.unit)] for row in found.limits
    ]
    tables.print_table(columns, rows)


def _amount(value: float | None, unit: str) -> str:
    if value is None:
        return "-"
    return format_bytes(int(value)) if unit == "bytes" else f"{value:,.15g}"
