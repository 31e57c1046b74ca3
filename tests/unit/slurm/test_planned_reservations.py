"""Reservations are read as scontrol prints them; Headway's own ones are left out."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from headway.slurm.planned_reservations import apply_reservation_change, parse_reservations
from tests.support.clusters.slurm_commands import HEAD, OK, Scontrol

SPARES = (Path(__file__).parents[2] / "recorded_slurm" / "24.11" / "reservation.txt").read_text()
# as Slurm 24.11 has printed it
CLASS = (
    "ReservationName=class StartTime=2026-11-30T09:00:00 EndTime=2026-11-30T11:00:00 Duration=02:00:00 Nodes=lab-1-[1-2] "
    "NodeCnt=2 CoreCnt=384 Features=(null) PartitionName=(null) Flags=FLEX,DAILY,SPEC_NODES TRES=cpu=384 Users=(null) "
    "Groups=(null) Accounts=speech,vision Licenses=(null) State=INACTIVE BurstBuffer=(null) MaxStartDelay=(null)\n"
)


def test_reads_reservations_and_those_that_an_apply_has_made() -> None:
    found = parse_reservations(f"class\n=== reservations 2026-11-29T06:40:00\n{SPARES}{CLASS}")
    (one,) = found.listed
    assert (one.name, one.nodes, one.node_count, one.users, one.accounts) == (
        "class", ("lab-1-1", "lab-1-2"), 2, (), ("speech", "vision"),
    )  # fmt: skip
    assert one.flags == {"FLEX", "DAILY", "SPEC_NODES"}
    assert (found.made, found.now) == ({"class"}, datetime.fromisoformat("2026-11-29T06:40"))
    none = parse_reservations("=== reservations 2026-11-29T06:40:00\nNo reservations in the system\n")
    assert (none.listed, none.made) == ((), frozenset())


async def test_runs_the_command_of_a_change() -> None:
    create = ("scontrol", "create", "reservation", "ReservationName=a", "Nodes=ALL")
    delete = ("scontrol", "delete", "ReservationName=a")
    slurm = Scontrol({create: OK, delete: OK})
    await apply_reservation_change(slurm, HEAD, {"verb": "create", "words": list(create[3:])})
    await apply_reservation_change(slurm, HEAD, {"verb": "delete", "words": ["ReservationName=a"]})
    assert slurm.said == [create, delete]
