"""What is said to Slurm, word by word, against the answers that a real scontrol gave."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from headway.errors import CommandFailed
from headway.machines.run import Ran
from headway.slurm import control
from tests.builders import machine

HEAD = machine("lab-head")
SHOW = ("scontrol", "--oneliner", "show", "reservation", "headway_spares")
HELD = (Path(__file__).parents[1] / "slurm" / "24.11" / "reservation.txt").read_text()
NONE = (1, "", "Reservation headway_spares not found")


class Scontrol:
    """Answers registered argv only; `said` holds the rest of them in order."""

    def __init__(self, answers: dict[Sequence[str], tuple[int, str, str]]) -> None:
        self.answers = answers
        self.said: list[tuple[str, ...]] = []

    async def remote(self, machine: Any, argv: Sequence[str], *, check: bool = True, **_: Any) -> Ran:
        code, out, err = self.answers[tuple(argv)]
        if tuple(argv) != SHOW:
            self.said.append(tuple(argv))
        if check and code:
            raise CommandFailed(argv, code, err, where=machine.name)
        return Ran(tuple(argv), code, out, err, 0.0)


OK = (0, "", "")


async def test_the_reservation_is_made_updated_and_removed_as_needed() -> None:
    name = "ReservationName=headway_spares"
    # An end of its own: Slurm takes "infinite" for one year, and the spares would be ordinary nodes from then on.
    create = ("scontrol", "create", "reservation", name, "Nodes=lab-1-[3-4]", "EndTime=2100-01-01", "Users=root",
              "StartTime=now", "Flags=IGNORE_JOBS")  # fmt: skip
    slurm = Scontrol({SHOW: NONE, create: OK})
    await control.set_spare_reservation(slurm, HEAD, ["lab-1-3", "lab-1-4"])
    assert slurm.said == [create]

    update = ("scontrol", "update", "reservation", name, "Nodes=lab-1-4", "EndTime=2100-01-01")
    slurm = Scontrol({SHOW: (0, HELD, ""), update: OK})
    await control.set_spare_reservation(slurm, HEAD, ["lab-1-4"])
    assert slurm.said == [update]

    delete = ("scontrol", "delete", name)
    slurm = Scontrol({SHOW: (0, HELD, ""), delete: OK})
    await control.set_spare_reservation(slurm, HEAD, [])
    assert slurm.said == [delete]


async def test_nothing_is_said_when_it_is_so_already() -> None:
    slurm = Scontrol({SHOW: (0, HELD, "")})
    await control.set_spare_reservation(slurm, HEAD, ["lab-1-2"])
    assert slurm.said == []
    slurm = Scontrol({SHOW: NONE})
    await control.set_spare_reservation(slurm, HEAD, [])
    assert slurm.said == []


async def test_an_unreachable_controller_is_not_taken_for_no_reservation() -> None:
    slurm = Scontrol({SHOW: (1, "", "slurm_load_reservations error: Unable to contact slurm controller")})
    with pytest.raises(CommandFailed):
        await control.reserved_spares(slurm, HEAD)


async def test_a_reason_stays_one_word_of_one_line() -> None:
    down = ("scontrol", "update", "NodeName=lab-1-1", "State=DOWN", "Reason=gpu 3 lost; rm -rf /")
    slurm = Scontrol({down: OK})
    await control.node_down(slurm, HEAD, "lab-1-1", "gpu 3\nlost; rm -rf /")
    assert slurm.said == [down]


async def test_resuming_a_node_in_service_is_no_error_and_other_errors_are() -> None:
    resume = ("scontrol", "update", "NodeName=lab-1-1", "State=RESUME")
    await control.node_resume(
        Scontrol({resume: (1, "", "slurm_update error: Invalid node state specified")}), HEAD, "lab-1-1"
    )
    with pytest.raises(CommandFailed, match="Invalid node name"):
        await control.node_resume(Scontrol({resume: (1, "", "Invalid node name specified")}), HEAD, "lab-1-1")


async def test_ping_reads_what_scontrol_says() -> None:
    argv = ("scontrol", "ping")
    assert await control.ping(Scontrol({argv: (0, "Slurmctld(primary) at lab-head is UP\n", "")}), HEAD)
    assert not await control.ping(Scontrol({argv: (1, "Slurmctld(primary) at lab-head is DOWN\n", "")}), HEAD)
