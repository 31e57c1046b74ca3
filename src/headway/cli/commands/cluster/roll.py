"""roll: replaces the node image, node by node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from headway.cli import common
from headway.cli.common import ClusterName
from headway.cli.options.deadline_option import By, parse_by
from headway.cli.output import changeset_text, formatting
from headway.cli.output.operation_progress import follow_to_end
from headway.cli.output.output_formats import Format, Output, print_json

if TYPE_CHECKING:
    from headway.schemas.operations import OperationOut


def roll(
    cluster: ClusterName = None,
    by: By = "",
    back: Annotated[
        bool, typer.Option("--back", help="Return to the previous image, if it has not been removed.")
    ] = False,
    head: Annotated[
        bool, typer.Option("--head", help="Update the head too, after the nodes; sessions on it end.")
    ] = False,
    stop: Annotated[bool, typer.Option("--stop", help="Stop a waiting roll; updated nodes stay updated.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show which nodes would be rebuilt, and why; change nothing.")
    ] = False,
    output: Output = Format.table,
) -> None:
    """Rebuild a cluster's nodes from the current node image, while jobs run.

    One node is rebuilt first and must pass its tests; if it fails, the roll stops and no other node is changed. Other nodes
    follow when they are idle: without --by no job is requeued. Interrupting this command does not stop the roll; --stop does.

    headway roll lab --dry-run
    headway roll lab --by 2h
    headway roll lab --back"""
    api = common.connect()
    name = common.choose_cluster(api, cluster)
    quiet = output is Format.json
    if stop:
        _end(
            follow_to_end(api, api.clusters.roll(name, stop=True), quiet=quiet),
            output,
            f"the roll of {name} has stopped",
        )
        return
    by_s = parse_by(by)
    changes = api.clusters.plan_roll(name, back=back, head=head, by_s=by_s)
    if dry_run or not quiet:
        changeset_text.print_changeset(changes, output)
    if dry_run:
        return
    if changes.disturbing:
        common.confirm(
            "Continue?", yes=yes, refusal=f"{formatting.plural(changes.disturbing, 'machine')} would be rebuilt"
        )
    operation = api.clusters.roll(name, back=back, head=head, by_s=by_s)
    _end(follow_to_end(api, operation, quiet=quiet), output, f"{name} is rolled")


def _end(final: OperationOut, output: Format, words: str) -> None:
    if output is Format.json:
        print_json(final)
        return
    took = f" in {final.finished_at - final.created_at:.1f} s" if final.finished_at else ""
    common.print_line(f"{words}{took}")
