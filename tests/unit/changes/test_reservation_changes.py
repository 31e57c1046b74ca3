"""Reservations of the cluster file become those in Slurm; people's own stay."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

import pytest

from headway.changes.reservation_changes import creation_words, description, reservation_changes
from headway.domain.slurm.reservations import ObservedReservation, ObservedReservations, PlannedReservation

NODES = ("lab-1-1", "lab-1-2")
NOW = datetime.fromisoformat("2026-11-29T06:40")  # a Sunday
WINDOW = PlannedReservation(
    "window", datetime.fromisoformat("2026-12-05T22:00"), 21600, users=("root",), flags=("IGNORE_JOBS", "MAINT")
)
CLASS = PlannedReservation(
    "class", datetime.fromisoformat("2026-11-02T09:00"), 7200, "weekday", nodes=NODES[:1], accounts=("vision",),
    flags=("WEEKDAY",),
)  # fmt: skip


def seen(planned: PlannedReservation, start: str, end: str, *more: str) -> ObservedReservation:
    return ObservedReservation(
        planned.name, datetime.fromisoformat(start), datetime.fromisoformat(end), planned.nodes or NODES,
        planned.node_count or len(planned.nodes or NODES), "train", planned.users, planned.accounts,
        frozenset((*planned.flags, "SPEC_NODES", *more)),
    )  # fmt: skip


THERE = (
    seen(WINDOW, "2026-12-05T22:00", "2026-12-06T04:00", "ALL_NODES"),
    seen(CLASS, "2026-11-30T09:00", "2026-11-30T11:00"),
)


def words(*planned: PlannedReservation, there: tuple[ObservedReservation, ...] = (), made: str = "") -> list[list[str]]:
    found = reservation_changes(planned, NODES, ObservedReservations(there, frozenset(made.split()), NOW))
    return [[change.kind.removeprefix("reservation."), *change.data["words"]] for change in found]  # type: ignore[misc]


def test_new_reservations_begin_at_their_next_time() -> None:
    assert words(WINDOW, CLASS) == [
        ["create", "ReservationName=window", "StartTime=2026-12-05T22:00:00", "EndTime=2026-12-06T04:00:00", "Nodes=ALL",
         "Users=root", "Flags=IGNORE_JOBS,MAINT"],
        ["create", "ReservationName=class", "StartTime=2026-11-30T09:00:00", "EndTime=2026-11-30T11:00:00", "Nodes=lab-1-1",
         "Accounts=vision", "Flags=WEEKDAY"],
    ]  # fmt: skip
    assert description(CLASS) == "from 2026-11-02 09:00 for 2 h, weekday, lab-1-1, for vision"


def test_reservation_that_has_begun_starts_now_and_one_that_is_over_is_not_made() -> None:
    begun = replace(WINDOW, start=datetime.fromisoformat("2026-11-29T06:00"), nodes=(), node_count=1)
    assert creation_words(begun, NOW)[1:4] == ["StartTime=now", "EndTime=2026-11-29T12:00:00", "NodeCnt=1"]
    assert words(begun, there=(seen(begun, "2026-11-29T06:39", "2026-11-29T12:00"),)) == []
    assert words(replace(WINDOW, start=datetime.fromisoformat("2026-11-28T06:00"))) == []
    endless = replace(begun, duration_s=None)
    assert "EndTime=2100-01-01T00:00:00" in creation_words(endless, NOW)


def test_the_same_reservations_are_no_change() -> None:
    assert words(WINDOW, CLASS, there=THERE, made="window class") == []


@pytest.mark.parametrize(
    ("planned", "changed"),
    [
        (replace(WINDOW, duration_s=3600), ["StartTime=2026-12-05T22:00:00", "EndTime=2026-12-05T23:00:00"]),
        (replace(WINDOW, nodes=NODES[1:]), ["Nodes=lab-1-2"]),
        (replace(WINDOW, users=(), accounts=("vision",)), ["Users=", "Accounts=vision"]),
        (replace(CLASS, start=datetime.fromisoformat("2026-11-02T10:00")),
         ["StartTime=2026-11-30T10:00:00", "EndTime=2026-11-30T12:00:00"]),
        (replace(CLASS, repeat="daily", flags=("DAILY", "FLEX")), ["Flags+=DAILY,FLEX", "Flags-=WEEKDAY"]),
    ],
)  # fmt: skip
def test_differences_are_updates(planned: PlannedReservation, changed: list[str]) -> None:
    assert words(planned, there=THERE) == [["update", f"ReservationName={planned.name}", *changed]]


BEGUN = replace(WINDOW, start=datetime.fromisoformat("2026-11-29T06:00"))
DAILY = replace(CLASS, start=datetime.fromisoformat("2026-11-02T06:00"), repeat="daily", flags=("DAILY",))
RUNNING = (
    seen(BEGUN, "2026-11-29T06:05", "2026-11-29T12:00", "ALL_NODES"),
    seen(DAILY, "2026-11-29T06:00", "2026-11-29T08:00"),
)


@pytest.mark.parametrize(
    ("planned", "changed"),
    [
        (replace(BEGUN, duration_s=36000), ["EndTime=2026-11-29T16:00:00"]),
        (replace(BEGUN, duration_s=3600), ["EndTime=2026-11-29T07:00:00"]),
        (replace(BEGUN, duration_s=None), ["EndTime=2100-01-01T00:00:00"]),
        (replace(BEGUN, start=datetime.fromisoformat("2026-11-29T05:00")), ["EndTime=2026-11-29T11:00:00"]),
        (replace(BEGUN, duration_s=36000, users=("root", "sam")), ["EndTime=2026-11-29T16:00:00", "Users=root,sam"]),
        (replace(DAILY, duration_s=3600), ["EndTime=2026-11-29T07:00:00"]),
        (replace(DAILY, duration_s=10800), ["EndTime=2026-11-29T09:00:00"]),
    ],
)
def test_of_one_that_has_begun_only_the_end_changes(planned: PlannedReservation, changed: list[str]) -> None:
    """Slurm refuses each start, also the same one, of a reservation that has begun."""
    assert words(planned, there=RUNNING) == [["update", f"ReservationName={planned.name}", *changed]]


def test_occurrence_that_has_just_ended_is_no_change() -> None:
    """Slurm moves it to the next day some seconds later."""
    early = replace(DAILY, start=datetime.fromisoformat("2026-11-02T04:00"))
    assert words(early, there=(seen(early, "2026-11-29T04:00", "2026-11-29T06:00"),)) == []


@pytest.mark.parametrize(
    ("planned", "times"),
    [
        (replace(BEGUN, start=datetime.fromisoformat("2026-11-30T06:00")),
         ["StartTime=2026-11-30T06:00:00", "EndTime=2026-11-30T12:00:00"]),
        (replace(DAILY, start=datetime.fromisoformat("2026-12-02T06:00")),
         ["StartTime=2026-12-02T06:00:00", "EndTime=2026-12-02T08:00:00"]),
        (replace(DAILY, start=datetime.fromisoformat("2026-11-02T05:00")),
         ["StartTime=2026-11-30T05:00:00", "EndTime=2026-11-30T07:00:00"]),
        # The present occurrence is over by the file, and Slurm refuses an end before now.
        (replace(DAILY, duration_s=1800), ["StartTime=2026-11-30T06:00:00", "EndTime=2026-11-30T06:30:00"]),
    ],
)  # fmt: skip
def test_one_that_has_begun_is_made_again_if_its_start_moves(planned: PlannedReservation, times: list[str]) -> None:
    removal, creation = words(planned, there=RUNNING)
    assert removal == ["delete", f"ReservationName={planned.name}"]
    assert creation[:4] == ["create", f"ReservationName={planned.name}", *times]


def test_only_reservations_that_an_apply_has_made_are_removed() -> None:
    assert words(WINDOW, there=THERE, made="window class") == [["delete", "ReservationName=class"]]
    assert words(WINDOW, there=THERE, made="window") == []
