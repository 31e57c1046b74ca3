"""reservations: nodes that are kept for users, teams or maintenance at certain times."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from headway.domain.cluster import Slot
from headway.domain.slurm.reservations import MAINTENANCE, PlannedReservation
from headway.domain.teams import Team, with_subteams
from headway.validation.field_types import (
    MOST_NODES,
    MOST_TEAMS,
    MOST_USERS,
    UNLIMITED,
    FileSection,
    Seconds,
    UserName,
    value_error,
)

ReservationFlag = Literal["FLEX", "IGNORE_JOBS", "MAGNETIC", "NO_HOLD_JOBS_AFTER", "OVERLAP", "REPLACE_DOWN"]
_LOCAL_TIME = re.compile(r"20[0-9]{2}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}(:[0-9]{2})?")
ROOT = "root"


def _local_time(text: str) -> str:
    if parse_local_time(text) is None:
        raise value_error("is not a date and time", "for example 2026-12-05T22:00, in the time zone of the head")
    return text


def parse_local_time(text: str) -> datetime | None:
    """Returns a date and time without a time zone; None for another text."""
    if not _LOCAL_TIME.fullmatch(text):
        return None
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


class ReservationPart(FileSection):
    """A reservation: jobs of others do not start on its nodes if they could not end before it begins."""

    start: Annotated[str, AfterValidator(_local_time)] = Field(
        description="Start, in the time zone of the head.", examples=["2026-12-05T22:00"]
    )
    duration: Seconds = Field(description="Length, in a Slurm time format; infinite: until it is removed.")
    repeat: Literal["hourly", "daily", "weekly", "weekday", "weekend"] | None = Field(
        None, description="Repeat it (default: once)."
    )
    maintenance: bool = Field(
        False, description="Maintenance: no job runs but root's, and accounting counts the time as planned."
    )
    nodes: Annotated[int, Field(ge=1, le=MOST_NODES)] | Annotated[list[str], Field(max_length=MOST_NODES)] | None = (
        Field(
            None,
            description="Names of slots, or a number of nodes that Slurm chooses (default: all nodes, or all of `groups`).",
        )
    )
    groups: list[str] = Field(
        default_factory=list, max_length=50, description="All nodes of these groups.", examples=[["gpu"]]
    )
    partition: str | None = Field(
        None, description="With a number of nodes: the partition from which Slurm chooses them."
    )
    teams: list[str] = Field(
        default_factory=list, max_length=MOST_TEAMS, description="Teams whose jobs may use it by --reservation."
    )
    users: list[UserName] = Field(
        default_factory=list, max_length=MOST_USERS, description="Users whose jobs may use it by --reservation."
    )
    flags: list[ReservationFlag] = Field(
        default_factory=list, max_length=20, description="Flags of Slurm.", examples=[["MAGNETIC"]]
    )


def resolve_reservations(
    parts: Mapping[str, ReservationPart], slots: Iterable[Slot], teams: Iterable[Team]
) -> tuple[PlannedReservation, ...]:
    """Returns the reservations of the file; `slots` and `teams` are those of the cluster."""
    parents = {team.name: team.parent for team in teams}
    all_slots = tuple(slots)
    return tuple(_resolve(name, part, all_slots, parents) for name, part in parts.items())


def _resolve(
    name: str, part: ReservationPart, slots: tuple[Slot, ...], parents: Mapping[str, str]
) -> PlannedReservation:
    start = parse_local_time(part.start)
    assert start is not None  # the model has checked it
    named = tuple(part.nodes) if isinstance(part.nodes, list) else ()
    grouped = tuple(slot.name for slot in slots if slot.group in part.groups)
    flags = {*part.flags, *([part.repeat.upper()] if part.repeat else ())}
    # Without IGNORE_JOBS Slurm refuses a maintenance while jobs run that may end after its start.
    flags |= {MAINTENANCE, "IGNORE_JOBS"} if part.maintenance else set()
    accounts = with_subteams(part.teams, parents)
    users = tuple(part.users) or (() if accounts else (ROOT,))
    return PlannedReservation(
        name=name,
        start=start,
        duration_s=None if part.duration == UNLIMITED else part.duration,
        repeat=part.repeat or "",
        nodes=named or grouped,
        node_count=part.nodes if isinstance(part.nodes, int) else None,
        partition=part.partition or "",
        users=tuple(sorted(users)),
        accounts=tuple(sorted(accounts)),
        flags=tuple(sorted(flags)),
    )
