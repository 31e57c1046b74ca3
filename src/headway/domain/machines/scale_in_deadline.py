"""Until when jobs may run on machines that will be removed."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Deadline:
    """The time until which jobs may run on nodes that will be removed. `at`: unix seconds. `nodes`: the nodes that it
    applies to, None = all; jobs on other nodes are not limited."""

    at: float
    nodes: frozenset[str] | None = None
