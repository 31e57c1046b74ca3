"""Insertion of Headway's lines into a user's batch script. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from headway.errors import Refused
from headway.schemas.submission.submissions import SubmitIn

_SHELL = re.compile(r"#!\s*(?:\S*/env\s+)?(?:\S*/)?(?:ba|da|k|z)?sh(?:\s.*)?")


def insert_lines(request: SubmitIn, flag: str, added: Sequence[str]) -> str:
    """Returns the request's script with these lines before its first command. `flag` is what asks for them. Raises
    Refused for --wrap and for a script that is not a shell's."""
    if request.script is None:
        raise Refused(f"{flag} needs a script, and --wrap has none", hint=f"use headway run {flag} NAME -- COMMAND")
    head, *lines = request.script.split("\n")
    if not _SHELL.fullmatch(head.rstrip("\r")):
        raise Refused(
            f"{flag} needs a shell script, and {request.script_name} begins with {head[:60]}",
            hint="start the program from a shell script that begins with #!/bin/bash",
        )
    # sbatch reads #SBATCH lines up to the first line that is neither empty nor a comment.
    first = next((n for n, line in enumerate(lines) if line.strip() and not line.lstrip().startswith("#")), len(lines))
    return "\n".join([head, *lines[:first], *added, *lines[first:]])
