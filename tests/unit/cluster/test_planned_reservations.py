"""An apply carries out the changes of reservations, and names those that Slurm refuses after the others."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from headway.cluster.context import ClusterContext
from headway.cluster.planned_reservations import update_reservations
from headway.domain.slurm.reservations import PlannedReservation
from headway.errors import Refused
from headway.slurm import planned_reservations
from tests.support.clusters import builders
from tests.support.clusters.slurm_commands import HEAD, OK, Scontrol

READ = ("sh", "-c", planned_reservations._READ)
SHOWN = """\
window
=== reservations 2026-11-29T06:40:00
ReservationName=window StartTime=2026-11-29T06:00:00 EndTime=2026-11-29T12:00:00 Nodes=lab-1-1 NodeCnt=1 Users=root Flags=
"""
LATER = PlannedReservation(
    "window", datetime.fromisoformat("2026-11-30T06:00"), 21600, nodes=("lab-1-1",), users=("root",)
)
DELETE = ("scontrol", "delete", "ReservationName=window")
CREATE = (
    "scontrol", "create", "reservation", "ReservationName=window", "StartTime=2026-11-30T06:00:00",
    "EndTime=2026-11-30T12:00:00", "Nodes=lab-1-1", "Users=root",
)  # fmt: skip


async def updated(slurm: Scontrol) -> None:
    async def none(*_: Any, **__: Any) -> None: ...

    context: Any = ClusterContext(None, None, slurm, Path())  # type: ignore[arg-type]
    await update_reservations(replace(builders.cluster(), reservations=(LATER,)), context, HEAD, none)


async def test_one_that_has_begun_and_moves_is_removed_and_made() -> None:
    slurm = Scontrol({READ: (0, SHOWN, ""), DELETE: OK, CREATE: OK})
    await updated(slurm)
    assert slurm.said == [READ, DELETE, CREATE]


async def test_one_that_slurm_does_not_remove_is_not_made_again() -> None:
    """Its jobs run: Slurm would answer only that the name exists."""
    slurm = Scontrol({READ: (0, SHOWN, ""), DELETE: (1, "", "Error: Requested reservation is in use")})
    with pytest.raises(Refused) as caught:
        await updated(slurm)
    assert caught.value.message == "reservation window: Error: Requested reservation is in use"
    assert slurm.said == [READ, DELETE]
