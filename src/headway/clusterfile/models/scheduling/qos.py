"""qos: QOS that jobs choose with --qos."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Annotated, Literal

from pydantic import Field

from headway.clusterfile.models.scheduling.job_limits import (
    JobsLimitsPart,
    PerJobLimitsPart,
    UserLimitsPart,
    resolve_user_limits,
    resource_limits,
)
from headway.domain.jobs.job_qos import JobQos
from headway.domain.teams import Team, with_subteams
from headway.validation.field_types import (
    MOST_TEAMS,
    MOST_USERS,
    UNLIMITED,
    FileSection,
    GraceSeconds,
    Seconds,
    UserName,
)

QosFlag = Literal[
    "DenyOnLimit", "NoDecay", "NoReserve", "OverPartQOS", "PartitionMaxNodes", "PartitionMinNodes", "PartitionTimeLimit",
    "RequiresReservation", "UsageFactorSafe",
]  # fmt: skip


class QosLimitsPart(JobsLimitsPart):
    """Limits of the jobs of a QOS. They replace the same limits of teams and users."""

    per_user: UserLimitsPart = Field(default_factory=UserLimitsPart, description="Limits of each user in it.")
    per_job: PerJobLimitsPart = Field(default_factory=PerJobLimitsPart, description="Limits of each of its jobs.")


class QosPart(FileSection):
    """A QOS that jobs choose with --qos."""

    teams: list[str] = Field(
        default_factory=list,
        max_length=MOST_TEAMS,
        description="Teams whose jobs may choose it (default: all, or none if users are given).",
    )
    users: list[UserName] = Field(
        default_factory=list,
        max_length=MOST_USERS,
        description="Users whose jobs may choose it too, in each of their teams.",
        examples=[["alice"]],
    )
    priority: int = Field(
        0,
        ge=0,
        le=1_000_000_000,
        description="Priority of its jobs: the QOS with the largest number gives PriorityWeightQOS, the others their part.",
        examples=[100],
    )
    max_time: Seconds | None = Field(
        None, description="Longest time limit of a job, in a Slurm time format (default: the partition's)."
    )
    limits: QosLimitsPart = Field(default_factory=QosLimitsPart, description="Limits of its jobs.")
    preempts: list[str] = Field(
        default_factory=list,
        max_length=MOST_TEAMS,
        description="QOS whose jobs it preempts. The name of a team stands for the jobs of the team that choose no QOS.",
        examples=[["standby"]],
    )
    preempt_mode: Literal["requeue", "cancel"] = Field(
        "requeue", description="Requeue or cancel its jobs when they are preempted."
    )
    grace_time: GraceSeconds = Field(
        120,
        description="Seconds between preemption and the end of a job. The job first gets its --signal, else SIGTERM.",
    )
    usage_factor: Annotated[float, Field(ge=0, le=1000, allow_inf_nan=False)] = Field(
        1.0, description="Factor by which the use of its jobs counts for fair share and limits of usage."
    )
    flags: list[QosFlag] = Field(
        default_factory=list, max_length=20, description="Flags of Slurm.", examples=[["DenyOnLimit"]]
    )


def resolve_qos(parts: Mapping[str, QosPart], teams: Iterable[Team]) -> tuple[JobQos, ...]:
    """Returns the QOS of the file; `teams` are all teams of the cluster."""
    parents = {team.name: team.parent for team in teams}
    preempted = {name for part in parts.values() for name in part.preempts}
    return tuple(
        JobQos(
            name=name,
            teams=with_subteams(part.teams or ([] if part.users else parents), parents),
            users=tuple(dict.fromkeys(part.users)),
            priority=part.priority,
            usage_factor=Decimal(f"{part.usage_factor:.6f}"),
            max_time_s=None if part.max_time == UNLIMITED else part.max_time,
            running_jobs=part.limits.running_jobs,
            submitted_jobs=part.limits.submitted_jobs,
            resources=resource_limits(part.limits),
            per_user=resolve_user_limits(part.limits.per_user),
            per_job=resource_limits(part.limits.per_job),
            preempts=tuple(part.preempts),
            preempt_mode=part.preempt_mode,
            grace_s=part.grace_time if name in preempted else 0,
            flags=tuple(sorted(set(part.flags))),
        )
        for name, part in parts.items()
    )
