"""Reads usage from accounting (sacct, sacctmgr): every run of every job, and nodes that were down or drained. The
fields are declared once, below; none contains user-written text, so no text can break a line."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from headway.domain.billing.ledger import JobRun, NodeSpan, SpanKind
from headway.domain.machines.gpu_parts import gpus_worth
from headway.domain.machines.machine import Machine
from headway.errors import HeadwayError
from headway.slurm.accounting.sacct_values import (
    parse_integer,
    parse_nodes,
    parse_state,
    parse_time_limit_s,
    parse_unix_time,
)
from headway.slurm.adapters.base import memory_of_tres, parse_text
from headway.transport.program_io import MAX_OUTPUT
from headway.transport.ssh import Remote

TIMEOUT_S = 120.0
_TYPE = re.compile(r"\bgres/gpu:([A-Za-z0-9_.-]+)=\d")
_CPU = re.compile(r"\bcpu=(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)")
_ENERGY = re.compile(r"\benergy=(\d+)")


def _type(value: str) -> str:
    found = _TYPE.search(value)
    return found[1] if found else ""


def _counts(value: str) -> dict[str, int]:
    """Returns the counted resources of a TRES text; memory, which has a unit, is left out."""
    words = (part.partition("=")[::2] for part in value.split(","))
    return {name: int(count) for name, count in words if count.isdigit()}


def _gpus(value: str) -> float:
    worth = gpus_worth(_counts(value))
    return int(worth) if worth.denominator == 1 else float(worth)


def _count_of(name: str) -> Callable[[str], int]:
    return lambda value: _counts(value).get(name, 0)


def _cpus(value: str) -> int:
    return next((int(part[4:]) for part in value.split(",") if part.startswith("cpu=") and part[4:].isdigit()), 0)


def _array(value: str) -> int:
    whole, _, task = value.partition("_")
    return parse_integer(whole) if task else 0


@dataclass(frozen=True)
class UsageColumn:
    """A column of sacct's output. `into` has the fields that are read from it, each with its parser."""

    source: str
    into: tuple[tuple[str, Callable[[str], Any]], ...]


COLUMNS = (
    UsageColumn("JobIDRaw", (("job", parse_integer),)),
    UsageColumn("JobID", (("array_job", _array),)),
    UsageColumn("User", (("user", parse_text),)),
    UsageColumn("Account", (("team", parse_text),)),
    UsageColumn("Partition", (("partition", parse_text),)),
    UsageColumn("QOS", (("qos", parse_text),)),
    UsageColumn("State", (("state", parse_state),)),
    UsageColumn("NodeList", (("nodes", parse_nodes),)),
    UsageColumn(
        "AllocTRES",
        (
            ("gpus", _gpus),
            ("gpu_type", _type),
            ("cpus", _cpus),
            ("memory_mib", memory_of_tres),
            ("shards", _count_of("gres/shard")),
            ("mps", _count_of("gres/mps")),
        ),
    ),
    UsageColumn("Submit", (("submit", parse_unix_time),)),
    UsageColumn("Eligible", (("eligible", parse_unix_time),)),
    UsageColumn("Start", (("start", parse_unix_time),)),
    UsageColumn("End", (("end", parse_unix_time),)),
    UsageColumn("TimelimitRaw", (("time_limit_s", parse_time_limit_s),)),
    UsageColumn("TRESUsageInTot", ()),  # read from steps, see `_Steps`
)


@dataclass
class _Steps:
    """The usage of a run's steps: accounting records usage for steps only."""

    cpu_s: int = 0
    memory_mib: int = 0  # of the largest step
    energy_j: int = 0

    def add(self, used: str) -> None:
        """Adds the TRESUsageInTot of one step."""
        if cpu := _CPU.search(used):
            days, hours, minutes, seconds = (int(part or 0) for part in cpu.groups())
            self.cpu_s += days * 86400 + hours * 3600 + minutes * 60 + seconds
        self.memory_mib = max(self.memory_mib, memory_of_tres(used))
        if energy := _ENERGY.search(used):
            self.energy_j += int(energy[1])


@dataclass
class _Read:
    values: dict[str, Any]
    steps: _Steps = field(default_factory=_Steps)


def runs_argv(since: int, until: int) -> list[str]:
    """Returns the command whose output `parse_runs` reads: all runs that ran at some time from `since` to `until`
    (unix seconds)."""
    return [*_sacct(), f"--starttime={_time(since)}", f"--endtime={_time(until)}"]


