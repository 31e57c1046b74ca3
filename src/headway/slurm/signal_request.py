"""Reads the signal that a job asked for before its end (--signal)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile

from headway.domain.slurm.sbatch_options import Option, parse_options, script_options

_SIGNAL = re.compile(r"(?:([RB]{1,2}):)?([A-Za-z0-9]{1,16})(?:@([0-9]{1,5}))?")  # as sbatch takes it


@dataclass(frozen=True, slots=True)
class SignalRequest:
    """What a job wants to be sent before its end, by its own --signal."""

    signal: str
    batch_only: bool
    before_s: int


def requested_signal(script: str, command: str) -> SignalRequest | None:
    """From the #SBATCH lines of a batch script and the command it was submitted with, which wins. None also for words that sbatch
    would have refused."""
    said = [one.value for one in (*script_options(script), *_own(command)) if one.name == "signal"]
    found = _SIGNAL.fullmatch(said[-1]) if said else None
    if found is None:
        return None
    return SignalRequest(found[2].upper().removeprefix("SIG"), "B" in (found[1] or ""), int(found[3] or 60))


def _own(command: str) -> Iterator[Option]:
    """Those of sbatch itself: what stands behind a script's name is the script's. Slurm keeps the command's words without their
    quotes, so the text of a --wrap is several of them, and no script comes after it."""
    found = list(parse_options(command.split()[1:]))
    if any(one.name == "wrap" for one in found):
        return iter(found)
    return takewhile(lambda one: one.words[0].startswith("-"), found)
