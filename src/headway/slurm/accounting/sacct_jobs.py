"""Reads jobs that the controller has forgotten, from accounting (sacct). The fields are declared once, below."""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from headway.catalog.slurm_releases import is_at_least
from headway.domain.machines.machine import Machine
from headway.domain.slurm.nodes_and_jobs import JobState
from headway.slurm.accounting.sacct_values import (
    parse_integer,
    parse_nodes,
    parse_state,
    parse_time_limit_s,
    parse_unix_time,
)
from headway.slurm.adapters.base import gpus_of_tres, parse_number, parse_text
from headway.transport.ssh import Remote

HISTORY_DAYS = 7
COMPLETE_S = 600.0
LATE_S = 300  # records come up to minutes late
_BREAK = "\x1f"  # separates fields: a job's name may contain "|"


def _exit(value: str) -> int:
    return parse_integer(value.partition(":")[0])


@dataclass(frozen=True)
class JobColumn:
    """A column of sacct's output and the field of JobState that it becomes."""

    name: str  # field of JobState; a name with "_" in front is only used below
    source: str  # name of sacct's column
    parse: Callable[[str], Any]
    unit: str = ""
    since: str = ""  # first Slurm version that has it


COLUMNS = (
    JobColumn("id", "JobIDRaw", parse_integer),
    JobColumn("_shown", "JobID", parse_text),
    JobColumn("name", "JobName", parse_text),
    JobColumn("user", "User", parse_text),
    JobColumn("account", "Account", parse_text),
    JobColumn("partition", "Partition", parse_text),
    JobColumn("state", "State", parse_state),
    JobColumn("reason", "Reason", parse_text),
    JobColumn("nodes", "NodeList", parse_nodes),
    JobColumn("node_count", "NNodes", parse_integer),
    JobColumn("gpus", "AllocTRES", gpus_of_tres),
    JobColumn("submit_time", "Submit", parse_unix_time, "unix s"),
    JobColumn("start_time", "Start", parse_unix_time, "unix s"),
    JobColumn("end_time", "End", parse_unix_time, "unix s"),
    JobColumn("time_limit_s", "TimelimitRaw", parse_time_limit_s, "min"),
    JobColumn("workdir", "WorkDir", parse_text),
    JobColumn("priority", "Priority", parse_integer),
    JobColumn("exit_code", "ExitCode", _exit),
    JobColumn("qos", "QOS", parse_text),
    JobColumn("restarts", "Restarts", parse_integer, since="24.11"),
    JobColumn("stdout", "StdOut", parse_text, since="24.11"),
    JobColumn("stderr", "StdErr", parse_text, since="24.11"),
    JobColumn("_submit_line", "SubmitLine", parse_text),
)


_ALIKE = ("name", "user", "account", "partition", "state", "reason", "workdir", "qos")  # equal for many jobs: kept once


def columns(version: str) -> tuple[JobColumn, ...]:
    """Returns the columns that this version of Slurm has."""
    return tuple(c for c in COLUMNS if not c.since or is_at_least(version, c.since))


def sacct_argv(job_id: int, version: str) -> list[str]:
    """Returns the command whose output `parse_jobs` reads."""
    return [*_sacct(version), "-j", str(job_id)]


def _sacct(version: str) -> list[str]:
    names = ",".join(column.source for column in columns(version))
    argv = ["env", "SLURM_TIME_FORMAT=%s", "sacct", "-n", "-X", "-P", f"--delimiter={_BREAK}", f"--format={names}"]
    if is_at_least(version, "24.11"):
        argv.append("--expand-patterns")
    return argv


def parse_jobs(output: str, version: str) -> list[JobState]:
    """Returns jobs from lines of sacct; lines that are not a record (from a name with a line break) are skipped."""
    declared = columns(version)
    jobs, kept = [], dict[str, str]()
    for line in output.splitlines():
        words = line.split(_BREAK)
        if len(words) != len(declared):
            continue
        found = {column.name: column.parse(word) for column, word in zip(declared, words, strict=True)}
        found |= {name: kept.setdefault(found[name], found[name]) for name in _ALIKE}
        jobs.append(_job(found))
    return jobs


async def read_job(connections: Remote, head: Machine, job_id: int, version: str) -> JobState | None:
    """Returns the latest run of this job, or None when accounting has no such job."""
    ran = await connections.remote(head, sacct_argv(job_id, version), timeout_s=30)
    found = next((job for job in reversed(parse_jobs(ran.stdout, version)) if job.id == job_id), None)
    if found is None or found.state != "FAILED":
        return found
    return replace(found, exit_code=await _whole_code(connections, head, job_id) or found.exit_code)


