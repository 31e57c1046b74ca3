"""Rows of the database as other packages see them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headway.domain.operation import OperationKind, own_secret
from headway.domain.role import Role


@dataclass(frozen=True, slots=True)
class Person:
    name: str
    role: Role
    user: str | None = None  # their Linux user; None: of their own name, "": none
    subject: str = ""  # of the sign-in provider, for those who come by it
    created_at: float = 0.0


@dataclass(frozen=True, slots=True)
class TokenHolder:
    """Who holds a token, and what that token is cut down to."""

    person: Person
    scopes: tuple[str, ...]
    cluster: str  # "" = every one


@dataclass(frozen=True, slots=True)
class Token:
    """A token without its secret."""

    id: str
    person: str
    role: str
    label: str
    created_at: float
    expires_at: float | None
    last_used_at: float | None
    scopes: tuple[str, ...] = ("all",)
    cluster: str = ""  # "" = every one


@dataclass(frozen=True, slots=True)
class NodeImage:
    """Tags. `pinned`: what new machines of a cluster are made from, "" = the present image; `before`: what a roll goes back
    to, "" = nothing is known."""

    pinned: str = ""
    before: str = ""


@dataclass(frozen=True)
class ClusterRow:
    """`document` is the wire Document last applied, `summary` what lists show of it without resolving it again."""

    name: str
    document: Mapping[str, Any]
    summary: Mapping[str, Any]
    state: str  # creating | ready | changing | degraded | down | failed
    owner: str
    created_at: float


@dataclass(frozen=True)
class Operation:
    id: str
    number: int
    cluster: str
    kind: OperationKind
    person: str
    document: Mapping[str, Any]
    params: Mapping[str, Any]
    state: str  # queued | running | done | failed
    lease_owner: str
    lease_until: float
    attempts: int
    created_at: float
    started_at: float | None = None
    finished_at: float | None = None
    error: Mapping[str, Any] | None = None
    kept: tuple[str, ...] = field(default=())

    @property
    def finished(self) -> bool:
        return self.state in {"done", "failed"}

    @property
    def secret(self) -> str:
        return own_secret(self.kind, self.params)


@dataclass(frozen=True, slots=True)
class VolumeSpeedRow:
    """A volume's throughput from one machine, MiB a second; `error` where it could not be measured."""

    cluster: str
    path: str
    node: str
    mib: int
    at: float
    write_mib_s: float
    read_mib_s: float
    checkpoint_mib_s: float
    error: str


@dataclass(frozen=True, slots=True)
class OperationEvent:
    seq: int
    at: float
    step: str
    text: str
    level: str = "info"
    done: bool = False
    seconds: float | None = None


@dataclass(frozen=True)
class AuditRow:
    number: int
    at: float
    person: str
    action: str
    target: str
    detail: Mapping[str, Any]
    address: str = ""
    result: str = "ok"  # ok | refused | failed


HappeningPlace = tuple[
    float, str, int, int
]  # the moment, the kind, and two numbers by which those of a kind are told apart


@dataclass(frozen=True)
class ActivityRow:
    """`kind`: operation (name = its id, detail kind, error, took_s), incident (name = its number, detail text) or deed (name
    = the action as the audit has it, node = what it was done to)."""

    at: float
    kind: str
    name: str
    state: str
    person: str
    node: str
    detail: Mapping[str, Any]
    number: int  # of an operation, an incident, a line of the audit trail
    seq: int = 0  # of an incident's step

    @property
    def place(self) -> HappeningPlace:
        """In the one order that all kinds have together; no two share it."""
        return (self.at, self.kind, self.number, self.seq)


@dataclass(frozen=True)
class JobRecord:
    """A job as it was submitted. `request` is the wire SubmitIn without secret values; `facts` what was known of it then
    (git, launcher, container image, datasets, folder)."""

    cluster: str
    job_id: int
    at: float
    person: str
    user: str
    kind: str  # submit | run | retry | rerun
    parent: int  # the job that a retry or rerun repeats, else 0
    pipeline: str
    step: str
    request: Mapping[str, Any]
    facts: Mapping[str, Any]


@dataclass(frozen=True)
class PipelineRow:
    id: str
    cluster: str
    name: str
    person: str
    user: str
    at: float
    workdir: str
    document: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class NotebookRow:
    """`secret` is for its job and the server alone."""

    id: str
    cluster: str
    job_id: int  # 0: it is being submitted, or that was cut off
    person: str
    user: str
    folder: str  # on the cluster: socket, log and settings
    secret: str
    idle_s: int
    at: float


@dataclass(frozen=True, slots=True)
class PriceRow:
    """What a node of a group costs from `since` on, until a later row."""

    cluster: str
    group: str
    since: float
    usd_per_hour: str  # as a decimal: "31.2"
    spot: bool
    reserved: int = 0  # machines that are paid for whether they are there or not


@dataclass(frozen=True)
class InvoiceRow:
    """A closed invoice. `document`: the invoice and who paid what of it, as billing.invoice.packed and
    billing.chargeback.packed make them."""

    number: int
    cluster: str
    period: str  # "2026-10"
    closed_at: float
    closed_by: str
    document: Mapping[str, Any]
