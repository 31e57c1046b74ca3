"""What Headway tells Slurm: argv on the head, over SSH. Nothing here decides; health and cluster do."""

from __future__ import annotations

import re
from collections.abc import Sequence

from headway.domain.hostlist import compress, expand
from headway.domain.machine import Machine
from headway.errors import CommandFailed
from headway.machines.run import Ran
from headway.machines.ssh import Remote

SPARES = "headway_spares"
# IGNORE_JOBS: it may be put on nodes with running jobs, which it leaves alone. Not MAINT: that would show a healthy
# spare as being under maintenance; without it sinfo says "resv".
_SPARE_OPTIONS = ("Users=root", "StartTime=now", "Flags=IGNORE_JOBS")
_SPARES_END = "EndTime=2100-01-01"  # "infinite" is one year to Slurm: the spares would then become ordinary nodes
_TIMEOUT_S = 30.0
_NODES = re.compile(r"\bNodes=(\S+)")


async def node_down(connections: Remote, head: Machine, node: str, reason: str) -> None:
    """Its jobs end at once; those that may be requeued are."""
    await _scontrol(connections, head, "update", f"NodeName={node}", "State=DOWN", f"Reason={_line(reason)}")


async def node_drain(connections: Remote, head: Machine, node: str, reason: str) -> None:
    """No new job starts there; running ones go on."""
    await _scontrol(connections, head, "update", f"NodeName={node}", "State=DRAIN", f"Reason={_line(reason)}")


async def node_resume(connections: Remote, head: Machine, node: str) -> None:
    """Back to service from DOWN, DRAIN or FAIL; nothing happens to a node that is in service."""
    ran = await _scontrol(connections, head, "update", f"NodeName={node}", "State=RESUME", check=False)
    if ran.code != 0 and "invalid node state" not in ran.stderr.lower():
        raise CommandFailed(ran.argv, ran.code, ran.stderr, where=head.name)


async def reserved_spares(connections: Remote, head: Machine) -> tuple[str, ...]:
    """The nodes that Headway's reservation holds now, () when there is none."""
    ran = await _scontrol(connections, head, "--oneliner", "show", "reservation", SPARES, check=False)
    if ran.code != 0:
        if "not found" in (ran.stdout + ran.stderr).lower():
            return ()
        raise CommandFailed(ran.argv, ran.code, ran.stderr or ran.stdout, where=head.name)
    match = _NODES.search(ran.stdout)
    return tuple(expand(match[1])) if match and match[1] != "(null)" else ()


async def set_spare_reservation(connections: Remote, head: Machine, names: Sequence[str]) -> None:
    """Makes the reservation hold exactly these nodes; without any it goes away. Running jobs are not disturbed."""
    held = await reserved_spares(connections, head)
    if set(held) == set(names):
        return
    if not names:
        await _scontrol(connections, head, "delete", f"ReservationName={SPARES}")
        return
    what = (f"ReservationName={SPARES}", f"Nodes={compress(names)}", _SPARES_END)
    if held:
        await _scontrol(connections, head, "update", "reservation", *what)
    else:
        await _scontrol(connections, head, "create", "reservation", *what, *_SPARE_OPTIONS)


async def start_now(connections: Remote, head: Machine, job_id: int) -> None:
    """A requeued job waits for its begin time; this drops it, so that the next scheduling cycle may start the job."""
    await _scontrol(connections, head, "update", f"JobId={job_id}", "StartTime=now")


async def requeue(connections: Remote, head: Machine, job_id: int) -> None:
    await _scontrol(connections, head, "requeue", str(job_id))


async def ping(connections: Remote, head: Machine) -> bool:
    """Whether slurmctld answers on the head itself."""
    ran = await _scontrol(connections, head, "ping", check=False)
    return ran.code == 0 and " is UP" in ran.stdout


async def refill(connections: Remote, head: Machine, argv: Sequence[str]) -> None:
    """Carries out one of `changes.accounts.refills_due`."""
    await connections.remote(head, argv, timeout_s=_TIMEOUT_S)


def _line(reason: str) -> str:
    """Slurm keeps a reason on one line."""
    return " ".join(reason.split()) or "no reason given"


async def _scontrol(connections: Remote, head: Machine, *words: str, check: bool = True) -> Ran:
    return await connections.remote(head, ["scontrol", *words], timeout_s=_TIMEOUT_S, check=check)
