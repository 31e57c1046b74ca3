"""What the page of the schedule shows as text: its table, and the form of a window as it was sent."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from headway.errors import Refused
from headway.schemas.nodes.schedule import (
    ReservationNotInSlurmOut,
    ScheduledJobOut,
    ScheduledReservationOut,
    ScheduleOut,
)
from headway.services.nodes.planned_windows import PlannedWindow

ROWS = 100  # jobs of each kind in the table
_LATEST = 4_102_444_800  # the year 2100
_FIELDS = ("remove", "window", "kind", "nodes", "start", "start_at", "hours", "users", "teams")
NEW_WINDOW = dict.fromkeys(_FIELDS, "") | {"kind": "maintenance", "hours": "4"}  # the form of a window, by field
KINDS = {
    "maintenance": "maintenance",
    "reservation": "reservation",
    "spares": "spares",
    "flaky": "flaky nodes",
    "test": "node under test",
}


@dataclass(frozen=True)
class ScheduleTable:
    """The table below the chart: reservations and the first jobs. `more`: by state, jobs that are left out; `unplaced`:
    planned starts for which Slurm names no nodes, so that the chart cannot show them."""

    cluster: str
    reservations: tuple[ScheduledReservationOut, ...]
    not_in_slurm: tuple[ReservationNotInSlurmOut, ...]
    jobs: tuple[ScheduledJobOut, ...]
    more: Mapping[str, int]
    running: int
    planned: int
    unplanned: int
    unplaced: int
    read: bool
    may_change: bool
    kinds: Mapping[str, str] = field(default_factory=lambda: KINDS)


def schedule_table(cluster: str, schedule: ScheduleOut, *, may_change: bool) -> ScheduleTable:
    """Returns the table of a schedule. `may_change`: the person may remove reservations of the file."""
    kinds = {state: [job for job in schedule.jobs if job.state == state] for state in ("running", "planned")}
    planned = kinds["planned"]
    return ScheduleTable(
        cluster=cluster,
        reservations=tuple(schedule.reservations),
        not_in_slurm=tuple(schedule.not_in_slurm),
        jobs=tuple(job for jobs in kinds.values() for job in jobs[:ROWS]),
        more={state: len(jobs) - ROWS for state, jobs in kinds.items() if len(jobs) > ROWS},
        running=len(kinds["running"]),
        planned=len(planned),
        unplanned=schedule.unplanned,
        unplaced=sum(not job.nodes for job in planned),
        read=schedule.as_of is not None,
        may_change=may_change,
    )


def window_of(sent: Mapping[str, str]) -> PlannedWindow:
    """Returns the window of the form. The page's script sends `start_at` in unix seconds; without it `start` is UTC. Raises
    Refused."""
    maintenance = sent.get("kind", "maintenance") == "maintenance"
    start = _start(sent)
    name = sent.get("window", "").strip()
    if not name:
        name = f"{'maintenance' if maintenance else 'reservation'}-{datetime.fromtimestamp(start, UTC):%Y%m%d-%H%M}"
    try:
        hours = float(sent.get("hours", ""))
    except ValueError:
        hours = math.nan
    if not math.isfinite(hours):
        raise Refused(f"{sent.get('hours', '')[:20]!r} is not a number of hours", hint="give a number, for example 4")
    words = {key: tuple(sent.get(key, "").replace(",", " ").split()) for key in ("users", "teams")}
    return PlannedWindow(name, sent.get("nodes", ""), start, hours, maintenance, words["users"], words["teams"])


def _start(sent: Mapping[str, str]) -> int:
    at, text = sent.get("start_at", ""), sent.get("start", "")
    if at.isascii() and at.isdigit() and int(at[:12]) <= _LATEST:
        return int(at[:12]) // 60 * 60
    try:
        return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())
    except ValueError:
        raise Refused(f"{text[:20]!r} is not a date and time", hint="for example 2026-12-05T22:00") from None
