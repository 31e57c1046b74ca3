"""The flags of `headway submit` itself, and the parsing of its command line, whose other flags are sbatch's. Pure.

The line is parsed far enough to find the script: that needs to know which of sbatch's flags take a value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from textwrap import wrap
from typing import NamedTuple

import typer

from headway.domain.slurm.sbatch_options import LONG, LONG_WITH_VALUE, SHORT_WITH_VALUE, SHORT_WITHOUT_VALUE, full_name


class OwnFlag(NamedTuple):
    """A flag that `headway submit` handles itself. Without `metavar` it takes no value; without `help` it works as sbatch's."""

    name: str
    help: str = ""
    metavar: str = ""


OWN_FLAGS = (
    OwnFlag("as", "Submit as this user (admins only).", "USER"),
    OwnFlag("with-files", "Upload this folder (without what its .gitignore excludes); the job works in a copy of it."),
    OwnFlag("env", "Set an environment variable of the job.", "NAME[=VALUE]"),
    OwnFlag(
        "stage-in", "Copy a dataset to $HEADWAY_SCRATCH/NAME on each node before the script starts.", "NAME[@VERSION]"
    ),
    OwnFlag("secret", "Secret that the job finds in the file $HEADWAY_SECRETS_DIR/NAME.", "NAME"),
    OwnFlag("environment", "Software environment that the script uses; none: the node's own.", "NAME[@VERSION]"),
    OwnFlag("wait", "Wait for the job and exit with its exit code."),
    OwnFlag("estimate", "Print price, expected start and remaining budget; submit nothing."),
    OwnFlag("parsable", "Print only the job id."),
    OwnFlag("json", "Print the answer as JSON."),
    OwnFlag("chdir", metavar="FOLDER"),
    OwnFlag("help"),
)
OWN_WITHOUT_VALUE = frozenset(flag.name for flag in OWN_FLAGS if not flag.metavar)
OWN_WITH_VALUE = frozenset(flag.name for flag in OWN_FLAGS if flag.metavar)

_KNOWN = LONG | OWN_WITHOUT_VALUE | OWN_WITH_VALUE


def own_flags_help(width: int = 77) -> str:
    """Returns the own flags that have a help, in two columns: flag, help."""
    documented = [(f"--{flag.name} {flag.metavar}".rstrip(), flag.help) for flag in OWN_FLAGS if flag.help]
    column = max(len(words) for words, _ in documented) + 4
    lines = []
    for words, text in documented:
        first, *more = wrap(text, width - column, break_on_hyphens=False)
        lines += [f"{words:<{column}}{first}", *(" " * column + line for line in more)]
    return "\n".join(lines)


@dataclass(slots=True)
class SbatchLine:
    """A parsed command line. `args` are passed to sbatch unchanged; `own` are headway's flags ("json", "parsable", "wait",
    "help": "1"; "as", "chdir": their value). `script` None: from --wrap or standard input."""

    args: list[str] = field(default_factory=list)
    own: dict[str, str] = field(default_factory=dict)
    env: list[str] = field(default_factory=list)  # of --env, each NAME or NAME=VALUE
    stage_in: list[str] = field(default_factory=list)  # of --stage-in, each NAME or NAME@VERSION
    secrets: list[str] = field(default_factory=list)  # of --secret, each NAME or NAME,NAME
    script: str | None = None
    script_args: list[str] = field(default_factory=list)
    wrap: bool = False


def parse_sbatch_line(words: Sequence[str]) -> SbatchLine:
    """Parses the words after the cluster's name. Raises BadParameter for a flag without value, or a script with --wrap."""
    line = SbatchLine()
    left = list(words)
    while left:
        word = left.pop(0)
        if word == "--":
            _script(line, left)
            break
        if word == ":":  # between two components of a heterogeneous job
            line.args.append(word)
        elif word.startswith("--"):
            _long(line, word, left)
        elif word.startswith("-") and len(word) > 1:
            _short(line, word, left)
        else:
            _script(line, [word, *left])
            break
    if line.wrap and line.script is not None:
        raise typer.BadParameter(
            f"--wrap can't be combined with the script {line.script}; quote the whole command of --wrap"
        )
    return line


def _script(line: SbatchLine, words: list[str]) -> None:
    if words:
        line.script, *line.script_args = words


def _long(line: SbatchLine, word: str, left: list[str]) -> None:
    typed, equals, value = word[2:].partition("=")
    name = full_name(typed, _KNOWN)
    if name in OWN_WITHOUT_VALUE:
        line.own[name] = "1"
    elif name in OWN_WITH_VALUE:
        value = value if equals else _value(word, left)
        if name == "env":
            line.env.append(value)
        elif name == "stage-in":
            line.stage_in.append(value)
        elif name == "secret":
            line.secrets += value.split(",")
        else:
            line.own[name] = value
    elif name in LONG_WITH_VALUE:
        line.wrap = line.wrap or name == "wrap"
        line.args += [word] if equals else [word, _value(word, left)]
    else:
        line.args.append(word)


def _short(line: SbatchLine, word: str, left: list[str]) -> None:
    """Parses a word of short flags: `-N2`, `-N 2`, `-HN2`. Letters without value may precede one that takes the rest."""
    kept = ""
    for at, letter in enumerate(word[1:], start=1):
        rest = word[at + 1 :]
        if letter in SHORT_WITH_VALUE:
            value = rest or _value(f"-{letter}", left)
            if letter == "D":
                line.own["chdir"] = value
            else:
                line.args += [f"-{kept}{letter}{rest}"] if rest else [f"-{kept}{letter}", value]
                return
            break
        if letter == "h":
            line.own["help"] = "1"
        elif letter == "W":
            line.own["wait"] = "1"
        elif letter in SHORT_WITHOUT_VALUE:
            kept += letter
        else:  # unknown to sbatch: passed on unchanged
            kept += letter + rest
            break
    if kept:
        line.args.append(f"-{kept}")


def _value(flag: str, left: list[str]) -> str:
    if not left:
        raise typer.BadParameter(f"{flag} needs a value")
    return left.pop(0)
