"""A team without QOS and account is released without an error and can't be held."""

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
        (True, OK, False),
    ):
        qos, account = (tuple(argv) for argv in team_job_hold.hold_team_jobs_argv("vision", on=on))
        slurm = Scontrol({qos: answer, account: answer})
        if fails:
            with pytest.raises(CommandFailed):
                await team_job_hold.hold_team_jobs(slurm, HEAD, "vision", on=on)
        else:
            await team_job_hold.hold_team_jobs(slurm, HEAD, "vision", on=on)
        assert slurm.said == ([qos] if fails else [qos, account])


def test_jobs_of_another_qos_are_held_by_their_account() -> None:
    _, account = team_job_hold.hold_team_jobs_argv("vision", on=True)
    assert account[2:] == ["modify", "account", "where", "name=vision", "set", "GrpTRESRunMins=cpu=0"]
