"""All jobs of one user, at once: listing them, cancelling them, and the entries of the user's scrontab."""

from __future__ import annotations

from headway.catalog.slurm_releases import SlurmRelease
from headway.domain.machines.machine import Machine
from headway.slurm.scontrol import TIMEOUT_S
from headway.transport.ssh import Remote

# A job that is completing has been cancelled already; its processes are about to end.
_LIVE = "PENDING,CONFIGURING,RUNNING,SUSPENDED,STOPPED,SIGNALING,STAGE_OUT"


async def list_jobs(connections: Remote, head: Machine, user: str) -> tuple[int, ...]:
    """Returns the ids of the user's jobs that have not ended; an array counts as one. Raises HeadwayError if the controller
    does not answer."""
    argv = ["squeue", "-h", "-a", "-u", user, "-t", _LIVE, "-o", "%A"]
    ran = await connections.remote(head, argv, timeout_s=TIMEOUT_S)
    return tuple(sorted({int(word) for word in ran.stdout.split()}))


async def cancel_jobs(connections: Remote, head: Machine, user: str, release: SlurmRelease) -> None:
    """Cancels all jobs of the user, also those of their scrontab, whose entries Slurm then comments out. Raises
    HeadwayError if the controller does not answer."""
    cron = ["--cron"] if release.scancel_needs_cron else []
    await connections.remote(head, ["scancel", *cron, f"--user={user}"], timeout_s=TIMEOUT_S)
