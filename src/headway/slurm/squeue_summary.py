"""A short squeue line for every job: ten times quicker than slurmrestd for ten thousand jobs. It shows which jobs
have changed, and only those are then read one by one."""

from __future__ import annotations

from dataclasses import dataclass, replace

from headway.domain.machines.machine import Machine
from headway.domain.slurm.nodes_and_jobs import JobState
from headway.transport.ssh import Remote

# id, state, nodes, time limit, start, priority, reason; the reason may contain any text.
_ARGV = (
    "env",
    "SLURM_TIME_FORMAT=%s",
    "squeue",
    "--all",
    "--noheader",
    "--states=all",
    "--format=%A|%T|%N|%l|%S|%Q|%r",
)
_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class SqueueLine:
    """The line of one job. `changing` has values that change all the time while a job waits; the line itself is
    enough to update them."""

    stable: tuple[str, ...]  # state, nodes, time limit
    changing: tuple[str, ...]  # start, priority, reason

    @property
    def pending(self) -> bool:
        """Returns whether the job waits."""
        return self.stable[0] == "PENDING"

    def updated_job(self, job: JobState) -> JobState | None:
        """Returns a waiting job with the changed values of this line. Returns None where the line is not enough:
        squeue may show a sentence instead of the reason's word."""
        start, priority, reason = self.changing
        if not priority.isdigit() or not reason.isalnum():
            return None
        begins = int(start) if start.isdigit() else 0
        return replace(
            job, start_time=begins, priority=int(priority), reason="" if reason == "None" else reason, description=""
        )


async def read_squeue(connections: Remote, head: Machine) -> dict[int, SqueueLine]:
    """Returns the line of every job that the controller knows."""
    ran = await connections.remote(head, _ARGV, timeout_s=_TIMEOUT_S)
    found = {}
    for line in ran.stdout.splitlines():
        words = line.split("|", 6)
        if len(words) == 7 and words[0].isdigit():
            found[int(words[0])] = SqueueLine(tuple(words[1:4]), tuple(words[4:7]))
    return found
