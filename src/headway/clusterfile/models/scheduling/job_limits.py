"""Limits of jobs, as teams, users, QOS and partitions have them."""

from __future__ import annotations

from pydantic import Field

from headway.domain.teams import JobLimits, UserLimits
from headway.validation.field_types import FileSection, Size

_MIB = 1024**2


class ResourceLimitsPart(FileSection):
    """Largest numbers of allocated resources."""

    gpus: int | None = Field(
        None, ge=1, le=1_000_000, description="Largest number of GPUs; a MIG instance counts as one."
    )
    cpus: int | None = Field(None, ge=1, le=100_000_000, description="Largest number of CPUs.")
    nodes: int | None = Field(None, ge=1, le=1_000_000, description="Largest number of nodes.")
    memory: Size | None = Field(None, description="Largest amount of memory.", examples=["2 TiB"])


class JobsLimitsPart(ResourceLimitsPart):
    """Limits of all jobs of one kind together."""

    running_jobs: int | None = Field(None, ge=1, le=1_000_000, description="Largest number of running jobs.")
    submitted_jobs: int | None = Field(
        None, ge=1, le=1_000_000, description="Largest number of running and pending jobs."
    )


class UserLimitsPart(JobsLimitsPart):
    """Limits of the jobs of each user."""


class PerJobLimitsPart(ResourceLimitsPart):
    """Limits of each job."""


def resource_limits(part: ResourceLimitsPart) -> dict[str, int]:
    """Returns the limits that are given, by field of the domain; memory is in MiB, rounded up."""
    memory = None if part.memory is None else -(-part.memory // _MIB)
    given = {"gpus": part.gpus, "cpus": part.cpus, "nodes": part.nodes, "memory_mib": memory}
    return {name: number for name, number in given.items() if number is not None}


def resolve_user_limits(part: UserLimitsPart) -> UserLimits:
    """Returns the limits of each user."""
    found = resource_limits(part)
    return UserLimits(
        part.running_jobs, part.submitted_jobs, found.get("gpus"), found.get("cpus"), nodes=found.get("nodes"),
        memory_mib=found.get("memory_mib"),
    )  # fmt: skip


def resolve_job_limits(part: JobsLimitsPart) -> JobLimits:
    """Returns the limits of jobs together."""
    return JobLimits(part.running_jobs, part.submitted_jobs, resource_limits(part))