def runs_of_jobs_argv(jobs: Sequence[int]) -> list[str]:
    """Returns the command whose output `parse_runs` reads: all runs of these jobs, and of the arrays with these numbers."""
    return [*_sacct(), "-j", ",".join(map(str, jobs))]


def _sacct() -> list[str]:
    names = ",".join(column.source for column in COLUMNS)
    return [*_env(), "sacct", "-n", "-P", "--allusers", "--duplicates", f"--format={names}"]


def parse_runs(output: str) -> list[JobRun]:
    """Returns the runs that have started. In sacct's output a run's steps follow it."""
    found: list[_Read] = []
    for words in _rows(output, len(COLUMNS)):
        job, _, step = words[0].partition(".")
        if step:
            if found and str(found[-1].values["job"]) == job:
                found[-1].steps.add(words[-1])
            continue
        values = {name: parse(word) for column, word in zip(COLUMNS, words, strict=True) for name, parse in column.into}
        found.append(_Read(values))
    return [_run(one) for one in found if one.values["start"] and one.values["nodes"]]


def node_events_argv(since: int) -> list[str]:
    """Returns the command whose output `parse_node_events` reads: node states that ended after `since` (unix
    seconds), and those that still last."""
    return [
        *_env(), "sacctmgr", "-n", "-P", "show", "event", "event=node", f"start={_time(since)}",
        "format=NodeName,TimeStart,TimeEnd,State,Reason",
    ]  # fmt: skip


def parse_node_events(output: str) -> list[NodeSpan]:
    """Returns the spans in which nodes were down or drained. The last field, the reason, is free text without line
    breaks."""
    found = []
    for line in output.splitlines():
        words = line.split("|", 4)
        if len(words) != 5 or not words[0] or not words[1].isdigit():
            continue
        kind = SpanKind.DOWN if "DOWN" in words[3] or "FAIL" in words[3] else SpanKind.DRAINED
        found.append(NodeSpan(words[0], kind, int(words[1]), parse_unix_time(words[2]), words[4]))
    return found


async def read_runs(connections: Remote, head: Machine, since: int, until: int) -> tuple[JobRun, ...]:
    """Returns the runs from `since` to `until` (unix seconds). Raises CommandFailed or Unreachable when accounting
    or the head does not answer. A period whose answer is too long is read in halves."""
    ran = await connections.remote(head, runs_argv(since, until), timeout_s=TIMEOUT_S)
    if len(ran.stdout) < MAX_OUTPUT // 2:
        return tuple(parse_runs(ran.stdout))
    if until - since < 2:
        raise HeadwayError(f"accounting on {head.name} says more of one second than can be read")
    middle = (since + until) // 2
    return (
        *await read_runs(connections, head, since, middle),
        *await read_runs(connections, head, middle, until),
    )


async def read_runs_of_jobs(connections: Remote, head: Machine, jobs: Sequence[int]) -> tuple[JobRun, ...]:
    """Returns every run of these jobs. Raises the same errors as `read_runs`. If the answer is too long, the jobs are asked
    for in halves."""
    ran = await connections.remote(head, runs_of_jobs_argv(jobs), timeout_s=TIMEOUT_S)
    if len(ran.stdout) < MAX_OUTPUT // 2:
        return tuple(run for run in parse_runs(ran.stdout) if run.job in jobs)
    if len(jobs) < 2:
        raise HeadwayError(f"accounting on {head.name} says more of job {jobs[0]} than can be read")
    middle = len(jobs) // 2
    return (
        *await read_runs_of_jobs(connections, head, jobs[:middle]),
        *await read_runs_of_jobs(connections, head, jobs[middle:]),
    )


async def read_node_events(connections: Remote, head: Machine, since: int) -> tuple[NodeSpan, ...]:
    """Returns the node events since `since` (unix seconds). Raises the same errors as `read_runs`."""
    return tuple(
        parse_node_events((await connections.remote(head, node_events_argv(since), timeout_s=TIMEOUT_S)).stdout)
    )


def _run(read: _Read) -> JobRun:
    used = read.steps
    return JobRun(**read.values, used_cpu_s=used.cpu_s, used_memory_mib=used.memory_mib, energy_j=used.energy_j)


def _rows(output: str, width: int) -> Iterator[list[str]]:
    for line in output.splitlines():
        words = line.split("|")
        if len(words) == width:
            yield words


def _env() -> list[str]:
    """Returns the words that make sacct print unix seconds and read times as UTC, which has no daylight saving
    time."""
    return ["env", "TZ=UTC", "SLURM_TIME_FORMAT=%s"]


def _time(at: int) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S")
