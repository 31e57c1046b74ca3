"""People, tokens, roles, teams, the audit trail, and the server itself."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from headway.domain.role import Role
from headway.schemas.base import Ask, Wire


class AccessOut(Wire):
    """What plain ssh needs to reach a cluster's login as this person."""

    cluster: str
    user: str
    head: str
    address: str
    port: int = 22
    host_keys: list[str]  # known_hosts lines for head and nodes
    machines: dict[str, str] = {}  # heads and nodes: name -> address
    ports: dict[str, int] = {}  # name -> port, of those that do not listen on 22


Scope = Literal["read", "jobs", "nodes", "all"]


class TokenIn(Ask):
    person: str = ""  # "" = oneself; another's only by an admin
    role: Role | None = None
    label: str = Field("", max_length=200)
    days: int | None = Field(None, ge=1, le=36_500)
    scopes: list[Scope] = Field(["all"], min_length=1, max_length=4)
    cluster: str = Field("", max_length=64)  # good for this one alone; "" = every one


class TokenOut(Wire):
    id: str
    person: str
    role: str
    label: str
    created_at: float
    expires_at: float | None = None
    last_used_at: float | None = None
    scopes: list[str] = ["all"]
    cluster: str = ""
    token: str | None = None  # only in the answer that creates it


class PersonIn(Ask):
    """`user`: their Linux user on the clusters; None: as it is (of their own name for somebody new), "": none, so that they
    only look on."""

    role: Role
    user: str | None = Field(None, max_length=32)


class PersonOut(Wire):
    """`teams`: by cluster, those that its file has them in. `provider`: they sign in by the sign-in provider."""

    name: str
    role: str
    user: str = ""
    provider: bool = False
    created_at: float = 0.0
    teams: dict[str, list[str]] = {}
    leads: dict[str, list[str]] = {}


class AuditOut(Wire):
    """`result`: ok | refused | failed."""

    number: int
    at: float
    person: str
    action: str
    target: str
    result: str
    address: str = ""
    detail: dict[str, Any] = {}


class AuditPage(Wire):
    """The latest first. `next`: the cursor of the lines before these; "" when there are none."""

    lines: list[AuditOut]
    next: str = ""


class TeamOut(Wire):
    """A team's share against its use. Fractions are of the cluster, of the last days with older use counting less and less;
    None where Slurm has not said, or it is not the asking person's to see."""

    name: str
    users: list[str]
    leads: list[str] = []
    share: int
    share_fraction: float
    use_fraction: float | None = None
    gpu_hours: float | None = None
    fair_share: float | None = None  # 1: far below its share, 0: far above
    gpu_hours_cap: str = ""  # "1000 a month"
    gpu_hours_of_cap: float | None = None  # used since it was refilled, of which nothing fades
    jobs_running: int = 0
    jobs_pending: int = 0
    gpus_used: int = 0


class TeamsOut(Wire):
    """`stale`: why the use is missing, "" when it is there."""

    cluster: str
    teams: list[TeamOut]
    stale: str = ""


class UserOut(Wire):
    """A Linux user of a cluster. The first team is the account of their jobs unless they say another."""

    name: str
    teams: list[str]
    leads: list[str] = []
    admin: bool = False


class MeOut(Wire):
    person: str
    role: str
    version: str


class SignInLinkOut(Wire):
    url: str
    expires_at: float


class ServerOut(Wire):
    url: str
    version: str
    pid: int
    state_dir: str
    database: str
    clusters: int
    leads: bool = True  # of the servers on its database it is the one that carries out operations and acts on faults


class HappeningOut(Wire):
    """One thing that happened on a cluster. `operation` and `incident` say which one it belongs to, `node` where it was."""

    at: float
    kind: Literal["operation", "incident", "deed"]
    level: Literal["info", "warning", "error"] = "info"
    text: str
    node: str = ""
    person: str = ""  # who did it or asked for it; "" for what came by itself
    operation: str = ""
    incident: int | None = None


class HappeningPage(Wire):
    """The latest first. `next`: the cursor of what was before these; "" when there was nothing."""

    happenings: list[HappeningOut]
    next: str = ""
