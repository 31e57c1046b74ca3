"""partitions: Slurm partitions."""

from __future__ import annotations

from pydantic import Field

from headway.clusterfile.models.scheduling.job_limits import JobsLimitsPart, PerJobLimitsPart, UserLimitsPart
from headway.clusterfile.models.software.environments import (
    ContainerImage,
    DefaultEnvironment,
)
from headway.validation.field_types import (
    MOST_NODES,
    MOST_TEAMS,
    FileSection,
    GraceSeconds,
    Seconds,
    SlurmKeys,
)


class PartitionLimitsPart(JobsLimitsPart):
    """Limits of all jobs of a partition together. They replace the same limits of teams and QOS."""

    per_job: PerJobLimitsPart = Field(default_factory=PerJobLimitsPart, description="Limits of each of its jobs.")


class PartitionPart(FileSection):
    """A Slurm partition: nodes, time limits, teams and preemption."""

    default: bool = Field(False, description="Use it for jobs that name no partition (default: the first partition).")
    nodes: int | None = Field(None, ge=1, le=MOST_NODES, description="Use only the first N slots (default: all).")
    groups: list[str] = Field(
        default_factory=list,
        max_length=50,
        description="Use only nodes of these groups (default: all).",
        examples=[["gpu"]],
    )
    max_time: Seconds | None = Field(None, description="Longest time limit of a job, in a Slurm time format.")
    default_time: Seconds | None = Field(None, description="Time limit of a job without --time.")
    tier: int | None = Field(
        None, ge=1, le=65000, description="PriorityTier in Slurm: jobs of a higher tier are scheduled first."
    )
    preempts: list[str] = Field(
        default_factory=list,
        max_length=100,
        description="Partitions whose jobs it preempts (requeues): all preemptable partitions of a lower tier.",
        examples=[["train", "debug"]],
    )
    teams: list[str] = Field(
        default_factory=list, max_length=MOST_TEAMS, description="Teams that may use it (default: all)."
    )
    per_user: UserLimitsPart = Field(
        default_factory=UserLimitsPart,
        description="Limits of each user in it. They replace the same limits of the user's team.",
    )
    limits: PartitionLimitsPart = Field(
        default_factory=PartitionLimitsPart,
        description="Limits of its jobs. They replace the same limits of teams and of QOS.",
    )
    grace_time: GraceSeconds = Field(
        120,
        description="Seconds between preemption and the end of a job. The job first gets its --signal, else SIGTERM.",
    )
    environment: DefaultEnvironment | None = Field(
        None, description="Software environment of `headway run` in it without --environment."
    )
    container_image: ContainerImage | None = Field(
        None, description="Container image of `headway run` in it, instead of an environment."
    )
    slurm: SlurmKeys = Field(
        default_factory=dict, max_length=500, description="More keys of the partition's line in slurm.conf."
    )
