"""Models of a cluster, its parts, and the requests and plans that change it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from headway.schemas.base import FaultOut, RequestModel, ResponseModel
from headway.schemas.nodes.nodes import NodeOut


class GitOrigin(RequestModel):
    """The commit that a cluster file was read from. `url` has no password in it; `ref` is what was asked for, "" the default
    branch. `scaled`: numbers of nodes were changed since by a scale."""

    url: str = Field(max_length=2000)
    ref: str = Field("", max_length=200)
    commit: str = Field(pattern=r"^([0-9a-f]{40}|[0-9a-f]{64})$")
    path: str = Field(max_length=1000)
    scaled: bool = False


class Document(RequestModel):
    """A cluster file as the client sends it. `text` is the YAML as the user wrote it (with its comments, to show it on
    the page). `spec` is the loaded mapping, with public keys inlined and absolute paths. `catalogue` holds the
    user's own plans."""

    text: str
    spec: dict[str, Any]
    catalogue: dict[str, Any] = {}
    owner: str = ""  # user name of the owner on the cluster; "" is the person of the token
    origin: GitOrigin | None = None  # None: the file is not from a commit


class ChangeOut(ResponseModel):
    """One change of a plan: what changes where, why, and what it disturbs."""

    kind: str
    where: str
    what: str
    why: str
    disturbs: str
    diff: list[str] = []


class DifferenceOut(ResponseModel):
    """A difference between the plan and a machine of provider ssh. What was found on the machine is used."""

    machine: str
    what: str
    plan: str
    found: str


class ChangeSetOut(ResponseModel):
    """A plan: the changes that an operation would make."""

    cluster: str
    changes: list[ChangeOut]
    why_empty: str = ""
    disturbing: int = 0  # number of changes that disturb something and need a confirmation
    digest: str = ""  # to be sent back with apply, which is refused if the plan has changed since
    warnings: list[FaultOut] = []
    price_usd_per_hour: str = ""  # nodes and spares at the plan's price; "" where machines are rented: see warnings
    differences: list[DifferenceOut] = []  # only for provider ssh


class SlurmExportOut(ResponseModel):
    """Plain Slurm files of a cluster, which run without Headway."""

    cluster: str
    files: dict[str, str]  # name -> text
    kept: int  # keys with the same value as in Headway's files
    changed: int
    left_out: int
    lost: list[str]  # of the cluster, and not in plain Slurm


class ApplyIn(RequestModel):
    """A request to apply a cluster file."""

    document: Document
    digest: str = ""  # of the ChangeSetOut that was confirmed; "" allows no change that needs a confirmation
    confirmed: bool = False  # a person (or --yes) agreed to what the change disturbs
    deadline_s: int | None = Field(
        None, ge=0, le=604_800
    )  # seconds that jobs may run on before their node is removed; None: nodes with jobs stay


class ScaleGroupsIn(RequestModel):
    """Changes the number of nodes. `groups` maps the name of each group to its new number of nodes; the name is "" if
    the cluster has only one group."""

    groups: dict[str, Annotated[int, Field(ge=0, le=20_000)]] = Field(min_length=1, max_length=50)
    digest: str = ""  # as in ApplyIn
    confirmed: bool = False
    deadline_s: int | None = Field(None, ge=0, le=604_800)


class GroupOut(ResponseModel):
    """A group of nodes: the wanted, the largest and the present number of nodes."""

    name: str
    plan: str
    nodes: int
    max: int
    machines: int = 0
    spares: int = 0
    idle_s: int | None = None  # set if the group scales automatically between `nodes` and `max`
    spot: bool = False
    price_usd_per_node_hour: str = ""  # "" where its machines are rented


class DownIn(RequestModel):
    """A request to take a cluster down. `delete_data` also deletes its data."""

    delete_data: bool = False


class CheckOut(ResponseModel):
    """One check of a cluster and its result."""

    name: str
    ok: bool
    message: str


class DriftOut(ResponseModel):
    """The last comparison of a running cluster with its file."""

    checked_at: float  # unix seconds
    changes: int  # number of changes that an apply of the file would make; 0: no difference
    objects: list[str] = []  # what differs and where, at most 20
    disturbs_work: bool = False  # the apply would need a confirmation


class OriginOut(ResponseModel):
    """The Git commit whose cluster file was applied last. `scaled`: numbers of nodes were changed since by a scale."""

    url: str
    ref: str = ""
    commit: str
    path: str
    scaled: bool = False


class ClusterOut(ResponseModel):
    """A cluster as last read. GPU and job counts are live figures."""

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
    price_usd_per_hour: str = (
        ""  # price of the nodes and spares, and of any further machines; "" where machines are rented
    )
    groups: list[GroupOut] = []
    created_at: float = 0
    as_of: float | None = None  # when the live figures were read from Slurm; None: never
    stale: str = ""  # why the live figures are old; "" if they are current
    drift: DriftOut | None = None  # None: not compared with its file since the last apply
    origin: OriginOut | None = None  # None: the file that was applied last is not from a commit


class StatusOut(ResponseModel):
    """A cluster with its checks and nodes."""

    cluster: ClusterOut
    checks: list[CheckOut]
    nodes: list[NodeOut]


class AccessOut(ResponseModel):
    """The settings with which a person reaches a cluster's login with plain ssh."""

    cluster: str
    user: str
    head: str
    address: str
    port: int = 22
    host_keys: list[str]  # known_hosts lines of head and nodes
    machines: dict[str, str] = {}  # heads and nodes: name -> address
    ports: dict[str, int] = {}  # name -> port, for machines that do not listen on 22
