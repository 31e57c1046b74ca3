"""down: removes a cluster's machines and keeps its data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from headway.cli import common, ssh_config_files
from headway.cli.common import ClusterName
from headway.cli.output import formatting
from headway.cli.output.operation_progress import follow_operation
from headway.cli.output.output_formats import Format, Output, print_json

if TYPE_CHECKING:
    from headway.schemas.clusters import ClusterOut


def down(
    cluster: ClusterName = None,
    delete_data: Annotated[
        bool, typer.Option("--delete-data", help="Delete home, scratch and accounting too; they can't be recovered.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    output: Output = Format.table,
) -> None:
    """Remove a cluster's machines and network. Home, scratch and accounting are kept for the next apply of the same name,
    unless --delete-data is given; it asks for the cluster's name."""
    api = common.connect()
    name = common.choose_cluster(api, cluster)
    quiet = output is Format.json
    if not yes:
        message = _what_happens(api.clusters.get(name), delete_data=delete_data)
        if common.is_interactive():
            common.print_line(message)
        if delete_data:
            common.confirm_by_name(f"Type {name} to delete its data", name, refusal=message)
        else:
            common.confirm(f"Take {name} down?", yes=False, refusal=message)
    operation = api.clusters.down(name, delete_data=delete_data)
    # Now, not at the end: the operation continues when this command is interrupted.
    ssh_config_files.remove_ssh_config(name)
    final = follow_operation(api, operation, quiet=quiet)
    if quiet:
        print_json(final)
        return
    common.print_line(f"{name} is down")
    for kept in final.kept:
        common.print_line(f"  kept {kept}")
    if final.kept:
        common.print_line(
            f"  the next headway apply of {name} uses them; headway down {name} --delete-data deletes them"
        )


def _what_happens(c: ClusterOut, *, delete_data: bool) -> str:
    machines = formatting.plural(1 + c.nodes + c.spares, "machine")
    jobs = (
        f", and {formatting.plural(c.jobs_running + c.jobs_pending, 'job')}" if c.jobs_running + c.jobs_pending else ""
    )
    data = "home, scratch and accounting are DELETED" if delete_data else "home, scratch and accounting are kept"
    return f"{machines} of {c.name} will be removed{jobs}; {data}"
