"""Finds jobs without progress and notifies their owners. By policy, hung jobs are requeued and idle ones cancelled."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields

from headway.cluster.context import ClusterContext
from headway.cluster.monitoring.metric_queries import gpu_usage_queries
from headway.cluster.monitoring.prometheus_client import query_instant
from headway.domain.cluster import Cluster
from headway.domain.machines.machine import Machine
from headway.domain.slurm.nodes_and_jobs import JobState
from headway.errors import CommandFailed, HeadwayError
from headway.health.incidents.stalled_training import record_straggler
from headway.health.jobs.rank_stacks import collect_stacks
from headway.health.jobs.stall_rules import GpuUsage, Stall, StallKind, detect_hang, detect_idle, job_rules
from headway.health.jobs.stall_stragglers import find_stragglers
from headway.slurm import job_commands

CHECK_EVERY_S = 15.0
_LONGEST_PATH = 4096  # bytes, Linux's PATH_MAX
MAX_REQUEUES = 3  # requeues of a job that hangs in every run
REPORTS = "/var/lib/headway/reports"


@dataclass
class StallWatchdog:
    """Watches one cluster's jobs. Each stall of a run of a job is reported once."""

    cluster: Cluster
    context: ClusterContext
    clock: Callable[[], float] = time.time
    reported: set[tuple[int, int, StallKind]] = field(default_factory=set)
    requeued: dict[int, int] = field(default_factory=dict)  # hung job -> number of requeues
    checked_at: float = 0.0

    async def check_jobs(self, head: Machine, jobs: Iterable[JobState]) -> list[tuple[str, str]]:
        """Checks all running jobs with GPUs and handles their stalls. Returns messages as (job, text), [] if the last
        check is less than CHECK_EVERY_S ago."""
        now = self.clock()
        if now - self.checked_at < CHECK_EVERY_S:
            return []
        self.checked_at = now
        jobs = tuple(jobs)
        running = [job for job in jobs if job.state == "RUNNING" and job.gpus and job.start_time]
        self.requeued = {job.id: self.requeued[job.id] for job in jobs if job.id in self.requeued}
        self.reported &= {(job.id, job.restarts, kind) for job in running for kind in StallKind}
        found = await self._find_stalls(head, running, now)
        return [(f"job {job.id}", await self._handle_stall(head, job, stall)) for job, stall in found]

    async def _find_stalls(self, head: Machine, jobs: Sequence[JobState], now: float) -> list[tuple[JobState, Stall]]:
        """Returns the jobs that stall now and were not reported yet, each with its stall."""
        rules = {job.id: job_rules(job.comment, self.cluster.health.hang, self.cluster.health.idle) for job in jobs}
        # Only jobs that run longer than their shortest rule; usually no job does.
        old = [j for j in jobs if any(rule.after_s and now - _running_since(j) >= rule.after_s for rule in rules[j.id])]
        if not old:
            return []
        windows = {rule.after_s for job in old for rule in rules[job.id] if rule.after_s}
        use = {window: await self._read_gpu_usage(head, window) for window in sorted(windows)}
        words = await self._read_last_output(head, old)
        found = []
        for job in old:
            hang, idle = rules[job.id]
            quiet_s = now - max(_running_since(job), words.get(job.id, 0.0))
            stall = detect_hang(hang, quiet_s, _complete_usage(job, use.get(hang.after_s, {}))) or detect_idle(
                idle, now - _running_since(job), _complete_usage(job, use.get(idle.after_s, {}))
            )
            if stall and (job.id, job.restarts, stall.kind) not in self.reported:
                found.append((job, stall))
        return found

    async def _handle_stall(self, head: Machine, job: JobState, stall: Stall) -> str:
        """Notifies the job's owner and, by policy, requeues or cancels the job. Returns what was done."""
        self.reported.add((job.id, job.restarts, stall.kind))
        run = self.context.connections
        rule = self.cluster.health.hang if stall.kind is StallKind.HANG else self.cluster.health.idle
        acts = rule.acts and self.cluster.health.act
        words, done = stall.why, "its owner is notified"
        if stall.kind is StallKind.HANG and (named := await self._name_stragglers(job)):
            words = f"{words}; {named}"
        if acts and stall.kind is StallKind.HANG and self.requeued.get(job.id, 0) >= MAX_REQUEUES:
            acts, done = False, f"it was requeued {MAX_REQUEUES} times for that and is not requeued again"
        elif acts and stall.kind is StallKind.HANG:
            done = "requeued"
            self.requeued[job.id] = self.requeued.get(job.id, 0) + 1
        elif acts:
            done = "cancelled"
        await job_commands.notify_job(
            run, head, job.id, f"headway: {words}; {done}" if rule.acts else f"headway: {words}"
        )
        if acts:
            try:
                await (job_commands.requeue_job if stall.kind is StallKind.HANG else job_commands.cancel_job)(
                    run, head, job.id
                )
            except CommandFailed as error:
                done = f"not {done}: {error.first_line}"
        return f"{words}; {done}"

    async def _name_stragglers(self, job: JobState) -> str:
        """Returns which ranks the others wait for, and records that as an incident of their node. Returns "" if none
        stands out or their stacks can't be read."""
        try:
            machines = await self.context.machines(self.cluster.name)
            stacks = await collect_stacks(self.context, machines, job)
        except HeadwayError:
            return ""
        found = find_stragglers(stacks.stacks)
        if found is None:
            return ""
        await record_straggler(self.context.store, self.cluster.name, job.id, found, stacks, self.clock())
        return found.text()

    async def _read_gpu_usage(self, head: Machine, window_s: int) -> dict[int, GpuUsage]:
        """Returns the usage of each job with GPUs over the last `window_s` seconds, {} if Prometheus does not
        answer."""
        try:
            rows = await query_instant(self.context.connections, head, gpu_usage_queries(window_s))
        except HeadwayError:
            return {}
        usage: dict[int, dict[str, float]] = {}
        for row in rows:
            if (job := row.labels.get("hpc_job", "")).isdigit():
                usage.setdefault(int(job), {})[row.key] = row.values[0][1]
        complete = {field.name for field in fields(GpuUsage)}
        return {number: GpuUsage(**use) for number, use in usage.items() if use.keys() == complete}

    async def _read_last_output(self, head: Machine, jobs: Iterable[JobState]) -> dict[int, float]:
        """Returns when each job last reported or wrote output, in unix seconds. Jobs that never did are missing."""
        of: dict[str, int] = {}
        for job in jobs:
            of[f"{REPORTS}/{job.id}.jsonl"] = job.id
            of.update({path: job.id for path in (job.stdout, job.stderr) if _is_file_path(path)})
        # on stdin, because users choose the paths, and there may be too many for one command line
        look = ["xargs", "-0", "stat", "-L", "-c", "%Y %n", "--"]
        paths = "\0".join(of).encode(errors="replace")
        ran = await self.context.connections.remote(head, look, timeout_s=20, input=paths, check=False)
        found: dict[int, float] = {}
        for line in ran.stdout.splitlines():
            when, _, path = line.partition(" ")
            if path in of and when.isdigit():
                found[of[path]] = max(found.get(of[path], 0.0), float(when))
        return found


def _is_file_path(path: str) -> bool:
    """Returns whether the path can be passed to `stat`. A path that can't would make the whole command fail."""
    return path.startswith("/") and not {"\n", "\0"} & set(path) and len(path.encode(errors="replace")) < _LONGEST_PATH


def _running_since(job: JobState) -> int:
    """Returns when the job began to run without a break, in unix seconds. A suspended job does nothing until it is
    resumed, so that time does not count."""
    return max(job.start_time, job.suspend_time)


def _complete_usage(job: JobState, use: Mapping[int, GpuUsage]) -> GpuUsage | None:
    """Returns the job's usage, or None if some of its GPUs had no samples for part of the time, because Prometheus or a
    node's agent was down."""
    found = use.get(job.id)
    return found if found is not None and found.observed_gpus >= job.gpus else None
