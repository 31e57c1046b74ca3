"""Requests and answers about services."""

from __future__ import annotations

from typing import Any

from pydantic import Field, model_validator

from headway.schemas.base import RequestModel, ResponseModel
from headway.schemas.submission.job_field_types import GitIn
from headway.schemas.submission.run_request import ScriptLine

MAX_REPLICAS = 1000


class ServiceIn(RequestModel):
    """A service to run, or the new version of a running one. `document` is the loaded service file."""

    document: dict[str, Any]
    bundle: str = Field(default="", pattern=r"^([0-9a-f]{64})?$")
    git: GitIn | None = None
    user: str = ""  # admins only
    dry_run: bool = False  # returns the script of a replica; stores nothing


class ServiceScaleIn(RequestModel):
    """How many replicas a service may have."""

    min: int = Field(ge=0, le=MAX_REPLICAS)
    max: int = Field(ge=1, le=MAX_REPLICAS)

    @model_validator(mode="after")
    def _ordered(self) -> ServiceScaleIn:
        if self.min > self.max:
            raise ValueError("min must not be above max")
        return self


class ServiceKeyIn(RequestModel):
    """A new key of a service. `per_minute`: the most requests a minute; null: no limit."""

    label: str = Field(default="", max_length=200)
    per_minute: int | None = Field(default=None, ge=1, le=10_000_000)


class ServiceKeyOut(ResponseModel):
    """A key of a service. `key` is its text, which only the answer to its creation has."""

    id: str
    service: str  # TEAM/NAME
    label: str
    person: str
    created_at: float
    per_minute: int | None = None  # requests; null: no limit
    key: str = ""


class ReplicaOut(ResponseModel):
    """A replica of a service. `sessions`: requests that it is answering."""

    number: int
    version: int
    state: str  # submitting, pending, starting, serving, standby, unhealthy, draining, ending, ended
    since: float
    job_id: int = 0
    node: str = ""
    port: int = 0
    sessions: int = 0
    requests: int = 0
    why: str = ""
    failed: bool = False
    ended_at: float | None = None


class ServiceEventOut(ResponseModel):
    """A decision about a service, in words. `at`: Unix seconds."""

    at: float
    text: str


class ServiceOut(ResponseModel):
    """A service. Lists leave out its replicas that have ended. `id` is "" for a dry run. Figures are those since the
    service or the proxy was started; times are means of the last 1,024 requests of each present replica, in milliseconds."""

    id: str
    cluster: str
    team: str
    name: str
    person: str
    user: str
    created_at: float
    ended_at: float | None = None
    state: str  # running, stopped; planned for a dry run
    why: str = ""
    version: int = 1
    url: str = ""  # address of the service; "" while the head's address is unknown
    health: str = ""
    min: int = 0
    max: int = 0
    wanted: int = 0  # replicas that should get requests now
    standby: int = 0  # replicas that should be ready beyond these
    events: list[ServiceEventOut] = []  # the latest decisions; only of one service
    healthy: int = 0  # replicas that answer requests
    replicas: list[ReplicaOut] = []
    active: int = 0  # requests that run or wait
    requests: int = 0
    errors_4xx: int = 0
    errors_5xx: int = 0
    retries: int = 0
    first_byte_ms: int = 0
    total_ms: int = 0
    file: dict[str, Any] = {}  # the service file; only of one service, for those who may change it
    script: list[ScriptLine] = []  # of a replica, for a dry run
    warning: str = ""
