"""Helpers for all commands: the server, the cluster's name, job ids, printing, confirmation."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headway.errors import HeadwayError, NeedsConfirmation, Refused

if TYPE_CHECKING:
    from headway.schemas.clusters import ClusterOut
    from headway.schemas.jobs import JobOut
    from headway.sdk.client import Client


def complete_cluster(incomplete: str) -> list[str]:
    """Returns cluster names for shell completion; [] without a server."""
    try:
        return [c.name for c in connect().clusters.list() if c.name.startswith(incomplete)]
    except HeadwayError:
        return []


ClusterName = Annotated[
    str | None,
    typer.Argument(
        metavar="CLUSTER", help="Cluster name (default: the only cluster).", autocompletion=complete_cluster
    ),
]
ClusterOption = Annotated[
    str | None,
    typer.Option("--cluster", help="Cluster name (default: the only cluster).", autocompletion=complete_cluster),
]


def connect() -> Client:
    """Returns a client of the server that can be reached. Raises Unreachable ("no server") when there is none."""
    from headway.sdk import client

    return client.connect()


def choose_cluster(api: Client, name: str | None) -> str:
    """Returns `name`, or the only cluster's name for None.

    Raises NotFound when there is not exactly one cluster, BadParameter for an empty name."""
    return api.clusters.only_name() if name is None else require_cluster_name(name)


def require_cluster_name(cluster: str) -> str:
    """Returns the name. Raises BadParameter for "": `headway down "$NAME"` with NAME unset must not mean the only cluster."""
    if not cluster:
        raise typer.BadParameter("the cluster's name is empty: give a name, or omit it if there is only one cluster")
    return cluster


def expand_home(path: Path | str) -> Path:
    """Returns the path with `~` or `~ann` replaced by the home folder. Raises BadParameter for an unknown user."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise typer.BadParameter(f"{path}: this home folder does not exist") from None


def write_new_files(folder: Path, texts: Mapping[str, str]) -> list[Path]:
    """Writes files to a folder and folders in it, which are made if they are missing, and returns their paths. Raises
    Refused, with nothing written, if one of the files exists."""
    there = [name for name in texts if (folder / name).exists()]
    if there:
        raise Refused(f"{folder / there[0]} already exists", hint="give another folder with --to")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            (folder / name).parent.mkdir(exist_ok=True)
            with (folder / name).open("x", encoding="utf-8") as out:
                out.write(text)
    except OSError as error:
        raise Refused(f"{folder} can't be written: {error.strerror}", hint="give another folder with --to") from None
    return [folder / name for name in texts]


def split_cluster(words: Sequence[str]) -> tuple[str | None, list[str]]:
    """Returns (cluster name or None, the other words): cluster names start with a letter, job ids with a digit."""
    if words and (not words[0] or words[0][0].isalpha()):
        return words[0], list(words[1:])
    return None, list(words)


def check_job_ids(words: Sequence[str]) -> None:
    """Raises BadParameter for a word that is neither a job's number nor an array's task (12_3)."""
    for word in words:
        parts = word.split("_")
        if len(parts) > 2 or not all(part.isascii() and part.isdigit() for part in parts):
            raise typer.BadParameter(f"{word!r} is not a job id")


def get_job(api: Client, cluster: str, word: str) -> JobOut:
    """Returns job `12`, or task 3 of array `12_3`. Raises NotFound."""
    number, task = split_job_id(word)
    return api.jobs.get(cluster, number, task=task) if task else api.jobs.get(cluster, number)


def split_job_id(word: str) -> tuple[int, str]:
    """Returns (12, "") of `12` and (12, "3") of `12_3`."""
    number, _, task = word.partition("_")
    return int(number), task


def print_line(text: str = "") -> None:
    """Prints a line on standard output."""
    typer.echo(text)


def print_note(text: str) -> None:
    """Prints a line on standard error, so that standard output holds only the command's result."""
    sys.stdout.flush()
    typer.echo(text, err=True)


def warn_if_stale(cluster: ClusterOut) -> None:
    """Prints a note when the data is old."""
    if cluster.stale:
        print_note(f"this data is old: {cluster.stale}; headway status {cluster.name}")


def is_interactive() -> bool:
    """Returns whether the command runs on a terminal, so that it can ask."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def confirm(question: str, *, yes: bool, refusal: str) -> None:
    """Asks on a terminal, unless `yes`. Raises Refused when the answer is no, NeedsConfirmation(`refusal`) without a terminal."""
    if yes:
        return
    _require_terminal(refusal)
    if not typer.confirm(question, default=False):
        raise Refused("not confirmed; nothing was changed")


def confirm_by_name(question: str, name: str, *, refusal: str) -> None:
    """Asks on a terminal for `name`, for what can't be undone. Raises Refused for another answer,
    NeedsConfirmation(`refusal`) without a terminal."""
    _require_terminal(refusal)
    if typer.prompt(question, default="", show_default=False).strip() != name:
        raise Refused(f"the answer is not {name}; nothing was changed")


def _require_terminal(refusal: str) -> None:
    if not is_interactive():
        raise NeedsConfirmation(refusal, hint="use --yes to confirm without a prompt")
