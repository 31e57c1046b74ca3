"""teams, users and departures: who uses the cluster, and what each team may use."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Annotated, Literal

from pydantic import Field, model_validator

from headway.clusterfile.models.network import TeamNetworkPart
from headway.clusterfile.models.scheduling.job_limits import JobsLimitsPart, UserLimitsPart, resolve_user_limits
from headway.clusterfile.models.software.environments import (
    ContainerImage,
    DefaultEnvironment,
)
from headway.domain.teams import UserLimits
from headway.validation.field_types import (
    MOST_USERS,
    FileSection,
    PublicKey,
    Uid,
    UserName,
    value_error,
)

GpuPart = Annotated[str, Field(pattern=r"^([1-7]g\.[1-9][0-9]{0,2}gb|shard|mps)$")]


class GpuHoursPart(FileSection):
    """GPU-hours per period."""

    hours: Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False, description="GPU-hours in one period.")]
    per: Literal["day", "week", "month", "quarter", "year"] = Field(description="The period.")


class MemberLimitsPart(UserLimitsPart):
    """Limits of each user of a team."""

    recent_gpu_hours: Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False)] | None = Field(
        None,
        description="Largest number of a user's GPU-hours. Use fades: that of 7 days ago (PriorityDecayHalfLife) counts "
        "half.",
    )


def resolve_member_limits(part: MemberLimitsPart) -> UserLimits:
    """Returns the limits of a user of a team."""
    hours = part.recent_gpu_hours
    recent = None if hours is None else Decimal(f"{hours:.15g}")
    return replace(resolve_user_limits(part), recent_gpu_hours=recent)


class TeamLimitsPart(JobsLimitsPart):
    """Limits of all jobs of a team together."""

    gpu_hours: GpuHoursPart | None = Field(None, description="GPU-hours per period.")
    gpu_parts: dict[GpuPart, Annotated[int, Field(ge=1, le=1_000_000)]] = Field(
        default_factory=dict,
        max_length=20,
        description="Largest number of allocated parts of GPUs: MIG instances by profile, shard, mps (per cent).",
        examples=[{"3g.71gb": 4, "shard": 16}],
    )
    per_user: MemberLimitsPart = Field(default_factory=MemberLimitsPart, description="Limits of each user of the team.")
    users: dict[UserName, MemberLimitsPart] = Field(
        default_factory=dict,
        max_length=MOST_USERS,
        description="Limits of single users of the team. They replace the same limits in per_user.",
        examples=[{"alice": {"gpus": 16}}],
    )


class BudgetPart(FileSection):
    """Budget of a team per period: money or GPU-hours."""

    usd: Annotated[float, Field(gt=0, le=1e12, allow_inf_nan=False)] | None = Field(
        None, description="US dollars for the resources that its jobs hold."
    )
    gpu_hours: Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False)] | None = Field(
        None, description="GPU-hours that its jobs hold."
    )
    per: Literal["day", "week", "month", "quarter", "year"] = Field("month", description="The period.")
    warn: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] = Field(
        0.8, description="Warn the team when it has used this share."
    )
    cap: bool = Field(
        True, description="Start no more jobs of the team when the budget is spent; running jobs continue."
    )

    @model_validator(mode="after")
    def _one_of_them(self) -> BudgetPart:
        if (self.usd is None) == (self.gpu_hours is None):
            raise value_error("must have either usd or gpu_hours", "for example budget: {usd: 20000, per: month}")
        return self


class TeamPart(FileSection):
    """Users of one Slurm account."""

    users: list[UserName] = Field(
        default_factory=list, max_length=MOST_USERS, description="User names.", examples=[["alice", "bob"]]
    )
    leads: list[UserName] = Field(
        default_factory=list,
        max_length=MOST_USERS,
        description="Users of the team who may manage its jobs.",
        examples=[["alice"]],
    )
    parent: str | None = Field(
        None,
        description="Team above it: both share the part of that team, and its limits hold for both.",
        examples=["science"],
    )
    share: int = Field(
        1, ge=1, le=1_000_000, description="Fair share, relative to the other teams, or to those with the same parent."
    )
    limits: TeamLimitsPart = Field(default_factory=TeamLimitsPart, description="Limits.")
    budget: BudgetPart | None = Field(None, description="Budget of the team (default: none).")
    default_qos: str | None = Field(
        None, description="QOS of its jobs without --qos (default: the team's own, with its limits).", examples=["high"]
    )
    own_qos: bool = Field(
        True,
        description="Whether its jobs may choose the QOS with the team's name, which has only the team's limits; false needs "
        "default_qos.",
    )
    environment: DefaultEnvironment | None = Field(
        None,
        description="Software environment of its `headway run` without --environment; the partition's comes first.",
    )
    container_image: ContainerImage | None = Field(
        None, description="Container image of its `headway run`, instead of an environment."
    )
    network: TeamNetworkPart = Field(
        default_factory=TeamNetworkPart, description="What its jobs may reach (default: as in the cluster's network)."
    )


class UserPart(FileSection):
    """One person."""

    ssh_keys: list[PublicKey] = Field(
        default_factory=list, max_length=100, description="Public key files, or public keys as text."
    )
    uid: Uid | None = Field(
        None,
        description="Uid on all machines, for people who own files on other machines already (default: the one that all own "
        "machines agree on, else a new one). It can't change after the first apply.",
    )


class DeparturesPart(FileSection):
    """What happens when a user is removed from the file."""

    jobs: Literal["cancel", "finish"] = Field(
        "cancel", description="Cancel the user's running jobs, or let them finish."
    )
