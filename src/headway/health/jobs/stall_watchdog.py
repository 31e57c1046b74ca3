"""Watches jobs for stalls and notifies their owners. By policy, stalled jobs are requeued and idle ones cancelled. What counts
as a sign of life is in `job_activity`, the judgement in `stall_detection`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from headway.cluster.context import ClusterContext
from headway.domain.cluster import Cluster
from headway.domain.machines.machine import Machine
from headway.domain.slurm.nodes_and_jobs import JobState
from headway.errors import CommandFailed, HeadwayError
from headway.health.incidents.stalled_training import record_stall
from headway.health.jobs.job_activity import complete_usage, quiet_s, read_gpu_usage, read_last_output, running_since
from headway.health.jobs.nccl_reports import ranks_behind
from headway.health.jobs.rank_stacks import collect_stacks
from headway.health.jobs.stall_detection import Stall, StallKind, detect_idle, detect_stall, job_rules
from headway.health.jobs.stall_stragglers import common_place, find_stragglers
from headway.slurm import job_commands

CHECK_EVERY_S = 15.0
_MOST_NAMED = 8  # ranks in one message
MAX_REQUEUES = 3  # requeues of a job that stalls in every run


@dataclass
class StallWatchdog:
    """Watches one cluster's jobs. Each stall of a run of a job is reported once."""

    cluster: Cluster
    context: ClusterContext
    clock: Callable[[], float] = time.time
    reported: set[tuple[int, int, StallKind]] = field(default_factory=set)
    requeued: dict[int, int] = field(default_factory=dict)  # stalled job -> number of requeues
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
        rules = {job.id: job_rules(job.comment, self.cluster.health.stall, self.cluster.health.idle) for job in jobs}
        # Only jobs that run longer than their shortest rule; usually no job does.
        old = [j for j in jobs if any(rule.after_s and now - running_since(j) >= rule.after_s for rule in rules[j.id])]
        if not old:
            return []
        windows = {rule.after_s for job in old for rule in rules[job.id] if rule.after_s}
        connections = self.context.connections
        use = {window: await read_gpu_usage(connections, head, window) for window in sorted(windows)}
        last_output = await read_last_output(connections, head, old)
        found = []
        for job in old:
            stall_rule, idle_rule = rules[job.id]
            usage = complete_usage(job, use.get(stall_rule.after_s, {}))
            stall = detect_stall(stall_rule, quiet_s(job, last_output, now), usage)
            stall = stall or detect_idle(
                idle_rule, now - running_since(job), complete_usage(job, use.get(idle_rule.after_s, {}))
            )
            if stall and (job.id, job.restarts, stall.kind) not in self.reported:
                found.append((job, stall))
        return found

    async def _handle_stall(self, head: Machine, job: JobState, stall: Stall) -> str:
        """Notifies the job's owner and, by policy, requeues or cancels the job. Returns what was done."""
        self.reported.add((job.id, job.restarts, stall.kind))
        run = self.context.connections
        rule = self.cluster.health.stall if stall.kind is StallKind.STALLED else self.cluster.health.idle
        acts = rule.acts and self.cluster.health.act
        words, done = stall.why, "its owner is notified"
        if stall.kind is StallKind.STALLED and (named := await self._examine_ranks(job)):
            words = f"{words}; {named}"
        if acts and stall.kind is StallKind.STALLED and self.requeued.get(job.id, 0) >= MAX_REQUEUES:
            acts, done = False, f"it was requeued {MAX_REQUEUES} times for that and is not requeued again"
        elif acts and stall.kind is StallKind.STALLED:
            done = "requeued"
            self.requeued[job.id] = self.requeued.get(job.id, 0) + 1
        elif acts:
            done = "cancelled"
        await job_commands.notify_job(
            run, head, job.id, f"headway: {words}; {done}" if rule.acts else f"headway: {words}"
        )
        if acts:
            try:
                await (job_commands.requeue_job if stall.kind is StallKind.STALLED else job_commands.cancel_job)(
                    run, head, job.id
                )
            except CommandFailed as error:
                done = f"not {done}: {error.first_line}"
        return f"{words}; {done}"

    async def _examine_ranks(self, job: JobState) -> str:
        """Returns where the ranks of a job that stalls are and which of them the others wait for, by their stacks and by NCCL,
        and records that as an incident. Returns "" if neither can be read."""
        try:
            machines = await self.context.machines(self.cluster.name)
            found = await collect_stacks(self.context, machines, job)
        except HeadwayError:
            return ""
        stragglers = find_stragglers(found.stacks)
        node_of = {machine.address: name for name, machine in machines.items()}
        behind = ranks_behind(found.nccl.values(), found.stacks, node_of)
        named = {stack.rank: stack.node for stack in stragglers.stacks} if stragglers else {}
        named = named or {stack.rank: stack.node for stack, _ in behind}
        words = [stragglers.text() if stragglers else common_place(found.stacks)]
        words += [f"by NCCL rank {stack.rank} on {stack.node} {what}" for stack, what in behind[:_MOST_NAMED]]
        text = "; ".join(filter(None, words)) or "no rank shows its stack"
        number = await record_stall(self.context.store, self.cluster.name, job.id, found, named, text, self.clock())
        return f"{text}; incident {number} has the evidence" if number else ""
