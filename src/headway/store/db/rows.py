"""Rows of the database, as other packages use them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headway.domain.access.job_secret import OwnerKind, SecretOwner
from headway.domain.access.role import Role
from headway.domain.operation_kinds import OperationKind, own_secret
from headway.validation.syntax_rules import user_name_from


@dataclass(frozen=True, slots=True)
class Person:
    """A person who may use the server."""

    name: str
    role: Role
    user: str | None = None  # their Linux user; None: same as their name, "": none
    subject: str = ""  # subject at the sign-in provider, for people who sign in through it
    created_at: float = 0.0
    provider_teams: tuple[str, ...] = ()  # from the sign-in provider: names of teams, or CLUSTER/TEAM
    disabled: bool = False  # may not sign in, and their Linux user is locked

    @property
    def linux_user(self) -> str:
        """Returns their Linux user on the clusters; "" if they have none."""
        return user_name_from(self.name) if self.user is None else self.user


@dataclass(frozen=True, slots=True)
class ProvisionedUser:
    """What the identity provider sent by SCIM about a person. `external_id` is the person's id at the provider,
    `attributes` what else was sent, as `schemas.access.scim.UserAttributes`."""

    id: str
    person: str
    user_name: str
    external_id: str
    attributes: Mapping[str, Any]
    created_at: float
    changed_at: float
    disabled: bool  # as of the person


@dataclass(frozen=True, slots=True)
class ProvisionedGroup:
    """A group that the identity provider sent by SCIM."""

    id: str
    display_name: str
    external_id: str
    created_at: float
    changed_at: float


@dataclass(frozen=True, slots=True)
class GroupsReading:
    """The groups of the user with the id `user`, as they were at `version`. A change of rights that was computed from an older
    version is refused."""

    user: str
    version: int
    groups: tuple[ProvisionedGroup, ...]


@dataclass(frozen=True, slots=True)
class DueUserChange:
    """A Linux user that a cluster must lock, unlock or put into other teams. `cause`: "lock" or "teams". `person` is who
    caused it, `error` why the last try failed; `done_at`: it is done, and repeated in case an older operation undoes it."""

    cluster: str
    user: str
    at: float
    cause: str
    person: str
    tries: int
    error: str
    done_at: float | None


@dataclass(frozen=True, slots=True)
class TokenHolder:
    """The holder of a token, and the restrictions of the token."""

    id: str  # of the token
    person: Person
    scopes: tuple[str, ...]
    cluster: str  # "" = all clusters
    provider_session: str | None = None  # as in SignIn
    expires_at: float | None = None  # unix seconds; None: a person asked for a token without end


@dataclass(frozen=True, slots=True)
class SignIn:
    """When a person proved who they are. `authenticated_at` is 0 if that is unknown. `provider_session`: the sign-in
    provider's name (claim sid) of the session that the sign-in came from; "" if it has none, None for another way.
    `token_id`: the token that it came from, "" for another way."""

    authenticated_at: float
    provider_session: str | None = None
    token_id: str = ""


@dataclass(frozen=True, slots=True)
class SessionHolder:
    """The person of a browser session, and how the session came about."""

    person: Person
    sign_in: SignIn


@dataclass(frozen=True, slots=True)
class OidcFlow:
    """A browser that was sent to the sign-in provider and came back."""

    nonce: str
    verifier: str
    started_at: float
    again: bool  # the provider had to ask the person for their password again
    next_path: str  # the page to show after the sign-in


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
    cluster: str = ""  # "" = all clusters


@dataclass(frozen=True, slots=True)
class Session:
    """A browser session without its secret."""

    id: str
    person: str
    created_at: float
    expires_at: float
    last_used_at: float
    how: str  # it was opened: link | token | provider
    address: str
    browser: str  # its User-Agent
    current: bool = False  # the one of the request


@dataclass(frozen=True, slots=True)
class NodeImage:
    """Image tags of a cluster. `pinned`: the image for new machines, "" = the present image; `before`: the image that
    a roll back returns to, "" = unknown."""

    pinned: str = ""
    before: str = ""


@dataclass(frozen=True)
class ClusterRow:
    """A cluster. `document` is the wire Document last applied; `summary` is what lists show, so that they need not
    resolve the document again."""

    name: str
    document: Mapping[str, Any]
    summary: Mapping[str, Any]
    state: str  # creating | ready | changing | degraded | down | failed
    owner: str
    created_at: float
    # schemas.clusters.DriftOut of the last comparison with its file; None: none since the last apply
    drift: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Operation:
    """An operation on a cluster, such as an apply or a down."""

    id: str
    number: int
    cluster: str
    subject: str  # what it works on, see OperationParams.subject
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
        """Returns whether the operation is done or failed."""
        return self.state in {"done", "failed"}

    @property
    def secret(self) -> str:
        """Returns the name of the operation's own secret."""
        return own_secret(self.kind, self.params)


@dataclass(frozen=True, slots=True)
class VolumeSpeedRow:
    """Measured throughput of a volume from one node, in MiB per second. `error`: why it could not be measured."""

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
    """One line of an operation's progress."""

    seq: int
    at: float
    step: str
    text: str
    level: str = "info"
    done: bool = False
    seconds: float | None = None


