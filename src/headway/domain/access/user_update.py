"""The result of putting a Linux user into their teams on a cluster."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class UserUpdateResult:
    """What an update did. `changes` are those in Slurm; `fault` says what is not done, "" if nothing is left."""

    changes: tuple[str, ...] = ()
    fault: str = ""
