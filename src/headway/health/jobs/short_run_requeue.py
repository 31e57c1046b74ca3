"""Requeues jobs that a restart of the controller killed in their first seconds.

slurmctld saves its state some seconds after it has started a job. If it is killed before that, the restarted slurmctld
has the job as pending and starts it again. It also kills the first run, which it does not know, on the node, and with it
the new run, which is recorded as failed by signal 9. Seen on Slurm 24.11 under `bench/long_runs/chaos.py`. If both happen within
one second, the node takes the new run for the one to be killed and does not launch it ("Job credential revoked"):
slurmctld records it as failed with exit code 1, and its log has this message. A job submitted after the restart has no
earlier run, so its failure has another cause. A second head that takes over reads the same state."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from headway.domain.machines.machine import Machine
from headway.domain.slurm.nodes_and_jobs import JobState
from headway.errors import CommandFailed
from headway.slurm import job_commands, scontrol
from headway.transport.ssh import Remote

SHORT_S = 20  # seconds; longer runs failed for another reason
AFTER_S = 60  # longest time from the controller's start until the end of such a run, in seconds


@dataclass
class ShortRunRequeuer:
    """Requeues the short runs of one cluster. Each run of a job is checked once."""

    leads_file: str = ""  # with two heads: the file in which a head leaves its name when it becomes active
    handled: set[tuple[int, int]] = field(default_factory=set)

    async def requeue_short_runs(self, run: Remote, head: Machine, jobs: Iterable[JobState]) -> list[tuple[str, str]]:
        """Requeues the jobs whose short run a restart of the controller killed. Returns what was done as (job,
        text)."""
        short = {(job.id, job.restarts): job for job in jobs if _is_short(job)}
        new = [short[key] for key in sorted(short.keys() - self.handled)]
        self.handled = set(short)
        if not new:
            return []
        if self.leads_file:
            began = await scontrol.controller_active_since(run, head, self.leads_file)
        else:
            began = await scontrol.controller_started_at(run, head)
        after = [job.id for job in new if job.submit_time < began <= job.end_time <= began + AFTER_S]
        killed = [job for job in after if await job_commands.was_killed(run, head, job, began)]
        return [(f"job {job}", await _requeue(run, head, job)) for job in killed]


def _is_short(job: JobState) -> bool:
    return job.state == "FAILED" and job.start_time > 0 and 0 <= job.end_time - job.start_time <= SHORT_S


async def _requeue(run: Remote, head: Machine, job: int) -> str:
    what = "the controller's restart killed it at its start"
    try:
        await job_commands.requeue_job(run, head, job)
    except CommandFailed as error:
        return f"{what}; not requeued: {error.first_line}"
    return f"{what}; requeued"
