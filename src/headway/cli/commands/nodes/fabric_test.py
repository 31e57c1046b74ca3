"""test fabric: the bandwidth between nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from headway.cli import common
from headway.cli.common import ClusterName
from headway.cli.output import formatting, tables
from headway.cli.output.operation_progress import follow_operation
from headway.cli.output.output_formats import Format, Output, print_json
from headway.domain.fabric.fabric_matrix import fabric_matrix

if TYPE_CHECKING:
    from headway.schemas.nodes.fabric_tests import FabricTestOut

app = typer.Typer(
    help="Measure the fabric between idle nodes.", no_args_is_help=True, rich_markup_mode=None, add_completion=False
)


@app.callback()
def _group() -> None: ...


@app.command("fabric")
def fabric(
    cluster: ClusterName = None,
    nodes: Annotated[
        str, typer.Option("--nodes", metavar="LIST", help="Nodes to measure, as a host list (default: all idle nodes).")
    ] = "",
    last: Annotated[bool, typer.Option("--last", help="Show the latest result; measure nothing.")] = False,
    output: Output = Format.table,
) -> None:
    """Measure all-reduces between idle nodes, and name the node or link that is slow.

    No job waits for the test: a node where a job starts leaves it. The exit status is 1 if something is slow.

    headway test fabric lab
    headway test fabric lab --nodes lab-1-[1-4]
    headway test fabric lab --last"""
    api = common.connect()
    name = common.choose_cluster(api, cluster)
    if not last:
        follow_operation(api, api.nodes.test_fabric(name, nodes), quiet=output is Format.json)
    found = api.nodes.fabric_test(name)
    if output is Format.json:
        print_json(found)
    else:
        _print_result(found, last=last)
    if found.findings:
        raise typer.Exit(1)


def _print_result(found: FabricTestOut, *, last: bool) -> None:
    common.print_line()
    if last:
        common.print_line(f"measured {formatting.local_time(found.at)}")
    matrix = fabric_matrix(found.measurements, found.leaves)
    columns = [tables.Column("GB/s"), *(tables.Column(name, right=True) for name in matrix.names)]
    rows: list[list[tables.Cell]] = []
    for one in matrix.names:
        row: list[tables.Cell] = [one]
        for other in matrix.names:
            cell = matrix.cell(one, other)
            row.append(
                "" if cell is None else (f"{cell.gb_s:.3g}{'!' if cell.slow else ''}", "bad" if cell.slow else "")
            )
        rows.append(row)
    tables.print_table(columns, rows)
    if matrix.by_leaf:
        common.print_line("leaf switches; each figure is that of their slowest pair")
    for group in [one for one in found.measurements if one.kind == "all"]:
        words = f"{len(group.nodes)} nodes together: {group.fault or f'{group.gb_s:.3g} GB/s'}"
        common.print_line(words + (", slow" if group.slow else ""))
    for skipped in found.skipped:
        common.print_line(f"left out: {skipped.node}: {skipped.why}")
    if found.simulated:
        common.print_line("SIMULATED GPUs: figures are those of gloo on the CPU.")
    common.print_line()
    for finding in found.findings:
        incident = f" (incident {finding.incident})" if finding.incident else ""
        common.print_line(f"slow: {finding.what}{incident}")
        for line in finding.how:
            common.print_line(f"  {line}")
    for words in found.unclear:
        common.print_line(f"unclear: {words}")
    for mismatch in found.mismatches:
        common.print_line(f"mismatch: {mismatch.what}")
        common.print_line(f"  {mismatch.remedy}")
    if found.stopped:
        common.print_line(f"it ended early: {found.stopped}")
    if not found.findings:
        common.print_line(f"{found.cluster}: nothing slow was named, in {found.seconds:.0f} s")
