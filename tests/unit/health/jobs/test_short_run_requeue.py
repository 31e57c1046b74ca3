"""Runs killed by a slurmctld restart are requeued once; runs that failed for other reasons are not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from headway.domain.machines.machine import Machine
from headway.errors import CommandFailed
from headway.health.jobs.short_run_requeue import AFTER_S, SHORT_S, ShortRunRequeuer
from headway.transport.process import CommandResult
from tests.support.clusters.builders import job, machine

HEAD = machine("lab-head")
BEGAN = 1000  # when the controller was started
SHORT = job(7, state="FAILED", start_time=1003, end_time=1005)


@dataclass
class Controller:
    """Answers three questions; any other fails the test."""

    code: str = "0:9"
    requeues: bool = True
    started: int = BEGAN  # a second head's long before it led
    journal: str = "Registered PENDING JobId=7 StepId=7.batch on node lab-1-1\n"
    asked: list[str] = field(default_factory=list)
    requeued: list[int] = field(default_factory=list)

    async def remote(self, at: Machine, argv: Sequence[str], *, check: bool = True, **_: Any) -> CommandResult:
        assert at is HEAD
        line = " ".join(argv)
        self.asked.append(line)
        out = ""
        if line == "env SLURM_TIME_FORMAT=%s scontrol show config":
            out = f"AccountingStorageHost  = lab-head\nBOOT_TIME               = {self.started}\n"
        elif line == "stat -c %Y /state/leads":
            out = f"{BEGAN}\n"
        elif "show job" in line:
            out = f"JobId=7 JobState=FAILED Restarts=0 ExitCode={self.code} RunTime=00:00:02\n"
        elif line == "squeue --all --noheader --jobs=7 --states=all --format=%A %i":
            out = "7 7\n"
        elif line == "journalctl --unit=slurmctld --no-pager --output=cat --since=@1000 --grep=non-startable":
            out = self.journal
        elif line == "scontrol requeue 7":
            if not self.requeues:
                raise CommandFailed(argv, 1, "Requested operation is presently disabled", where=at.name)
            self.requeued.append(7)
        else:
            raise AssertionError(f"unexpected: {line}")
        return CommandResult(tuple(argv), 0, out, "", 0.0)


async def test_requeues_run_killed_by_controller_restart_once() -> None:
    slurm, look = Controller(), ShortRunRequeuer()
    said = [("job 7", "the controller's restart killed it at its start; requeued")]
    assert await look.requeue_short_runs(slurm, HEAD, [SHORT]) == said
    assert await look.requeue_short_runs(slurm, HEAD, [SHORT]) == []
    assert slurm.requeued == [7]
    assert await look.requeue_short_runs(slurm, HEAD, [replace(SHORT, restarts=1)]) == said, "the next run, too"


async def test_controller_start_is_when_it_became_leader_with_two_heads() -> None:
    slurm = Controller(started=100)
    assert await ShortRunRequeuer().requeue_short_runs(slurm, HEAD, [SHORT]) == []
    assert await ShortRunRequeuer("/state/leads").requeue_short_runs(slurm, HEAD, [SHORT])
    assert slurm.requeued == [7]


async def test_reports_refused_requeue() -> None:
    (said,) = await ShortRunRequeuer().requeue_short_runs(Controller(requeues=False), HEAD, [SHORT])
    assert "not requeued: " in said[1]


@pytest.mark.parametrize("which", ["7", "5_3(7)"])
async def test_requeues_run_that_its_node_could_not_start(which: str) -> None:
    slurm = Controller("1:0", journal=f"Killing non-startable batch JobId={which}: Job credential revoked\n")
    assert await ShortRunRequeuer().requeue_short_runs(slurm, HEAD, [SHORT])
    assert slurm.requeued == [7]


@pytest.mark.parametrize("which", ["77", "7_3(12)"])
async def test_ignores_nonstartable_log_line_of_another_job(which: str) -> None:
    slurm = Controller("1:0", journal=f"Killing non-startable batch JobId={which}: Job credential revoked\n")
    assert await ShortRunRequeuer().requeue_short_runs(slurm, HEAD, [SHORT]) == []


@pytest.mark.parametrize("code", ["1:0", "0:15", "0:0"])
async def test_does_not_requeue_job_with_own_failure_code(code: str) -> None:
    slurm = Controller(code)
    assert await ShortRunRequeuer().requeue_short_runs(slurm, HEAD, [SHORT]) == []


@pytest.mark.parametrize(
    "changed",
    [
        {"state": "CANCELLED"},
        {"submit_time": BEGAN},
        {"end_time": 1003 + SHORT_S + 1},
        {"start_time": 1003 + AFTER_S, "end_time": 1005 + AFTER_S},
        {"start_time": 997, "end_time": 999},
    ],
)
async def test_does_not_requeue_runs_outside_restart_window(changed: dict[str, Any]) -> None:
    slurm = Controller()
    assert await ShortRunRequeuer().requeue_short_runs(slurm, HEAD, [replace(SHORT, **changed)]) == []
    assert slurm.requeued == []


async def test_sends_no_commands_without_short_failed_runs() -> None:
    slurm = Controller()
    assert await ShortRunRequeuer().requeue_short_runs(slurm, HEAD, [job(8), replace(SHORT, state="COMPLETED")]) == []
    assert slurm.asked == []
