"""secret set|ls|rm: API keys and tokens that jobs get as files."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from headway.cli import common
from headway.cli.output import formatting, tables
from headway.cli.output.output_formats import Format, Output, print_json
from headway.domain.access.job_secret_limits import MAX_BYTES, NAME_PATTERN, value_fault
from headway.errors import Refused

if TYPE_CHECKING:
    from headway.schemas.job_secrets import SecretChangedOut

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    no_args_is_help=True,
    help="Manage secrets of jobs: API keys that jobs get as files.",
)
Words = Annotated[
    list[str],
    typer.Argument(
        metavar="[CLUSTER] NAME",
        help="Cluster (default: the only one), then the secret's name.",
        autocompletion=common.complete_cluster,
    ),
]
Team = Annotated[str, typer.Option("--team", metavar="TEAM", help="Team that owns it (its leads and admins only).")]
User = Annotated[str, typer.Option("--as", metavar="USER", help="User that owns it (admins only).")]


@app.command("set")
def set_(words: Words, team: Team = "", user: User = "", output: Output = Format.table) -> None:
    """Store a secret. The value is read from standard input, or from a prompt that does not show it.

    headway secret set lab wandb <key.txt"""
    cluster, name = _split(words)
    api = common.connect()
    picked = common.choose_cluster(api, cluster)
    done = api.secrets.set(picked, name, _value(name), team=team, user=user)
    _print(done, f"{name} is stored for {_owner(done)} on {picked}: headway run --secret {name} -- COMMAND", output)


@app.command("ls")
def list_all(cluster: common.ClusterName = None, output: Output = Format.table) -> None:
    """List secrets of yours and of your teams, without their values.

    headway secret ls"""
    api = common.connect()
    picked = common.choose_cluster(api, cluster)
    found = api.secrets.list(picked)
    if output is Format.json:
        print_json(found)
        return
    if not found:
        common.print_line(f"no secret on {picked}: headway secret set {picked} NAME")
        return
    columns = [
        tables.Column("NAME"),
        tables.Column("OWNER"),
        tables.Column("SET"),
        tables.Column("BY", drop_order=1),
    ]
    rows = [
        (one.name, f"team {one.team}" if one.team else one.user, formatting.local_time(one.at), one.person)
        for one in found
    ]
    tables.print_table(columns, rows)


@app.command("rm")
def remove(words: Words, team: Team = "", user: User = "", output: Output = Format.table) -> None:
    """Remove a secret. Jobs that ask for it and have not started yet will fail; running jobs keep it.

    headway secret rm lab wandb"""
    cluster, name = _split(words)
    api = common.connect()
    picked = common.choose_cluster(api, cluster)
    done = api.secrets.remove(picked, name, team=team, user=user)
    _print(done, f"{name} of {_owner(done)} is removed from {picked}", output)


def _print(done: SecretChangedOut, text: str, output: Format) -> None:
    if output is Format.json:
        print_json(done)
    else:
        common.print_line(text)
    if done.undelivered:
        common.print_note(
            f"{', '.join(done.undelivered)} can't be reached now and gets the change as soon as it can be"
        )


def _owner(done: SecretChangedOut) -> str:
    return f"team {done.team}" if done.team else done.user


def _split(words: list[str]) -> tuple[str | None, str]:
    """Returns (cluster or None, the secret's name)."""
    if len(words) > 2:
        raise typer.BadParameter(
            f"give [CLUSTER] NAME, not {len(words)} words: the value is read from standard input or a prompt"
        )
    name = words[-1]
    if not re.fullmatch(NAME_PATTERN, name):
        raise typer.BadParameter(
            f"{name[:80]!r} is not a name: up to 64 letters, digits, _, - and ., beginning with a letter"
        )
    return (common.require_cluster_name(words[0]) if len(words) == 2 else None), name


def _value(name: str) -> str:
    """Returns the value from standard input, without the line break at its end, or from a prompt. Raises Refused."""
    if sys.stdin.isatty():
        text: str = typer.prompt(f"Value of {name}", hide_input=True, err=True)
    else:
        data = sys.stdin.buffer.read(MAX_BYTES + 2)
        try:
            text = data.decode()
        except UnicodeDecodeError:
            raise Refused("the value is not text (UTF-8)", hint="store it as base64 and decode it in the job") from None
        text = text.removesuffix("\n").removesuffix("\r")
    if fault := value_fault(text):
        raise Refused(fault, hint=f"headway secret set CLUSTER {name} <FILE")
    return text
