"""The results of locking a Linux user on a cluster, and of putting one into their teams."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class UserLockResult:
    """What a lock did. `jobs` are the ids of the cancelled jobs; `fault` says what is not done, "" if nothing is left."""

    jobs: tuple[int, ...] = ()
    fault: str = ""


@dataclass(frozen=True, slots=True)
class UserUpdateResult:
    """What an update did. `changes` are those in Slurm; `fault` says what is not done, "" if nothing is left."""

    changes: tuple[str, ...] = ()
    fault: str = ""
