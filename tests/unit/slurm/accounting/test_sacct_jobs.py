"""Jobs as sacct lists them."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

import pytest

from headway.errors import NotFound
from headway.slurm.accounting import sacct_jobs
from headway.transport.process import CommandResult
from tests.support.clusters.builders import machine
from tests.support.clusters.fake_slurmrestd import RECORDED, FakeRest, FakeSacct, reader


async def test_job_forgotten_by_slurmctld_is_read_from_sacct() -> None:
    text = (RECORDED / "sacct.txt").read_text()
    known = sacct_jobs.parse_jobs(text, "24.11")[0]
    sacct = FakeSacct(text)
    rest = FakeRest(**{f"job_{known.id}": NotFound("Invalid job id specified")})
    found = await reader(rest, sacct).job(known.id)
    assert (found.name, found.state, found.exit_code, found.user) == ("fails.sbatch", "FAILED", 3, "alice")
    assert sacct.argv[0][-1] == str(known.id)
    with pytest.raises(NotFound, match="lab has no job 4711"):
        await reader(FakeRest(job_4711=NotFound("x")), FakeSacct()).job(4711)


@pytest.mark.parametrize(
    ("shown", "told", "code"),
    [
        ("9:0", {"return_code": {"set": True, "infinite": False, "number": 137}}, 137),  # as 24.11 answered for both
        ("72:0", {"return_code": {"set": True, "infinite": False, "number": 200}}, 200),
        ("0:0", {"return_code": {"set": True, "infinite": False, "number": 128}}, 128),
        ("9:0", {"return_code": {"set": True, "infinite": False, "number": 9}}, 9),
        ("9:0", {"status": "ERROR", "return_code": 137}, 137),  # plain numbers, as 22.05's parsers have them
        ("9:0", None, 9),
    ],
)
async def test_exit_codes_from_128_are_read_from_sacct_json(shown: str, told: Any, code: int) -> None:
    text = (RECORDED / "sacct.txt").read_text()
    ended = sacct_jobs.parse_jobs(text, "24.11")[0]
    assert "\x1f3:0\x1f" in text
    other = {"job_id": ended.id + 1, "exit_code": {"return_code": 4}}
    answer = json.dumps({"jobs": [other, {"job_id": ended.id, "exit_code": told}]}) if told else "no such plugin"
    sacct = FakeSacct(text.replace("\x1f3:0\x1f", f"\x1f{shown}\x1f"), answer)
    found = await reader(FakeRest(**{f"job_{ended.id}": NotFound("x")}), sacct).job(ended.id)
    assert found.exit_code == code


def test_parses_nodes_gpus_log_and_array_from_sacct() -> None:
    jobs = sacct_jobs.parse_jobs((RECORDED / "sacct.txt").read_text(), "24.11")
    train = next(job for job in jobs if job.node_count == 2)
    assert (train.state, train.gpus, train.nodes) == ("CANCELLED", 6, ("lab-1-1", "lab-1-2"))
    assert train.stdout == f"/home/alice/logs/train.sbatch-{train.id}.out"
    assert train.time_limit_s == 1800
    task = next(job for job in jobs if job.array_task == "2")
    assert task.array_job_id == task.id, "the last task of an array has the array's own id"


async def test_reads_array_tasks_from_sacct_by_array_id() -> None:
    sacct = FakeSacct((RECORDED / "sacct.txt").read_text())
    found = await sacct_jobs.read_array_tasks(sacct, machine("lab-head"), 15, "24.11")
    assert [(job.id, job.array_task) for job in found] == [(16, "1"), (15, "2")]
    assert sacct.argv[0][-2:] == ["-j", "15"]


def test_sacct_of_slurm_22_05_is_called_without_newer_options() -> None:
    assert "StdOut" not in " ".join(sacct_jobs.sacct_argv(1, "22.05"))
    assert "--expand-patterns" not in sacct_jobs.sacct_argv(1, "22.05")
    assert sacct_jobs.parse_jobs("no record\n", "24.11") == []


def test_parses_sacct_of_slurm_22_05() -> None:
    jobs = sacct_jobs.parse_jobs((RECORDED.parent / "22.05" / "sacct.txt").read_text(), "22.05")
    train = next(job for job in jobs if job.node_count == 2)
    assert (train.name, train.state, train.gpus, train.stdout) == ("train.sbatch", "CANCELLED", 6, "")


@pytest.mark.parametrize(
    ("code", "listed", "error", "state"),
    [
        (0, "7_0\x1fPENDING\n", "", "PENDING"),
        (1, "", "slurm_load_jobs error: Invalid job id specified", "NODE_FAIL"),
        (1, "", "slurm_load_jobs error: Unable to contact slurm controller", "REQUEUED"),
    ],
)
async def test_task_that_lost_its_node_has_not_ended_while_the_controller_does_not_answer(
    code: int, listed: str, error: str, state: str
) -> None:
    class Slurm(FakeSacct):
        async def remote(self, machine: Any, argv: Any, **more: Any) -> CommandResult:
            if argv[0] == "squeue":
                return CommandResult(tuple(argv), code, listed, error, 0.0)
            return await super().remote(machine, argv, **more)

    found = await sacct_jobs.read_array_states(Slurm("7_0\x1fNODE_FAIL\n7_1\x1fCOMPLETED\n"), machine("lab-head"), 7)
    assert found == {"0": state, "1": "COMPLETED"}


async def test_recent_jobs_are_read_whole_only_every_ten_minutes() -> None:
    lines = (RECORDED / "sacct.txt").read_text().splitlines()
    first, second = lines[:2]
    running = second.replace("\x1fCANCELLED by 0\x1f", "\x1fRUNNING\x1f")
    sacct, now = FakeSacct(f"{first}\n{running}\n"), [1000.0]
    recent = sacct_jobs.RecentJobs(sacct, machine("lab-head"), "24.11", lambda: now[0])
    assert [(job.id, job.state) for job in await recent.read()] == [(13, "FAILED"), (14, "RUNNING")]
    now[0], sacct.stdout = 1007.2, f"{second}\n"
    assert [(job.id, job.state) for job in await recent.read()] == [(13, "FAILED"), (14, "CANCELLED")]
    now[0] = 1599.0
    await recent.read()
    now[0], sacct.stdout = 1600.0, f"{first}\n"
    assert [job.id for job in await recent.read()] == [13], "the other one is older than a week"
    since = [argv[-1] for argv in sacct.argv]
    assert since == [f"--starttime=now-{ago}" for ago in ("7days", "308seconds", "892seconds", "7days")]


def test_texts_that_many_jobs_share_are_kept_once() -> None:
    line = (RECORDED / "sacct.txt").read_text().splitlines()[0]
    first, second = sacct_jobs.parse_jobs(f"{line}\n{line}\n", "24.11")
    assert all(getattr(first, name) is getattr(second, name) for name in ("user", "account", "partition", "workdir"))


def test_names_of_jobs_are_not_kept_for_ever() -> None:
    """Interned text is never freed by Python 3.12."""
    line = (RECORDED / "sacct.txt").read_text().splitlines()[0]
    name = f"fails-{time.time_ns()}"
    [found] = sacct_jobs.parse_jobs(line.replace("fails.sbatch", name, 1), "24.11")
    assert found.name == name
    assert sys.intern(name) is not found.name


async def test_older_answer_does_not_replace_a_newer_one() -> None:
    _, line = (RECORDED / "sacct.txt").read_text().splitlines()[:2]
    running = line.replace("\x1fCANCELLED by 0\x1f", "\x1fRUNNING\x1f")
    asked, go = asyncio.Event(), asyncio.Event()

    class Slow(FakeSacct):
        async def remote(self, machine: Any, argv: Any, **more: Any) -> CommandResult:
            answer = await super().remote(machine, argv, **more)
            if len(self.argv) == 1:
                asked.set()
                await go.wait()
            return answer

    sacct = Slow(f"{running}\n")
    recent = sacct_jobs.RecentJobs(sacct, machine("lab-head"), "24.11", lambda: 1000.0)
    first = asyncio.create_task(recent.read())
    await asked.wait()
    sacct.stdout = f"{line}\n"
    second = asyncio.create_task(recent.read())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    go.set()
    assert [job.state for job in await first] == ["RUNNING"]
    assert [job.state for job in await second] == ["CANCELLED"]
    assert [job.state for job in await recent.read()] == ["CANCELLED"]
    assert sacct.argv[1][-1] == "--starttime=now-300seconds"


async def test_jobs_are_read_whole_after_the_machine_was_suspended(monkeypatch: pytest.MonkeyPatch) -> None:
    sacct, now = FakeSacct(), {time.CLOCK_BOOTTIME: 50.0}
    monkeypatch.setattr(sacct_jobs.time, "clock_gettime", lambda clock: now[clock])
    recent = sacct_jobs.RecentJobs(sacct, machine("lab-head"), "24.11")
    await recent.read()
    now[time.CLOCK_BOOTTIME] += 900  # time.monotonic stands still meanwhile
    await recent.read()
    assert [argv[-1] for argv in sacct.argv] == ["--starttime=now-7days"] * 2
