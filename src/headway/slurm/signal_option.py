"""Reads the signal that a job requested before its end (--signal)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile

from headway.domain.slurm.sbatch_options import Option, parse_options, script_options

_SIGNAL = re.compile(r"(?:([RB]{1,2}):)?([A-Za-z0-9]{1,16})(?:@([0-9]{1,5}))?")  # the form that sbatch accepts


@dataclass(frozen=True, slots=True)
class SignalRequest:
    """The signal that a job requests with --signal: sent `before_s` seconds before its end."""

    signal: str
    batch_only: bool
    before_s: int


def requested_signal(script: str, command: str) -> SignalRequest | None:
    """Returns the signal from the #SBATCH lines of a batch script and the command it was submitted with; the
    command's flag wins. Returns None also for a value that sbatch would have refused."""
    values = [option.value for option in (*script_options(script), *_own(command)) if option.name == "signal"]
    found = _SIGNAL.fullmatch(values[-1]) if values else None
    if found is None:
        return None
    return SignalRequest(found[2].upper().removeprefix("SIG"), "B" in (found[1] or ""), int(found[3] or 60))


def _own(command: str) -> Iterator[Option]:
    """Returns the options of sbatch itself: words after the script's name belong to the script. Slurm stores the
    command without quotes, so the text of --wrap is several words, and no script follows it."""
    found = list(parse_options(command.split()[1:]))
    if any(option.name == "wrap" for option in found):
        return iter(found)
    return takewhile(lambda option: option.words[0].startswith("-"), found)