@dataclass(frozen=True)
class AuditRow:
    """One line of the audit trail."""

    number: int
    at: float
    person: str
    action: str
    target: str
    detail: Mapping[str, Any]
    address: str = ""
    result: str = "ok"  # ok | refused | failed
    hash: str = ""


ActivityPlace = tuple[float, str, int, int]  # time, kind, and two numbers that distinguish entries of the same kind


@dataclass(frozen=True)
class ActivityRow:
    """Something that happened on a cluster. `kind`: operation (name = its id; detail: kind, error, took_s), incident
    (name = its number; detail: text) or action (name = the action in the audit trail, node = its target)."""

    at: float
    kind: str
    name: str
    state: str
    person: str
    node: str
    detail: Mapping[str, Any]
    number: int  # number of the operation, the incident or the audit line
    seq: int = 0  # number of the incident's step

    @property
    def place(self) -> ActivityPlace:
        """Returns the position in the common order of all kinds; no two rows have the same one."""
        return (self.at, self.kind, self.number, self.seq)


@dataclass(frozen=True)
class JobSecretRow:
    """A secret of jobs. `sealed` is its encrypted value."""

    cluster: str
    kind: OwnerKind
    owner: str
    name: str
    sealed: str = field(repr=False)
    person: str  # who set it
    at: float

    @property
    def secret_owner(self) -> SecretOwner:
        """Returns the Linux user or team whose jobs get the secret."""
        return SecretOwner(self.kind, self.owner)


@dataclass(frozen=True)
class JobRecord:
    """A job as it was submitted. `request` is the SubmitIn request without secret values; `facts` is what was known at
    that time (git, launcher, container image, datasets, folder)."""

    cluster: str
    job_id: int
    at: float
    person: str
    user: str
    kind: str  # submit | run | retry | rerun
    parent: int  # the job that a retry or rerun repeats, or 0
    pipeline: str  # id of the pipeline, or of the sweep
    step: str  # of the pipeline, or number of the trial
    request: Mapping[str, Any]
    facts: Mapping[str, Any]


@dataclass(frozen=True)
class PipelineRow:
    """A submitted pipeline."""

    id: str
    cluster: str
    name: str
    person: str
    user: str
    at: float
    workdir: str
    document: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class SweepRow:
    """A sweep. `document`: the sweep file, and what its trials need (bundle, git, mark, usd_per_hour, gpus)."""

    id: str
    cluster: str
    name: str
    person: str
    user: str
    at: float
    document: Mapping[str, Any]
    state: str  # running | done | failed | stopped
    why: str
    ended_at: float | None  # when its last trial had ended


@dataclass(frozen=True, slots=True)
class TrialRow:
    """A trial of a sweep. `job_id`: 0 until sbatch has answered."""

    sweep: str
    cluster: str
    number: int
    parameters: Mapping[str, Any]
    at: float
    state: str = "submitting"  # waiting | submitting | pending | running | done | failed | stopped (early) | cancelled
    job_id: int = 0
    ended_at: float | None = None
    step: int = -1  # step and value of the newest report of the sweep's metric
    value: float | None = None  # None: not reported, NaN or infinite
    rungs: Mapping[str, float | None] = field(
        default_factory=dict
    )  # step of a rung -> value there; None: NaN, infinite
    why: str = ""
    started_at: float = 0.0  # of its present run
    earlier_s: float = 0.0  # seconds of runs before a requeue
    run_s: float = 0.0  # seconds of all runs


@dataclass(frozen=True, slots=True)
class BatchKey:
    """The fields of a batch by which lists are ordered and filtered."""

    id: str
    at: float
    person: str
    name: str


@dataclass(frozen=True, slots=True)
class BatchRow:
    """A batch. `document`: the request, and what its job needs (see services.batches.stored_batch)."""

    id: str
    cluster: str
    name: str  # also of the dataset that its results become
    person: str
    user: str
    at: float
    document: Mapping[str, Any]
    state: str = "submitting"  # submitting | running | adding (the dataset version) | done | failed | stopped
    why: str = ""
    submission: int = 1  # number of the job that works on it; a retry submits another one
    submitted_at: float = 0.0
    job_id: int = 0  # an array; 0 until sbatch has answered
    progress: Mapping[str, Any] = field(default_factory=dict)  # as node/batch_worker/status.py tells it
    operation: str = ""  # that adds the dataset version
    dataset: str = ""  # NAME@VERSION
    ended_at: float | None = None  # when its job had ended and the version was added


@dataclass(frozen=True, slots=True)
class NotebookRow:
    """A notebook. `secret` must only be known to its job and the server."""

    id: str
    cluster: str
    job_id: int  # 0: being submitted, or the submission was interrupted
    person: str
    user: str
    folder: str  # folder on the cluster for its socket, log and settings
    secret: str
    idle_s: int
    at: float


@dataclass(frozen=True)
class InvoiceRow:
    """A closed invoice. `document`: the invoice and its chargeback, as made by billing.cluster_invoice.packed and
    billing.chargeback.packed."""

    number: int
    cluster: str
    period: str  # for example "2026-10"
    closed_at: float
    closed_by: str
    document: Mapping[str, Any]
