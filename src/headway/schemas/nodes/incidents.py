"""Models of incidents and of injected faults."""

from __future__ import annotations

from typing import Any

from pydantic import Field, model_validator

from headway.domain.injected_fault import ON_NODES, RECLAIM_IN_S, Daemon, FaultKind
from headway.schemas.base import RequestModel, ResponseModel


class IncidentStepOut(ResponseModel):
    """One step of an incident. `evidence` is what was known at that time, such as the text of the symptom and the
    requeued jobs."""

    at: float
    state: str
    actor: str
    text: str
    evidence: dict[str, Any] = {}


class RequeuedJobOut(ResponseModel):
    """A job that was requeued because of an incident. Times are unix seconds; null if it has not happened yet."""

    job: int
    requeued_at: float
    running_at: float | None = None
    step_at: float | None = None


class TimesOut(ResponseModel):
    """Seconds from the fault to each event; null if it has not happened. With several jobs, the slowest counts."""

    detect_s: float | None = None
    drain_s: float | None = None
    requeue_s: float | None = None
    running_s: float | None = None
    step_s: float | None = None
    closed_s: float | None = None


class IncidentOut(ResponseModel):
    """One fault of one node. `state` is seen, draining, jobs moved, repairing, testing, returned, out of service or
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
    jobs: list[RequeuedJobOut] = []
    steps: list[IncidentStepOut] = []


class NodeHistoryOut(ResponseModel):
    """A node's incidents, the latest first, and its score over the last `days` days. At a score of `limit` or more the
    node is kept out of service, or, if the cluster's file says so, used only by jobs with
    --reservation=headway_flaky and kept out at twice the score. `why_out` says why; "" if it takes any job."""

    node: str
    score: int
    limit: int
    days: int
    why_out: str = ""
    incidents: list[IncidentOut]


class ReturnIn(RequestModel):
    """A request to return a node to service. `false_alarm` marks the incident as one, so that it does not count."""

    false_alarm: bool = False


class FaultIn(RequestModel):
    """A fault to inject into a cluster, or to heal. `node` is empty for daemons of the cluster's head or of the server."""

    kind: FaultKind
    node: str = ""
    daemon: Daemon | None = None  # only for FaultKind.KILL
    code: int = Field(0, ge=0, le=9999)
    gpu: int = Field(0, ge=0, le=63)
    text: str = Field("", max_length=300, pattern=r"^[ -~]*$")
    # Only for FaultKind.RECLAIM: seconds until the machine is taken away
    in_s: int = Field(RECLAIM_IN_S, ge=0, le=86400)
    heal: bool = False
    force: bool = False  # inject the fault also where real machines do the work

    @model_validator(mode="after")
    def _of_one_piece(self) -> FaultIn:
        if (self.kind is FaultKind.KILL) != (self.daemon is not None):
            raise ValueError(f"{FaultKind.KILL} needs a daemon; other faults take none")
        on_node = self.daemon is None or self.daemon in ON_NODES
        if on_node != bool(self.node):
            raise ValueError("name a node" if on_node else f"{self.daemon} runs on the head: give no node")
        return self


class InjectedFaultOut(ResponseModel):
    """The result of an action as a sentence."""

    done: str
