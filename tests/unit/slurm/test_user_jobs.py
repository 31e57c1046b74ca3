"""All jobs of a user are listed and cancelled, those of the scrontab with each release's own options."""

from __future__ import annotations

import pytest

from headway.catalog.slurm_releases import SLURM_RELEASES
from headway.errors import CommandFailed
from headway.slurm import user_jobs
from tests.support.clusters.slurm_commands import HEAD, OK, Scontrol

LIST = (
    "squeue", "-h", "-a", "-u", "ann", "-t",
    "PENDING,CONFIGURING,RUNNING,SUSPENDED,STOPPED,SIGNALING,STAGE_OUT", "-o", "%A",
)  # fmt: skip


async def test_an_array_is_listed_once() -> None:
    assert await user_jobs.list_jobs(Scontrol({LIST: (0, "7\n9\n7\n", "")}), HEAD, "ann") == (7, 9)
    assert await user_jobs.list_jobs(Scontrol({LIST: OK}), HEAD, "ann") == ()


@pytest.mark.parametrize(
    ("release", "argv"),
    [("24.11", ("scancel", "--cron", "--user=ann")), ("22.05", ("scancel", "--user=ann"))],
)
async def test_jobs_of_the_scrontab_are_cancelled_too(release: str, argv: tuple[str, ...]) -> None:
    slurm = Scontrol({argv: OK})
    await user_jobs.cancel_jobs(slurm, HEAD, "ann", SLURM_RELEASES[release])
    assert slurm.said == [argv]


async def test_controller_that_does_not_answer_is_an_error() -> None:
    with pytest.raises(CommandFailed):
        await user_jobs.list_jobs(Scontrol({LIST: (1, "", "Unable to contact slurm controller")}), HEAD, "ann")
