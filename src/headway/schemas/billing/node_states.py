"""Periods in which nodes were up, drained, down, spare or off."""

from __future__ import annotations

from headway.schemas.base import ResponseModel


class NodeStateOut(ResponseModel):
    """A period in which a node was in one state. `state` is up, drained, down, spare or off (its slot has no machine).
    `end` is null if the node is still in this state."""

    node: str
    group: str
    state: str
    start: int
    end: int | None
    seconds: int
    reason: str = ""


class NodeStatesOut(ResponseModel):
    """Node states, ordered by node and then by time. `next` is the cursor of the next page."""

    cluster: str
    start: int
    end: int
    as_of: int
    states: list[NodeStateOut]
    next: str = ""
