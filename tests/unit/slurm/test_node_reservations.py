"""Reservations are read and changed, against answers of a real scontrol."""

from __future__ import annotations

from pathlib import Path

import pytest

from headway.errors import CommandFailed
from headway.slurm import node_reservations
from tests.support.clusters.slurm_commands import HEAD, OK, Scontrol

SHOW = ("scontrol", "--oneliner", "show", "reservation", "headway_spares")
HELD = (Path(__file__).parents[2] / "recorded_slurm" / "24.11" / "reservation.txt").read_text()
NONE = (1, "", "Reservation headway_spares not found")


async def test_creates_updates_and_deletes_spare_reservation() -> None:
    name = "ReservationName=headway_spares"
    # An end of its own: Slurm takes "infinite" for one year, and the spares would be ordinary nodes from then on.
    create = ("scontrol", "create", "reservation", name, "Nodes=lab-1-[3-4]", "EndTime=2100-01-01",
              "Flags=IGNORE_JOBS,OVERLAP", "Users=root", "StartTime=now")  # fmt: skip
    slurm = Scontrol({SHOW: NONE, create: OK})
    await node_reservations.set_reserved_nodes(slurm, HEAD, ["lab-1-3", "lab-1-4"])
    assert slurm.said == [SHOW, create]

    # One that was made without OVERLAP has it from then on: a user's own reservation may name any node.
    update = ("scontrol", "update", "reservation", name, "Nodes=lab-1-4", "EndTime=2100-01-01",
              "Flags=IGNORE_JOBS,OVERLAP")  # fmt: skip
    slurm = Scontrol({SHOW: (0, HELD, ""), update: OK})
    await node_reservations.set_reserved_nodes(slurm, HEAD, ["lab-1-4"])
    assert slurm.said == [SHOW, update]

    delete = ("scontrol", "delete", name)
    slurm = Scontrol({SHOW: (0, HELD, ""), delete: OK})
    await node_reservations.set_reserved_nodes(slurm, HEAD, [])
    assert slurm.said == [SHOW, delete]


async def test_reservation_in_use_by_job_is_not_deleted() -> None:
    delete = ("scontrol", "delete", "ReservationName=headway_spares")
    used = (1, "", "Error deleting the reservation headway_spares: Requested reservation is in use")
    slurm = Scontrol({SHOW: (0, HELD, ""), delete: used})
    await node_reservations.set_reserved_nodes(slurm, HEAD, [])
    assert slurm.said == [SHOW, delete]
    with pytest.raises(CommandFailed):
        await node_reservations.set_reserved_nodes(
            Scontrol({SHOW: (0, HELD, ""), delete: (1, "", "Access/permission denied")}), HEAD, []
        )


async def test_flaky_node_reservation_is_open_to_all_accounts() -> None:
    show = (*SHOW[:-1], "headway_flaky")
    create = ("scontrol", "create", "reservation", "ReservationName=headway_flaky", "Nodes=lab-1-2",
              "EndTime=2100-01-01", "Flags=IGNORE_JOBS,OVERLAP", "Accounts=root", "StartTime=now")  # fmt: skip
    slurm = Scontrol({show: (1, "", "Reservation headway_flaky not found"), create: OK})
    await node_reservations.set_reserved_nodes(slurm, HEAD, ["lab-1-2"], "headway_flaky")
    assert slurm.said == [show, create]


async def test_unchanged_reservation_sends_no_command() -> None:
    slurm = Scontrol({SHOW: (0, HELD, "")})
    await node_reservations.set_reserved_nodes(slurm, HEAD, ["lab-1-2"])
    assert slurm.said == [SHOW]
    slurm = Scontrol({SHOW: NONE})
    await node_reservations.set_reserved_nodes(slurm, HEAD, [])
    assert slurm.said == [SHOW]


async def test_unreachable_slurmctld_raises_command_failed() -> None:
    slurm = Scontrol({SHOW: (1, "", "slurm_load_reservations error: Unable to contact slurm controller")})
    with pytest.raises(CommandFailed):
        await node_reservations.reserved_nodes(slurm, HEAD)
