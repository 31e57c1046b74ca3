"""The readiness report of a cluster."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ReadinessCheck:
    """One line of the readiness report that `headway status` prints."""

    name: str
    ok: bool
    message: str
