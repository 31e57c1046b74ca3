"""Jobs on nodes are listed with squeue's filters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from headway.slurm import node_jobs
from headway.transport.process import CommandResult
from tests.support.clusters.slurm_commands import HEAD


class Squeue:
    """Jobs with their state (a base, and flags of which one shows) on nodes, filtered as squeue does: a base word names jobs
    without a flag alone, a flag's word all that have it; jobs of hidden partitions show with --all."""

    FLAGS = frozenset({"COMPLETING", "CONFIGURING", "RESIZING", "SIGNALING", "STAGE_OUT", "STOPPED", "REQUEUED"})

    def __init__(self, *jobs: tuple[int, str, str]) -> None:
        self.jobs = jobs

    async def remote(self, _: Any, argv: Sequence[str], **__: Any) -> CommandResult:
        assert argv[0] == "squeue"
        options = dict(word.partition("=")[::2] for word in argv[1:])
        asked = set(options["--states"].split(","))
        assert "--all" in options
        where = options.get("--nodelist", "")
        form = options["--format"]
        out = "".join(
            form.replace("%A", str(job)).replace("%N", node) + "\n"
            for job, state, node in self.jobs
            if asked & (set(state.split("|")) & self.FLAGS or {state}) and where in ("", node)
        )
        return CommandResult(tuple(argv), 0, out, "", 0.0)


HOLDING = ("RUNNING", "SUSPENDED", "RUNNING|CONFIGURING", "RUNNING|STOPPED", "RUNNING|RESIZING", "RUNNING|SIGNALING",
           "COMPLETED|STAGE_OUT", "COMPLETED|COMPLETING")  # fmt: skip


@pytest.mark.parametrize("state", HOLDING)
async def test_node_is_busy_while_job_holds_resources(state: str) -> None:
    slurm = Squeue((7, state, "lab-1-2"), (8, "PENDING", ""), (9, "COMPLETED", "lab-1-3"))
    assert await node_jobs.jobs_by_node(slurm, HEAD) == {"lab-1-2": (7,)}
    assert await node_jobs.jobs_on_node(slurm, HEAD, "lab-1-2") == (7,)
    assert await node_jobs.jobs_on_node(slurm, HEAD, "lab-1-3") == ()


async def test_jobs_on_node_can_exclude_completing_jobs() -> None:
    slurm = Squeue((7, "COMPLETED|COMPLETING", "lab-1-2"), (8, "RUNNING|STOPPED", "lab-1-2"))
    assert await node_jobs.jobs_on_node(slurm, HEAD, "lab-1-2", ending=False) == (8,)
