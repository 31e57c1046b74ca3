"""Slurm's reservations, as a cluster file has them and as scontrol reports them. headway.changes compares the two."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

MAINTENANCE = "MAINT"
# Flags that a cluster file sets, also by its fields; Slurm adds others, such as SPEC_NODES.
FLAGS = frozenset({
    MAINTENANCE, "IGNORE_JOBS", "OVERLAP", "FLEX", "MAGNETIC", "NO_HOLD_JOBS_AFTER", "REPLACE", "REPLACE_DOWN", "ANY_NODES",
    "DAILY", "HOURLY", "WEEKLY", "WEEKDAY", "WEEKEND",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class PlannedReservation:
    """A reservation of the cluster file. `start` is in the head's time zone. `nodes`: their names, () = all, or any
    `node_count` of them."""

    name: str
    start: datetime
    duration_s: int | None  # None: without end
    repeat: str = ""  # "" | "hourly" | "daily" | "weekly" | "weekday" | "weekend"
    nodes: tuple[str, ...] = ()
    node_count: int | None = None
    partition: str = ""  # whose nodes Slurm chooses, for a number of nodes
    users: tuple[str, ...] = ()
    accounts: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()  # Slurm's names, sorted, with those of `repeat`

    @property
    def end(self) -> datetime | None:
        """Returns the end of the first occurrence; None without end."""
        return None if self.duration_s is None else self.start + timedelta(seconds=self.duration_s)


@dataclass(frozen=True, slots=True)
class ObservedReservation:
    """A reservation as scontrol shows it. Times are in the head's time zone."""

    name: str
    start: datetime
    end: datetime
    nodes: tuple[str, ...]
    node_count: int
    partition: str
    users: tuple[str, ...]
    accounts: tuple[str, ...]
    flags: frozenset[str]


@dataclass(frozen=True, slots=True)
class ObservedReservations:
    """All reservations but Headway's own ones. `made`: names of those that an apply has made; `now`: the head's clock."""

    listed: tuple[ObservedReservation, ...]
    made: frozenset[str]
    now: datetime
