"""A short squeue line for every job: ten times quicker than slurmrestd for ten thousand jobs. It tells which jobs have
changed; only
those are then read one by one."""

from __future__ import annotations

from dataclasses import dataclass, replace

from headway.domain.machine import Machine
from headway.domain.slurm.state import JobState
from headway.transport.ssh import Remote

# id, state, nodes, time limit, start, priority, reason; the last may hold anything.
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
    """One line. What is in `waits` changes all the time while a job waits, and needs no more than this line says."""

    stable: tuple[str, ...]  # state, nodes, time limit
    changing: tuple[str, ...]  # start, priority, reason

    @property
    def pending(self) -> bool:
        return self.stable[0] == "PENDING"

    def updated_job(self, job: JobState) -> JobState | None:
        """A waiting job of which only this has changed. None where the line does not say enough: Slurm's sentence may stand
        in the place of the reason's word."""
        start, priority, reason = self.changing
        if not priority.isdigit() or not reason.isalnum():
            return None
        begins = int(start) if start.isdigit() else 0
        return replace(
            job, start_time=begins, priority=int(priority), reason="" if reason == "None" else reason, description=""
        )


async def read_squeue(connections: Remote, head: Machine) -> dict[int, SqueueLine]:
    """Every job that the controller knows."""
    ran = await connections.remote(head, _ARGV, timeout_s=_TIMEOUT_S)
    found = {}
    for line in ran.stdout.splitlines():
        words = line.split("|", 6)
        if len(words) == 7 and words[0].isdigit():
            found[int(words[0])] = SqueueLine(tuple(words[1:4]), tuple(words[4:7]))
    return found
