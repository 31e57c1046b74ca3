"""The snapshot of a cluster in memory: its nodes, jobs and machines as last read, and its recent events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from headway.domain.machines.machine import Machine
from headway.domain.readiness import ReadinessCheck
from headway.domain.slurm.job_states import RUNNING, WAITING
from headway.domain.slurm.nodes_and_jobs import JobState, NodeState, Reservation
from headway.schemas.jobs import ProgressOut

UNUSED_ORDER_S = 60.0  # seconds after which an unused order of jobs and its reading are dropped


@dataclass(frozen=True)
class RecentEvent:
    """One line of a cluster's recent history."""

    at: float
    text: str
    level: str = "info"  # info, warning or error
    where: str = ""


@dataclass(frozen=True)
class Snapshot:
    """A cluster as last read. `stale` says why the figures are old; "" if they are current."""

    cluster: str
    nodes: tuple[NodeState, ...] = ()
    jobs: tuple[JobState, ...] = ()  # queued, running, and those that ended within the last minutes
    machines: tuple[Machine, ...] = ()
    checks: tuple[ReadinessCheck, ...] = ()
    progress: dict[int, ProgressOut] = field(default_factory=dict)
    as_of: float | None = None  # None: never read
    stale: str = ""
    reservations: tuple[Reservation, ...] = ()
    held_slots: tuple[NodeState, ...] = ()  # slots without a machine that Slurm may not power up now
    job_rows: dict[int, bytes] = field(default_factory=dict, compare=False)  # job id -> its JSON for lists
    # Query -> its result and the reading that it was made from (this one or an earlier one).
    job_orders: dict[Any, tuple[Any, Snapshot]] = field(default_factory=dict, compare=False)
    # Cache of values computed from this snapshot
    derived: dict[Any, Any] = field(default_factory=dict, init=False, compare=False)

    @cached_property
    def counts(self) -> tuple[int, int]:
        """Returns the number of (running, waiting) jobs."""
        states = Counter(job.state for job in self.jobs)
        return sum(states[word] for word in RUNNING), sum(states[word] for word in WAITING)

    @cached_property
    def gpus_used(self) -> int:
        """Returns the number of allocated GPUs."""
        return sum(node.gpus_used for node in self.nodes)

    @cached_property
    def has_failed_nodes(self) -> bool:
        """Returns whether a node that should be in service is not."""
        return any(not (node.usable or node.changes) for node in self.nodes)

    @cached_property
    def by_id(self) -> dict[int, JobState]:
        """Returns the jobs by number."""
        return {job.id: job for job in self.jobs}

    def pop_recent_orders(self, now: float) -> dict[Any, tuple[Any, Snapshot]]:
        """Returns `job_orders` for the next reading, without those that have not been used for UNUSED_ORDER_S, and
        empties them here: otherwise each reading would keep all earlier ones in memory."""
        young = {
            question: entry
            for question, entry in self.job_orders.items()
            if now - (entry[1].as_of or 0.0) < UNUSED_ORDER_S
        }
        self.job_orders.clear()
        return young

    def with_ended(self, history: Iterable[JobState]) -> tuple[JobState, ...]:
        """Returns the snapshot's jobs, and those that only accounting still has."""
        return tuple(({job.id: job for job in history} | self.by_id).values())
