"""Models of people, tokens, teams and the audit trail."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from headway.domain.access.role import Role
from headway.schemas.base import RequestModel, ResponseModel


class PersonIn(RequestModel):
    """A person's role and Linux user on the clusters. If `user` is null, it stays as it is (a new person gets their own
    name). If it is "", the person has no Linux user and can only view."""

    role: Role
    user: str | None = Field(None, max_length=32)


class PersonOut(ResponseModel):
    """A person. `teams` are the teams of each cluster that they are in, by cluster. `provider` is true if they sign
    in through the sign-in provider, `provider_role` if it also sets their role at each sign-in; `provider_teams` are the
    teams that it put them in: TEAM of all clusters, or CLUSTER/TEAM. `disabled`: they can't sign in, and their Linux user is
    locked. `changes_due`: the clusters that have not locked it, or put it into its teams, yet, and why."""

    name: str
    role: str
    user: str = ""
    provider: bool = False
    provider_role: bool = False
    provider_teams: list[str] = []
    created_at: float = 0.0
    disabled: bool = False
    changes_due: dict[str, str] = {}
    teams: dict[str, list[str]] = {}
    leads: dict[str, list[str]] = {}


class AuditOut(ResponseModel):
    """One line of the audit trail. `result` is ok, refused or failed. `hash` covers the line and the hash of the line
    before it."""

    number: int
    at: float
    person: str
    action: str
    target: str
    result: str
    address: str = ""
    detail: dict[str, Any] = {}
    hash: str = ""


class AuditCheckOut(ResponseModel):
    """The result of a check of the audit trail's hashes. `number` and `hash` are of the last line; `broken_at` is the
    first line that does not match, 0 if all do, and `fault` says what is wrong."""

    lines: int
    number: int
    hash: str
    broken_at: int = 0
    fault: str = ""


class AuditPage(ResponseModel):
    """Audit entries, the latest first. `next` is the cursor of the next (older) page, or "" on the last page."""

    lines: list[AuditOut]
    next: str = ""


class TeamOut(ResponseModel):
    """A team's share and usage. Fractions are of the whole cluster; usage is that of the last days, with older usage
    counting less. Values are null if Slurm has not reported them or the person may not see them."""

    name: str
    users: list[str]
    leads: list[str] = []
    share: int
    share_fraction: float
    use_fraction: float | None = None
    gpu_hours: float | None = None
    fair_share: float | None = None  # 1: usage far below its share, 0: far above
    gpu_hours_cap: str = ""  # such as "1000 a month"
    gpu_hours_of_cap: float | None = None  # GPU-hours used since the cap was last reset, without decay
    jobs_running: int = 0
    jobs_pending: int = 0
    gpus_used: int = 0


class TeamsOut(ResponseModel):
    """`stale` says why the usage is missing; "" if it is present."""

    cluster: str
    teams: list[TeamOut]
    stale: str = ""


class LinuxUserOut(ResponseModel):
    """A Linux user of a cluster. The first team is the account of their jobs, unless they name another."""

    name: str
    teams: list[str]
    leads: list[str] = []
    admin: bool = False


class MeOut(ResponseModel):
    """The person of the request's token or session."""

    person: str
    role: str
    version: str


class SignInLinkOut(ResponseModel):
    """A link that signs a browser in once. `expires_at` is in unix seconds."""

    url: str
    expires_at: float
