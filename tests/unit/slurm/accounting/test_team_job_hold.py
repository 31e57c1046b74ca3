"""A team without a QOS is released without an error and cannot be held."""

from __future__ import annotations

import pytest

from headway.errors import CommandFailed
from headway.slurm.accounting import team_job_hold
from tests.support.clusters.slurm_commands import HEAD, OK, Scontrol


async def test_team_without_qos_can_be_released_but_not_held() -> None:
    nothing = (1, " Nothing modified\n", "")
    for on, answer, fails in (
        (False, nothing, False),
        (True, nothing, True),
        (False, (1, "", "sacctmgr: error: Problem talking to the database: Connection refused"), True),
        (False, OK, False),
    ):
        argv = tuple(team_job_hold.hold_team_jobs_argv("vision", on=on))
        slurm = Scontrol({argv: answer})
        if fails:
            with pytest.raises(CommandFailed):
                await team_job_hold.hold_team_jobs(slurm, HEAD, "vision", on=on)
        else:
            await team_job_hold.hold_team_jobs(slurm, HEAD, "vision", on=on)
        assert slurm.said == [argv]
