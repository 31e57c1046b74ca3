"""scale: changes the number of nodes."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from headway.cli import common
from headway.cli.options.deadline_option import Deadline, parse_deadline
from headway.cli.output import changeset_text, formatting
from headway.cli.output.operation_progress import follow_to_end
from headway.cli.output.output_formats import Format, Output, print_json


def scale(
    words: Annotated[
        list[str],
        typer.Argument(metavar="[CLUSTER] NODES | GROUP=NODES...", help="Number of nodes, in total or by group."),
    ],
    deadline: Deadline = "",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would change, change nothing.")] = False,
    output: Output = Format.table,
) -> None:
    """Change the number of nodes.

    Added nodes take jobs as soon as they are ready. Idle nodes are removed first, nodes with jobs only with --deadline; other
    jobs are not affected. Slurm is not restarted up to `max` nodes of the cluster file.

    headway scale lab 8
    headway scale lab gpu=8 cpu=2"""
    cluster, groups = _parse_counts(words)
    deadline_s = parse_deadline(deadline)
    api = common.connect()
    name = common.choose_cluster(api, cluster)
    quiet = output is Format.json
    changes = api.clusters.plan_scale(name, groups)
    if not quiet or dry_run:
        changeset_text.print_changeset(changes, output)
    if dry_run:
        return
    if changes.disturbing:
        common.confirm(
            "Continue?",
            yes=yes,
            refusal=f"{formatting.plural(changes.disturbing, 'change')} would disturb jobs or sessions",
        )
    operation = api.clusters.scale(
        name, groups, digest=changes.digest, confirmed=bool(changes.disturbing), deadline_s=deadline_s
    )
    final = follow_to_end(api, operation, quiet=quiet)
    if quiet:
        print_json(final)
        return
    took = f" in {final.finished_at - final.created_at:.1f} s" if final.finished_at else ""
    common.print_line(f"{name} is scaled{took}")
    common.print_line("  change the number in the cluster file too, or the next apply restores the old number")


def _parse_counts(words: list[str]) -> tuple[str | None, dict[str, int]]:
    """Returns (cluster or None, group -> nodes); the group is "" for a bare number."""
    name, rest = common.split_cluster(words) if "=" not in words[0] else (None, words)
    groups: dict[str, int] = {}
    for word in rest:
        group, _, number = word.rpartition("=")
        if not re.fullmatch(r"\d{1,5}", number) or group in groups:
            raise typer.BadParameter(f"{word!r} is not a number of nodes; give for example 8 or gpu=8")
        groups[group] = int(number)
    if not groups:
        raise typer.BadParameter("give the number of nodes, for example headway scale lab 8")
    return name, groups
