"""plan and apply: show and carry out the changes of a cluster file."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headway.cli import common
from headway.cli.options.deadline_option import Deadline, parse_deadline
from headway.cli.output import changeset_text, formatting
from headway.cli.output.operation_progress import follow_to_end
from headway.cli.output.output_formats import Format, Output, PlanFormat, PlanOutput, print_json
from headway.cli.output.terminal import detect_terminal
from headway.domain.operation_kinds import OperationKind

if TYPE_CHECKING:
    from collections.abc import Callable

    from headway.errors import Unreachable
    from headway.schemas.clusters import ChangeSetOut, Document
    from headway.schemas.operations import OperationOut
    from headway.sdk.client import Client

File = Annotated[Path, typer.Argument(metavar="FILE", help="Cluster file.", show_default=True)]
FromGit = Annotated[
    str, typer.Option("--from-git", metavar="URL", help="Read the cluster file from a commit of this Git repository.")
]
Ref = Annotated[
    str,
    typer.Option("--ref", metavar="REF", help="With --from-git: branch, tag or commit (default: its default branch)."),
]
PathInGit = Annotated[
    str, typer.Option("--path", metavar="PATH", help="With --from-git: path of the file (default: cluster.yaml).")
]
Diff = Annotated[bool, typer.Option("--diff", help="Show the changed lines of each file.")]
DEFAULT_FILE = Path("cluster.yaml")
CHANGES = 8  # exit code of plan --exit-code; those of errors are smaller
AWAY_S = 60.0  # limit of waiting for root's server


def plan(
    file: File = DEFAULT_FILE,
    from_git: FromGit = "",
    ref: Ref = "",
    path: PathInGit = "",
    diff: Diff = False,
    exit_code: Annotated[
        bool, typer.Option("--exit-code", help=f"End with exit code {CHANGES} if something would change.")
    ] = False,
    output: PlanOutput = PlanFormat.table,
) -> None:
    """Show what apply would change and what each change disturbs. Change nothing."""
    document = _document(file, from_git, ref, path)
    changes = common.connect().clusters.plan(document)
    if output is PlanFormat.markdown:
        from headway.cli.output.changeset_markdown import changeset_markdown

        sys.stdout.write(changeset_markdown(changes, diffs=diff))
    else:
        _show(changes, diff=diff, output=Format(output.value))
    if exit_code and changes.changes:
        raise typer.Exit(CHANGES)


def apply(
    file: File = DEFAULT_FILE,
    from_git: FromGit = "",
    ref: Ref = "",
    path: PathInGit = "",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would change, change nothing (as plan).")
    ] = False,
    diff: Diff = False,
    follow_id: Annotated[
        str, typer.Option("--follow", metavar="OPERATION", help="Follow a running operation instead.")
    ] = "",
    deadline: Deadline = "",
    output: Output = Format.table,
) -> None:
    """Create a cluster, or change it to match its file.

    Shows the changes, asks for confirmation when running work is disturbed, then follows the operation. The operation
    continues on the server when this command is interrupted. Starts the server when none is running here."""
    quiet = output is Format.json
    if follow_id:
        api = common.connect()
        _end(follow_to_end(api, api.operations.get(follow_id), quiet=quiet), output)
        return
    deadline_s = parse_deadline(deadline)
    document = _document(file, from_git, ref, path)
    api = _reach(quiet=quiet)
    changes = api.clusters.plan(document)
    if dry_run:
        _show(changes, diff=diff, output=output)
        return
    if not quiet:
        _print_changes(changes, diff=diff)
    if not changes.changes and _settled(api, changes.cluster, document):
        if quiet:
            print_json(_nothing_done(api, changes.cluster))
        return
    if changes.disturbing:
        common.confirm(
            "Continue?",
            yes=yes,
            refusal=f"{formatting.plural(changes.disturbing, 'change')} would disturb jobs or sessions",
        )
    operation = api.clusters.apply(
        document, digest=changes.digest, confirmed=bool(changes.disturbing), deadline_s=deadline_s
    )
    _end(follow_to_end(api, operation, quiet=quiet, on_lost=_when_lost(api)), output)


def _settled(api: Client, name: str, document: Document) -> bool:
    """Returns whether no apply is needed: the cluster exists, has not failed, has no queued or running operation, and its file
    is of the same commit.

    A failed cluster that was repaired by hand becomes ready only by an apply; an apply also cancels a waiting scale."""
    from headway.errors import NotFound

    try:
        if any(operation.state in ("queued", "running") for operation in api.operations.list(name)):
            return False
        found = api.clusters.get(name)
    except NotFound:
        return False
    wanted = document.origin
    same_commit = wanted is None or (found.origin is not None and found.origin.commit == wanted.commit)
    return found.state != "failed" and same_commit


def _nothing_done(api: Client, name: str) -> OperationOut:
    """Returns the JSON answer when nothing has to change: an operation without id."""
    from headway.schemas.operations import OperationOut

    now, person = time.time(), api.me().person
    return OperationOut(
        id="", cluster=name, kind=OperationKind.APPLY, state="done", person=person, created_at=now, finished_at=now
    )


def _document(file: Path, from_git: str, ref: str, path: str) -> Document:
    if not from_git:
        if ref or path:
            raise typer.BadParameter(
                f"{'--ref' if ref else '--path'} selects from a repository: give it with --from-git"
            )
        from headway.sdk.cluster_file import load_document

        return load_document(file)
    if file != DEFAULT_FILE:
        raise typer.BadParameter(
            f"{file} can't be combined with --from-git: name the file in the repository with --path"
        )
    from headway.sdk.git.commit_file import load_from_git

    document = load_from_git(from_git, ref, path or str(DEFAULT_FILE))
    if document.origin is not None:
        common.print_note(f"{document.origin.path} of commit {document.origin.commit} of {document.origin.url}")
    return document


def _reach(*, quiet: bool) -> Client:
    """Returns a client; starts a server if none runs here and no other is configured. Root's server is waited for."""
    from headway.errors import Unreachable
    from headway.sdk.server_address import address_source, is_root_server

    api: Client | None = None
    try:
        api = common.connect()
        api.me()
        return api
    except Unreachable as error:
        if api is not None and address_source(api.url):
            raise
        if is_root_server():
            return _come_back(error)
    url = _start_server()
    if url and not quiet:
        common.print_line(f"started the server at {url}; stop it with headway server stop")
    return common.connect()


