"""A cluster, what it consists of, and what changes it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from headway.domain.operation import OperationKind
from headway.schemas.base import Ask, ErrorOut, FaultOut, Wire


class Document(Ask):
    """What the client sends for a cluster file. `text` is the YAML as the user wrote it (comments kept for the page);
    `spec` the loaded mapping with public keys inlined and paths absolute; `catalogue` the user's own plans."""

    text: str
    spec: dict[str, Any]
    catalogue: dict[str, Any] = {}
    owner: str = ""  # the person's user name on the cluster; "" = the token's person


class ChangeOut(Wire):
    kind: str
    where: str
    what: str
    why: str
    disturbs: str
    diff: list[str] = []


class DifferenceOut(Wire):
    """Where the plan and a machine one owns disagree; what is there is what counts."""

    machine: str
    what: str
    plan: str
    found: str


class ChangeSetOut(Wire):
    cluster: str
    changes: list[ChangeOut]
    why_empty: str = ""
    asks: int = 0  # how many of them disturb something a person is asked about
    digest: str = ""  # send it back with apply: a plan that has changed since is refused
    warnings: list[FaultOut] = []
    price_usd_per_hour: str = ""  # nodes and spares at the plan's price
    differences: list[DifferenceOut] = []  # provider ssh


class ApplyIn(Ask):
    document: Document
    digest: str = ""  # of the ChangeSet that was confirmed; "" = nothing to confirm allowed
    confirmed: bool = False  # a person (or --yes) agreed to what it disturbs
    deadline_s: int | None = Field(
        None, ge=0, le=604_800
    )  # so long may jobs go on where nodes go; None: none goes then


class ScaleIn(Ask):
    """Another number of nodes. `groups`: by a group's name; "" where the cluster has one."""

    groups: dict[str, Annotated[int, Field(ge=0, le=20_000)]] = Field(min_length=1, max_length=50)
    digest: str = ""  # as in ApplyIn
    confirmed: bool = False
    deadline_s: int | None = Field(None, ge=0, le=604_800)


class RollIn(Ask):
    """Nodes of another image. `by_s`: jobs may go on so long on nodes whose turn it is; None: until they end. `back`: to the
    image before, not to the present one. `head`: the head too, at the end. `stop`: what a roll has drained serves again, and it
    goes on no further."""

    by_s: int | None = Field(None, ge=0, le=604_800)
    back: bool = False
    head: bool = False
    stop: bool = False


class GroupOut(Wire):
    """A group of nodes: how many there should be, may be, and are."""

    name: str
    plan: str
    nodes: int
    max: int
    machines: int = 0
    spares: int = 0
    idle_s: int | None = None  # it scales by itself, from `nodes` to `max`
    spot: bool = False
    price_usd_per_node_hour: str = ""


class DownIn(Ask):
    delete_data: bool = False


OperationState = Literal["queued", "running", "done", "failed"]


class OperationOut(Wire):
    id: str
    cluster: str
    kind: OperationKind
    state: OperationState
    person: str
    created_at: float
    started_at: float | None = None
    finished_at: float | None = None
    error: ErrorOut | None = None
    kept: list[
        str
    ] = []  # down: what was kept, where; backup: the file; roll, scale, apply: the operation that goes on with it


class EventOut(Wire):
    """One line of an operation's progress. An open step is `done=False`; its end repeats `step` with done and seconds."""

    seq: int
    at: float
    step: str  # "machines", "lab-1-2", "accounting", ...
    text: str
    level: Literal["info", "warning", "error"] = "info"
    done: bool = False
    seconds: float | None = None


class NewsOut(Wire):
    """One thing that happened on a cluster. `name` says to what: a job's number, a node, an incident's number, an
    operation's id; `before` is empty for what is new, `state` for what is gone."""

    at: float
    cluster: str
    kind: Literal["job", "node", "incident", "operation"]
    name: str
    state: str
    before: str = ""
    text: str = ""
    user: str = ""  # whose job, or who asked for the operation
    node: str = ""  # of an incident


# --- reading


class GpuOut(Wire):
    index: int
    job_id: int | None = None  # the job that holds it


class NodeOut(Wire):
    name: str
    role: Literal["head", "node", "spare"]
    leaf: str = ""
    group: str = ""
    plan: str = ""
    address: str = ""
    machine: str = ""  # provider's word: running, stopped, missing
    states: list[str] = []  # Slurm's words
    reason: str = ""
    gpus: list[GpuOut] = []
    cpus: int = 0
    cpus_used: int = 0
    memory_mib: int = 0
    memory_used_mib: int = 0
    partitions: list[str] = []
    usable: bool = False


class CheckOut(Wire):
    name: str
    ok: bool
    message: str


class ClusterOut(Wire):
    name: str
    state: Literal["creating", "ready", "changing", "degraded", "down", "failed"]
    provider: str
    image: str
    slurm_version: str
    plan: str
    gpu_type: str
    nodes: int
    spares: int
    gpus: int
    gpus_used: int = 0
    simulated_gpus: bool
    jobs_running: int = 0
    jobs_pending: int = 0
    price_usd_per_hour: str = ""  # nodes and spares at their price, and what machines there are beyond them
    groups: list[GroupOut] = []
    created_at: float = 0
    as_of: float | None = None  # when the live figures were read from Slurm; None = never
    stale: str = ""  # why live figures are old, "" when fresh


class StatusOut(Wire):
    cluster: ClusterOut
    checks: list[CheckOut]
    nodes: list[NodeOut]
