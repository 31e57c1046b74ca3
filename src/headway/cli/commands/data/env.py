"""env add|ls|show|rm: software environments, which never change once they are built."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headway.cli import common
from headway.cli.output import formatting, tables
from headway.cli.output.operation_progress import follow_operation
from headway.cli.output.output_formats import Format, Output, print_json
from headway.domain.dataset import format_bytes
from headway.domain.environment import NAME_PATTERN
from headway.errors import NotFound, Refused

if TYPE_CHECKING:
    from headway.schemas.storage.environments import EnvironmentOut
    from headway.sdk.client import Client

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    no_args_is_help=True,
    help="Manage software environments: Python packages for jobs.",
)


def _words(metavar: str, text: str) -> object:
    return typer.Argument(metavar=metavar, help=text, autocompletion=common.complete_cluster)


@app.command("add")
def add(
    words: Annotated[
        list[str], _words("[CLUSTER] NAME", "Cluster (default: the only one), then the environment's name.")
    ],
    requirements: Annotated[
        Path,
        typer.Option(
            "--requirements",
            "-r",
            metavar="FILE",
            help="requirements.txt, pyproject.toml, or uv.lock next to its pyproject.toml.",
        ),
    ],
    partition: Annotated[
        str, typer.Option("--partition", "-p", metavar="PARTITION", help="Partition of the job that builds it.")
    ] = "",
    team: Annotated[str, typer.Option("--team", metavar="TEAM", help="Team that is charged for that job.")] = "",
    user: Annotated[str, typer.Option("--as", metavar="USER", help="Build as this user (admins only).")] = "",
    output: Output = Format.table,
) -> None:
    """Build a version of an environment: exact packages, on every machine at /environments/NAME/VERSION.

    uv chooses the packages and installs them by their hashes, in an ordinary job of yours. A version never changes; if
    the packages are the same as those of an earlier version, that one is kept.

    headway env add NAME --requirements requirements.txt"""
    cluster, name = _split(words, "NAME")
    api = common.connect()
    picked = common.choose_cluster(api, cluster)
    begun = api.environments.add(
        picked, name, common.expand_home(requirements), partition=partition, team=team, user=user
    )
    final = follow_operation(api, begun, quiet=output is Format.json)
    if output is Format.json:
        print_json(final)
        return
    for place in final.kept:
        common.print_line(place)


@app.command("ls")
def list_all(cluster: common.ClusterName = None, output: Output = Format.table) -> None:
    """List versions: Python, packages, size, number of jobs that used it.

    headway env ls"""
    api = common.connect()
    picked = common.choose_cluster(api, cluster)
    found = api.environments.list(picked)
    if output is Format.json:
        print_json(found)
        return
    if not found:
        common.print_line(f"no environment on {picked}")
        return
    columns = [
        tables.Column("ENVIRONMENT"), tables.Column("PYTHON"), tables.Column("PACKAGES", right=True),
        tables.Column("SIZE", right=True), tables.Column("BUILT"), tables.Column("BY", drop_order=3),
        tables.Column("JOBS", right=True), tables.Column("FROM", drop_order=1),
        tables.Column("PATH", shrink=True, min_width=18, drop_order=2),
    ]  # fmt: skip
    tables.print_table(columns, [_row(one) for one in found])
    if spare := [one for one in found if one.removable]:
        names = ", ".join(f"{one.name}@{one.version}" for one in spare)
        size = format_bytes(sum(one.bytes for one in spare))
        common.print_note(
            f"not needed any more, {size}: {names}; unless a script loads them, remove them: "
            f"headway env rm {picked} NAME@VERSION"
        )


@app.command("show")
def show(
    words: Annotated[list[str], _words("[CLUSTER] NAME[@VERSION]", "Environment (default version: the latest).")],
    output: Output = Format.table,
) -> None:
    """Show a version and its lock: every package with version and hashes.

    headway env show NAME@1"""
    cluster, which = _split(words, "NAME[@VERSION]")
    api = common.connect()
    picked = common.choose_cluster(api, cluster)
    found = api.environments.get(picked, *_version(api, picked, which))
    if output is Format.json:
        print_json(found)
        return
    common.print_note(
        f"{found.name}@{found.version} at {found.path}: Python {found.python}, {found.packages} packages, "
        f"{format_bytes(found.bytes)}, "
        f"from the {found.source} by {found.person}{f' in job {found.job_id}' if found.job_id else ''}, "
        f"{formatting.local_time(found.at)}; lock sha256 {found.digest}"
    )
    common.print_line(found.lock.rstrip())


@app.command("rm")
def remove(
    words: Annotated[list[str], _words("[CLUSTER] NAME@VERSION", "Version of an environment.")],
    force: Annotated[
        bool, typer.Option("--force", help="Remove it even if jobs used it; their lineage then records the removal.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    output: Output = Format.table,
) -> None:
    """Remove a version. Refused while a job's lineage names it. Its number is not reused.

    headway env rm NAME@1"""
    cluster, which = _split(words, "NAME@VERSION")
    if "@" not in which:
        raise Refused(f"give a version of {which}", hint=f"headway env rm {which}@1")
    api = common.connect()
    picked = common.choose_cluster(api, cluster)
    name, number = _version(api, picked, which)
    common.confirm(
        f"Remove {name}@{number} from {picked}?", yes=yes, refusal=f"{name}@{number} would be deleted permanently"
    )
    done = api.environments.remove(picked, name, number, force=force)
    final = follow_operation(api, done, quiet=output is Format.json)
    if output is Format.json:
        print_json(final)
        return
    common.print_line(f"{name}@{number} is removed")


def _split(words: list[str], wanted: str) -> tuple[str | None, str]:
    """Returns (cluster or None, the last word)."""
    if len(words) > 2:
        raise typer.BadParameter(f"give [CLUSTER] {wanted}, not {len(words)} words")
    return (common.require_cluster_name(words[0]), words[1]) if len(words) == 2 else (None, words[0])


def _version(api: Client, cluster: str, which: str) -> tuple[str, int]:
    """torch@2, or torch for its latest."""
    match = re.fullmatch(rf"({NAME_PATTERN})(?:@([0-9]{{1,9}}))?", which)
    if match is None:
        raise Refused(f"{which} is not an environment", hint="give NAME@VERSION, as headway env ls prints it")
    if match[2]:
        return match[1], int(match[2])
    numbers = [one.version for one in api.environments.list(cluster) if one.name == match[1]]
    if not numbers:
        raise NotFound(f"{cluster} has no environment {match[1]}", hint=f"headway env ls {cluster}")
    return match[1], max(numbers)


def _row(one: EnvironmentOut) -> list[tables.Cell]:
    return [
        f"{one.name}@{one.version}",
        one.python,
        str(one.packages),
        format_bytes(one.bytes),
        formatting.local_time(one.at),
        one.person,
        str(one.jobs),
        one.source,
        one.path,
    ]