def _come_back(error: Unreachable) -> Client:
    """Returns a client of root's server once it answers. Raises Unreachable after AWAY_S."""
    from headway.errors import Unreachable
    from headway.sdk.reconnect import ReconnectDeadline
    from headway.sdk.server_address import start_command

    _print_root_server_hint(error.message, start_command())
    deadline = ReconnectDeadline(AWAY_S)
    deadline.clear()
    while True:
        try:
            api = common.connect()
            api.me()
            return api
        except Unreachable as caught:
            deadline.record(caught, final=False)


def _when_lost(api: Client) -> Callable[[], None] | None:
    """Returns what to call when the connection to this server is lost; None for a server configured elsewhere."""
    from headway.sdk.server_address import address_source, is_root_server, start_command

    if address_source(api.url):
        return None
    start = start_command()
    return (lambda: _print_root_server_hint("the server has stopped", start)) if is_root_server() else _start_again


def _print_root_server_hint(what: str, start: str) -> None:
    """Explains how to start root's server: a server of the user would hide it and know none of its clusters."""
    common.print_note(f"{what}; waiting for it: {start}")


def _start_server() -> str:
    from headway.sdk.local_server import start_server

    return start_server().url


def _start_again() -> None:
    """Starts a lost server again; it resumes the operation."""
    from headway.errors import HeadwayError

    try:
        _start_server()
    except HeadwayError as error:
        common.print_note(f"the server has stopped and did not start again: {error.message}")


def _show(changes: ChangeSetOut, *, diff: bool, output: Format) -> None:
    if output is Format.json:
        print_json(changes)
    else:
        _print_changes(changes, diff=diff)


def _print_changes(changes: ChangeSetOut, *, diff: bool) -> None:
    for line in changeset_text.changeset_lines(changes, detect_terminal(), diffs=diff):
        common.print_line(line)


def _end(operation: OperationOut, output: Format) -> None:
    if output is Format.json:
        print_json(operation)
        return
    name = operation.cluster
    took = ""
    if operation.finished_at is not None:
        took = f" in {operation.finished_at - operation.created_at:.1f} s"
    common.print_line(f"{operation.kind.success(name)}{took}")
    for kept in operation.kept:
        common.print_line(f"  {kept}")
    if operation.kind is not OperationKind.APPLY:
        return
    common.print_line(f"  use it: headway submit {name} SCRIPT · headway queue {name} · headway ssh {name}")
    common.print_line(f"  remove: headway down {name}")
