"""Models of a single node and of the actions on it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from headway.schemas.base import RequestModel, ResponseModel
from headway.schemas.clusters import NodeOut
from headway.schemas.incidents import IncidentOut

NodeActionKind = Literal["reboot", "test"]


class TestOut(ResponseModel):
    """The result of one test of a node."""

    name: str
    ok: bool
    text: str = ""


class NodeActionOut(ResponseModel):
    """A reboot or a test of a node that a person started: the current or the latest one. `fault` says what went wrong."""

    kind: NodeActionKind
    person: str
    begun_at: float
    ended_at: float | None = None
    fault: str = ""
    tests: list[TestOut] = []


class NodeDetailOut(ResponseModel):
    """A node with its open incident and the latest action on it."""

    node: NodeOut
    simulated_gpus: bool
    incident: IncidentOut | None = None  # the open incident
    action: NodeActionOut | None = None  # the latest action since the server started


class DrainIn(RequestModel):
    """A request to drain a node, with the reason that Slurm shows."""

    reason: str = Field(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]*\S[^\x00-\x1f\x7f]*$")


class RebootIn(RequestModel):
    """A request to reboot a node."""

    busy: bool = False  # allow it although running jobs may end


class NodeTestIn(RequestModel):
    """A request to test a node."""

    hard: bool = False  # also test memory, load and copies; this disturbs running jobs


class DoneOut(ResponseModel):
    """The result of an action as a sentence."""

    done: str
