"""The result of locking a Linux user on a cluster."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class UserLockResult:
    """What a lock did. `jobs` are the ids of the cancelled jobs; `fault` says what is not done, "" if nothing is left."""

    jobs: tuple[int, ...] = ()
    fault: str = ""
