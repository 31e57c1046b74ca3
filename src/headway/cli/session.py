"""What every command needs: the server, which cluster is meant, and how answers are printed."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, is_dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headway.errors import HeadwayError, NeedsConfirmation, Refused

if TYPE_CHECKING:
    from headway.schemas.clusters import ClusterOut
    from headway.schemas.jobs import JobOut
    from headway.sdk.client import Client


class Format(StrEnum):
    table = "table"
    json = "json"


def complete_cluster(incomplete: str) -> list[str]:
    """Cluster names for the shell; silent where there is no server."""
    try:
        return [c.name for c in connect().clusters.list() if c.name.startswith(incomplete)]
    except HeadwayError:
        return []


Output = Annotated[Format, typer.Option("-o", "--output", help="Output format: table or json.", show_default=False)]
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
    """The server in reach. Raises Unreachable ("no server") when there is none."""
    from headway.sdk import client

    return client.connect()


def choose_cluster(api: Client, name: str | None) -> str:
    """`name`, or the one cluster there is where none was given. Raises NotFound when that is not clear, and as `named`."""
    return api.clusters.only_name() if name is None else require_cluster_name(name)


def require_cluster_name(cluster: str) -> str:
    """Raises BadParameter for "": `headway down "$NAME"` without a NAME must not mean the only cluster there is."""
    if not cluster:
        raise typer.BadParameter("the cluster's name is empty: say it, or leave it out where there is one")
    return cluster


def expand_home(path: Path | str) -> Path:
    """With the home of `~` or `~ann` in its place. Raises BadParameter where nobody has that name."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise typer.BadParameter(f"{path}: there is no such home folder") from None


def split_cluster(words: Sequence[str]) -> tuple[str | None, list[str]]:
    """Job ids are numbers and cluster names start with a letter: ("lab" or None, the other words)."""
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
    """Job `12`, or task 3 of array `12_3`. Raises NotFound."""
    number, task = split_job_id(word)
    return api.jobs.get(cluster, number, task=task) if task else api.jobs.get(cluster, number)


def split_job_id(word: str) -> tuple[int, str]:
    """`12` -> (12, ""); `12_3` -> (12, "3")."""
    number, _, task = word.partition("_")
    return int(number), task


def print_json(answer: Any) -> None:
    """Prints an API model, a dataclass, plain JSON data, or a sequence of these on standard output."""
    print(json.dumps(_json_data(answer), indent=2))  # noqa: T201


def _json_data(answer: Any) -> Any:
    if isinstance(answer, list | tuple):
        return [_json_data(item) for item in answer]
    if is_dataclass(answer) and not isinstance(answer, type):
        return asdict(answer)
    return answer.model_dump(mode="json") if hasattr(answer, "model_dump") else answer


def print_line(text: str = "") -> None:
    """A line on standard output."""
    typer.echo(text)


def print_note(text: str) -> None:
    """A line for the person on standard error: standard output stays what the command is asked for."""
    sys.stdout.flush()
    typer.echo(text, err=True)


def warn_if_stale(cluster: ClusterOut) -> None:
    """Says, beside the answer, that it is not what is now."""
    if cluster.stale:
        print_note(f"these figures are old: {cluster.stale}; headway status {cluster.name}")


def is_interactive() -> bool:
    """Whether a person can be asked."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def confirm(question: str, *, yes: bool, refusal: str) -> None:
    """Asks on a terminal. Raises NeedsConfirmation without one (unless `yes`), Refused when the answer is no."""
    if yes:
        return
    if not is_interactive():
        raise NeedsConfirmation(refusal, hint="--yes goes ahead without asking")
    if not typer.confirm(question, default=False):
        raise Refused("nothing was done")
