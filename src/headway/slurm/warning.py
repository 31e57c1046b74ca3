"""What a job wants to be sent before its end."""

from __future__ import annotations

import re
from dataclasses import dataclass

_SIGNAL = re.compile(r"(?:^|[ \t])--signal(?:=|[ \t]+)(?:([RB]{1,2}):)?([A-Za-z0-9]+)(?:@(\d+))?")


@dataclass(frozen=True, slots=True)
class Wish:
    """What a job wants to be sent before its end, by its own --signal."""

    signal: str
    batch_only: bool
    before_s: int


def warning_asked(script: str, command: str) -> Wish | None:
    """From the #SBATCH lines of a batch script and the command it was submitted with, which wins."""
    lines = [line.partition("#SBATCH")[2] for line in script.splitlines() if line.startswith("#SBATCH")]
    for text in (command, *reversed(lines)):
        found = _SIGNAL.search(text)
        if found:
            return Wish(found[2].upper().removeprefix("SIG"), "B" in (found[1] or ""), int(found[3] or 60))
    return None
