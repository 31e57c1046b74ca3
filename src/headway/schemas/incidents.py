"""Incidents, and faults that are made on purpose."""

from __future__ import annotations

from typing import Any

from pydantic import Field, model_validator

from headway.domain.fault import ON_NODES, RECLAIM_IN_S, Daemon, FaultKind
from headway.schemas.base import Ask, Wire


class IncidentStepOut(Wire):
    """`evidence`: what was known then, such as the signal's own words and the jobs that were requeued."""

    at: float
    state: str
    actor: str
    text: str
    evidence: dict[str, Any] = {}


class MovedJobOut(Wire):
    """A job that an incident sent back to the queue; unix seconds, None while it has not come to that."""

    job: int
    requeued_at: float
    running_at: float | None = None
    step_at: float | None = None


class TimesOut(Wire):
    """Seconds from the fault; None for what has not happened. Of several jobs the slowest counts."""

    detect_s: float | None = None
    drain_s: float | None = None
    requeue_s: float | None = None
    running_s: float | None = None
    step_s: float | None = None
    closed_s: float | None = None


class IncidentOut(Wire):
    """One fault of one node. `state`: seen | draining | jobs moved | repairing | testing | returned | out of service |
    false alarm."""

    number: int
    cluster: str
    node: str
    what: str
    action: str
    state: str
    opened_at: float
    drained: bool = False
    fault_at: float = 0
    score: int = 0
    times: TimesOut = TimesOut()
    jobs: list[MovedJobOut] = []
    steps: list[IncidentStepOut] = []


class NodeHistoryOut(Wire):
    """A node's incidents, the latest first, and what they say against it: from `limit` on it is kept out, or for
    spare work only (`why_out`)."""

    node: str
    score: int
    limit: int
    days: int
    why_out: str = ""
    incidents: list[IncidentOut]


class ReturnIn(Ask):
    false_alarm: bool = False


class FaultIn(Ask):
    """A fault to be made on a cluster, or healed. `node` is empty for what is the cluster's head's or the server's."""

    kind: FaultKind
    node: str = ""
    daemon: Daemon | None = None  # for FaultKind.KILL
    code: int = Field(0, ge=0, le=9999)
    gpu: int = Field(0, ge=0, le=63)
    text: str = Field("", max_length=300, pattern=r"^[ -~]*$")
    in_s: int = Field(RECLAIM_IN_S, ge=0, le=86400)  # for FaultKind.RECLAIM: the machine goes then
    heal: bool = False
    force: bool = False  # on machines that are not there to be broken as well

    @model_validator(mode="after")
    def _of_one_piece(self) -> FaultIn:
        if (self.kind is FaultKind.KILL) != (self.daemon is not None):
            raise ValueError(f"{FaultKind.KILL} needs a daemon, and nothing else has one")
        on_node = self.daemon is None or self.daemon in ON_NODES
        if on_node != bool(self.node):
            raise ValueError("which node?" if on_node else f"{self.daemon} is not on a node: name none")
        return self


class FaultMadeOut(Wire):
    done: str
