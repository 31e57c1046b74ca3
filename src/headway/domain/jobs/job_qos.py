"""QOS that jobs choose with --qos: who may choose them, their limits, and which QOS they preempt."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal

from headway.domain.teams import UserLimits


@dataclass(frozen=True, slots=True)
class JobQos:
    """A resolved QOS. Resources are as in JobLimits."""

    name: str
    teams: tuple[str, ...]  # whose jobs may choose it
    priority: int = 0
    usage_factor: Decimal = Decimal(1)
    max_time_s: int | None = None  # None: the partition's
    running_jobs: int | None = None  # of all its jobs together
    submitted_jobs: int | None = None
    resources: Mapping[str, int] = field(default_factory=dict)  # of all its jobs together
    per_user: UserLimits = field(default_factory=UserLimits)
    per_job: Mapping[str, int] = field(default_factory=dict)
    preempts: tuple[str, ...] = ()  # QOS, or teams for the jobs that choose no QOS
    preempt_mode: str = "requeue"  # what happens to its jobs when they are preempted: "requeue" | "cancel"
    grace_s: int = 0  # seconds that its jobs have when they are preempted
    flags: tuple[str, ...] = ()  # Slurm's names, sorted
    users: tuple[str, ...] = ()  # who may choose it too, in all of their teams

    def is_for(self, user: str, team: str) -> bool:
        """Returns whether the user's jobs of a team may choose it."""
        return team in self.teams or user in self.users
