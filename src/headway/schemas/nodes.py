"""One node, and what a person does with it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from headway.schemas.base import Ask, Wire
from headway.schemas.clusters import NodeOut
from headway.schemas.incidents import IncidentOut

DeedKind = Literal["reboot", "test"]


class TestOut(Wire):
    name: str
    ok: bool
    text: str = ""


class DeedOut(Wire):
    """A reboot or tests that a person asked for, under way or the latest. `fault`: what went wrong."""

    kind: DeedKind
    person: str
    begun_at: float
    ended_at: float | None = None
    fault: str = ""
    tests: list[TestOut] = []


class NodeDetailOut(Wire):
    node: NodeOut
    simulated_gpus: bool
    incident: IncidentOut | None = None  # the open one
    deed: DeedOut | None = None  # since the server started


class DrainIn(Ask):
    reason: str = Field(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]*\S[^\x00-\x1f\x7f]*$")


class RebootIn(Ask):
    busy: bool = False  # jobs that run there may end


class NodeTestIn(Ask):
    hard: bool = False  # memory, load and copies too; they disturb what runs there


class DoneOut(Wire):
    done: str