async def _whole_code(connections: Remote, head: Machine, job_id: int) -> int:
    """Returns the exit code; 0 where it is not known. sacct's table subtracts 128 from larger codes, its JSON does
    not."""
    ran = await connections.remote(head, ["sacct", "-X", "--json", "-j", str(job_id)], timeout_s=30, check=False)
    try:
        rows = json.loads(ran.stdout)["jobs"]
    except (ValueError, KeyError):
        return 0
    codes = [parse_number(row["exit_code"].get("return_code")) for row in rows if row.get("job_id") == job_id]
    return codes[-1] if codes else 0


def _seconds() -> float:
    """Returns seconds of a clock that goes on while the machine is suspended."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))  # macOS: the latter does


class RecentJobs:
    """All users' jobs of the last HISTORY_DAYS days, as accounting has them. A complete reading is made every COMPLETE_S
    seconds. Those between read only the jobs that were active since the last one: otherwise slurmdbd and the server would
    need memory for all these jobs again and again. `clock` returns seconds."""

    def __init__(self, connections: Remote, head: Machine, version: str, clock: Callable[[], float] = _seconds) -> None:
        self._connections, self._head, self._version, self._clock = connections, head, version, clock
        self._jobs: dict[int, JobState] = {}
        self._read_at = self._complete_at = -math.inf
        self._reading = asyncio.Lock()  # so that an older answer does not replace a newer one

    async def read(self) -> tuple[JobState, ...]:
        """Returns the jobs, the latest run of each. Exit codes from 128 on are 128 too small here: `read_job` returns
        them right, and reads some kilobytes for each job. Raises the errors of `remote`."""
        async with self._reading:
            return await self._read()

    async def _read(self) -> tuple[JobState, ...]:
        now = self._clock()
        complete = now - self._complete_at >= COMPLETE_S
        since = f"{HISTORY_DAYS}days" if complete else f"{math.ceil(now - self._read_at) + LATE_S}seconds"
        argv = [*_sacct(self._version), "--allusers", f"--starttime=now-{since}"]
        ran = await self._connections.remote(self._head, argv, timeout_s=30)
        found = {job.id: job for job in parse_jobs(ran.stdout, self._version)}
        self._jobs = found if complete else self._jobs | found
        self._read_at, self._complete_at = now, now if complete else self._complete_at
        return tuple(self._jobs.values())


async def read_array_tasks(connections: Remote, head: Machine, array: int, version: str) -> tuple[JobState, ...]:
    """Returns the tasks of an array, however long ago they ended, the latest run of each; () for a job that is not
    an array."""
    ran = await connections.remote(head, sacct_argv(array, version), timeout_s=60)
    return tuple({job.id: job for job in parse_jobs(ran.stdout, version) if job.array_job_id == array}.values())


async def read_job_runs(connections: Remote, head: Machine, job_id: int, version: str) -> tuple[JobState, ...]:
    """Returns every run of a job, oldest first; a requeued job has several."""
    ran = await connections.remote(head, [*sacct_argv(job_id, version), "--duplicates"], timeout_s=30)
    found = [job for job in parse_jobs(ran.stdout, version) if job.id == job_id]
    return tuple(sorted(found, key=lambda job: (job.submit_time, job.start_time or float("inf"))))


async def read_array_states(connections: Remote, head: Machine, job_id: int) -> dict[str, str]:
    """Returns the state of each task of an array, by its number; {} for a job that is not an array. The
    controller's state replaces that of accounting, which may be older. While the controller does not answer, a task that lost its
    node or was preempted is REQUEUED: accounting does not tell whether Slurm has returned it to the queue."""
    ended = ["sacct", "-n", "-X", "-P", "--array", f"--delimiter={_BREAK}", "--format=JobID,State", "-j", str(job_id)]
    active = ["squeue", "-h", "-r", "-t", "all", "-o", f"%i{_BREAK}%T", "-j", str(job_id)]
    known = await connections.remote(head, ended, timeout_s=60)
    now = await connections.remote(head, active, timeout_s=60, check=False)
    found: dict[str, str] = {}
    for line in [*known.stdout.splitlines(), *(now.stdout.splitlines() if now.code == 0 else [])]:
        shown, _, state = line.partition(_BREAK)
        job, _, task = shown.partition("_")
        if job == str(job_id) and task.isdigit():
            found[task] = parse_state(state)
    if now.code != 0 and "Invalid job id" not in now.stderr:
        found = {task: "REQUEUED" if state in ("NODE_FAIL", "PREEMPTED") else state for task, state in found.items()}
    return found


def _job(found: dict[str, Any]) -> JobState:
    shown = found.pop("_shown")
    found.pop("_submit_line")
    array, _, task = shown.partition("_")
    found["stderr"] = found.get("stderr") or found.get("stdout", "")
    return JobState(
        **{"restarts": 0, "stdout": "", **found},
        command="",
        array_job_id=parse_integer(array) if task else 0,
        array_task=task,
    )
