"""Requests and answers about models of MLflow's registry: versions, approvals, promotions."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from headway.schemas.base import RequestModel, ResponseModel
from headway.schemas.submission.job_field_types import GitIn

PROMOTION_ENDED = frozenset({"promoted", "refused"})
_ALIAS = r"^[A-Za-z][A-Za-z0-9_-]{0,63}$"
_RESERVED_ALIAS = r"^(v[0-9]+|latest)$"  # of MLflow, in any case


def _alias(text: str) -> str:
    if re.match(_RESERVED_ALIAS, text.lower()):
        raise ValueError("latest and v1, v2, ... are names that MLflow keeps for versions")
    return text


ModelName = Annotated[str, Field(min_length=1, max_length=256, pattern=r"^[^/:@]+$")]
Alias = Annotated[str, Field(pattern=_ALIAS), AfterValidator(_alias)]
VersionNumber = Annotated[int, Field(ge=1, le=2**31 - 1)]


class ModelVersionOut(ResponseModel):
    """A version of a model. `run`: its run in MLflow, `job` the job that logged it (0: none of this cluster). `metrics`: the
    run's last values, null where a value is not finite; only in the answer about one model."""

    version: int
    created_at: float
    aliases: list[str] = []
    run: str = ""
    job: int = 0
    metrics: dict[str, float | None] = {}


class ApprovalOut(ResponseModel):
    """An approval of a version. `roles`: those of the person at that time. `files`: digest of the files that they approved."""

    name: str
    version: int
    person: str
    roles: list[str]
    files: str
    note: str = ""
    at: float


class ModelOut(ResponseModel):
    """A model of a team. `versions`: the newest first; in a list only the latest one."""

    name: str
    team: str
    versions: list[ModelVersionOut] = []
    aliases: dict[str, int] = {}  # alias -> number of the version
    approvals: list[ApprovalOut] = []


class GateOut(ResponseModel):
    """A gate of a promotion: what it wants and what it saw. `job_id`: of the job whose metric it reads."""

    name: str
    state: Literal["waiting", "passed", "failed", "skipped"]
    wants: str
    saw: str = ""
    job_id: int = 0


class PromotionIn(RequestModel):
    """A promotion of a version to an alias. `team`: "" if the name is enough. `gates`: the loaded gates file. `bundle` and `git`:
    the files of the gates' jobs."""

    model: ModelName
    version: VersionNumber
    team: str = Field(default="", max_length=64)
    to: Alias
    gates: dict[str, Any] = {}
    bundle: str = Field(default="", pattern=r"^([0-9a-f]{64})?$")
    git: GitIn | None = None
    user: str = ""  # admins only
    dry_run: bool = False  # checks the gates that need no job; stores nothing


class PromotionOut(ResponseModel):
    """A promotion. `files`: digest of the version's files, "" until they were read. `former`: the version that had the alias
    before. `id` is "" for a dry run."""

    id: str
    cluster: str
    team: str
    model: str
    version: int
    alias: str
    person: str
    user: str
    created_at: float
    ended_at: float | None = None
    state: str  # pending, running (jobs of gates), promoting, promoted or refused; planned for a dry run
    why: str = ""
    gates: list[GateOut] = []
    files: str = ""
    former: int | None = None
    has_manifest: bool = False


class ApprovalIn(RequestModel):
    """An approval of a version, such as licence or data."""

    version: VersionNumber
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,47}$")]
    note: str = Field(default="", max_length=2000)


class RequiredGatesIn(RequestModel):
    """The gates that an alias requires from now on: the loaded gates file; {} for none."""

    gates: dict[str, Any]


class RequiredGatesOut(ResponseModel):
    """The gates that all promotions of a team's models to an alias must pass. `person` has set them; "" if there are none."""

    team: str
    alias: str
    gates: dict[str, Any]
    person: str = ""
    at: float = 0.0


class ManifestOut(ResponseModel):
    """A signed manifest: an in-toto statement in a DSSE envelope, as JSON text."""

    manifest: str


class SigningKeyOut(ResponseModel):
    """The public key (PEM) of the key that signs the manifests of a cluster."""

    public_key: str
