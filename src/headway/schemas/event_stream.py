"""The model of the events that `GET /events` streams: changes of jobs, nodes, incidents and operations."""

from __future__ import annotations

from typing import Literal

from headway.schemas.base import ResponseModel


class ClusterEventOut(ResponseModel):
    """One change on a cluster. `name` is what changed: the number of a job or an incident, the name of a node or the id
    of an operation. `before` is empty if it is new; `state` is empty if it is gone."""

    at: float
    cluster: str
    kind: Literal["job", "node", "incident", "operation"]
    name: str
    state: str
    before: str = ""
    text: str = ""
    user: str = ""  # owner of the job, or the person who started the operation
    node: str = ""  # only for an incident
