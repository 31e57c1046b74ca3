"""Insertion of Headway's lines, and of the script's arguments, into a batch script. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from headway.domain.slurm.sbatch_options import script_head
from headway.errors import Refused
from headway.schemas.submission.submit_request import SubmitIn

_SHELL = re.compile(r"#!\s*(?:\S*/env\s+)?(?:\S*/)?(?:ba|da|k|z)?sh(?:\s.*)?")
# The line that `insert_arguments` adds: words as shlex.quote writes them.
_ARGUMENTS = re.compile(
    r"""set --(?P<words>(?: (?:[\w@%+=:,./-]|'[^']*+'|"'")++)+)  # arguments, which Slurm would show to all users\n""",
    re.ASCII,
)


def insert_lines(request: SubmitIn, flag: str, added: Sequence[str]) -> str:
    """Returns the request's script with these lines before its first command. `flag` is what asks for them. Raises
    Refused for --wrap and for a script that is not a shell's."""
    if request.script is None:
        raise Refused(f"{flag} needs a script, and --wrap has none", hint=f"use headway run {flag} NAME -- COMMAND")
    first = request.script.partition("\n")[0]
    if not _is_shell_script(request.script):
        raise Refused(
            f"{flag} needs a shell script, and {request.script_name} begins with {first[:60]}",
            hint="start the program from a shell script that begins with #!/bin/bash",
        )
    return _before_first_command(request.script, added)


def insert_arguments(script: str, arguments: Sequence[str]) -> tuple[str, list[str]]:
    """Returns (the script, its arguments) for sbatch. Slurm shows the arguments of a script to all users, so a shell's
    script sets them itself; other scripts keep them. Each word is quoted, so that a shell reads it unchanged."""
    if not arguments or not _is_shell_script(script):
        return script, list(arguments)
    # sbatch refuses a script with \\r\\n; between the two, one quoted part of the word ends and the next begins.
    words = shlex.join(arguments).replace("\r\n", "\r''\n")
    return _before_first_command(script, [f"set -- {words}  # arguments, which Slurm would show to all users"]), []


def split_arguments(script: str) -> tuple[str, list[str]]:
    """Returns (script, arguments) of a script to which `insert_arguments` added them."""
    start = len("".join(script_head(script)))
    found = _ARGUMENTS.match(script, start)
    if found is None:
        return script, []
    return script[:start] + script[found.end() :], shlex.split(found["words"])


def _is_shell_script(script: str) -> bool:
    return _SHELL.fullmatch(script.partition("\n")[0].rstrip("\r")) is not None


def _before_first_command(script: str, lines: Sequence[str]) -> str:
    head = "".join(script_head(script))
    return "\n".join([head.removesuffix("\n"), *lines, script[len(head) :]])
