"""What scontrol says of the controller."""

from __future__ import annotations

from headway.slurm import scontrol
from tests.support.slurm_commands import HEAD, Scontrol


async def test_ping_reads_what_scontrol_says() -> None:
    argv = ("scontrol", "ping")
    assert await scontrol.controller_answers(Scontrol({argv: (0, "Slurmctld(primary) at lab-head is UP\n", "")}), HEAD)
    assert not await scontrol.controller_answers(
        Scontrol({argv: (1, "Slurmctld(primary) at lab-head is DOWN\n", "")}), HEAD
    )
