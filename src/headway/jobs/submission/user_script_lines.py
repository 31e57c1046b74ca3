"""Insertion of Headway's lines into a user's batch script. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from headway.domain.slurm.sbatch_options import script_head
from headway.errors import Refused
from headway.schemas.submission.batch_script_request import SubmitIn

_SHELL = re.compile(r"#!\s*(?:\S*/env\s+)?(?:\S*/)?(?:ba|da|k|z)?sh(?:\s.*)?")


def insert_lines(request: SubmitIn, flag: str, added: Sequence[str]) -> str:
    """Returns the request's script with these lines before its first command. `flag` is what asks for them. Raises
    Refused for --wrap and for a script that is not a shell's."""
    if request.script is None:
        raise Refused(f"{flag} needs a script, and --wrap has none", hint=f"use headway run {flag} NAME -- COMMAND")
    first = request.script.partition("\n")[0]
    if not _SHELL.fullmatch(first.rstrip("\r")):
        raise Refused(
            f"{flag} needs a shell script, and {request.script_name} begins with {first[:60]}",
            hint="start the program from a shell script that begins with #!/bin/bash",
        )
    head = "".join(script_head(request.script))
    return "\n".join([head.removesuffix("\n"), *added, request.script[len(head) :]])
