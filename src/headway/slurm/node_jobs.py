"""Reads from squeue which jobs are on which nodes and in which partitions."""

from __future__ import annotations

from collections.abc import Sequence, Set

from headway.domain.machines.machine import Machine
from headway.domain.slurm.hostlist import expand
from headway.domain.slurm.job_states import ALLOCATED, RUNNING
from headway.slurm.scontrol import TIMEOUT_S, UNIX_TIMES
from headway.transport.ssh import Remote

# End states that no command of a user or administrator caused.
_ENDED_BY_ITSELF = frozenset({"COMPLETED", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY"})


async def jobs_on_node(connections: Remote, head: Machine, node: str, *, ending: bool = True) -> tuple[int, ...]:
    """Returns the ids of jobs that occupy the node; with `ending` also those that are completing. Array tasks have
    their own id."""
    return tuple(sorted(await batch_hosts(connections, head, node, ending=ending)))


async def batch_hosts(connections: Remote, head: Machine, node: str, *, ending: bool = True) -> dict[int, str]:
    """Returns the same jobs as `jobs_on_node`, each with the node where its batch script runs."""
    return await _batch_hosts(connections, head, node, RUNNING if ending else ALLOCATED)


async def jobs_that_lost_node(
    connections: Remote, head: Machine, jobs: Set[int], node: str, since: float
) -> dict[int, bool]:
    """Returns which of these jobs have run on without the node since that time (unix seconds; --no-kill), each with
    whether it still has the node of its batch script. A job that was requeued has started later."""
    if not jobs:
        return {}
    numbers = ",".join(map(str, sorted(jobs)))
    argv = [
        *UNIX_TIMES,
        "squeue",
        "--all",
        "--noheader",
        f"--jobs={numbers}",
        "--states=RUNNING",
        "--format=%A %S %B %N",
    ]
    ran = await connections.remote(head, argv, timeout_s=TIMEOUT_S, check=False)  # fails where all of them have ended
    found: dict[int, bool] = {}
    for row in (line.split() for line in ran.stdout.splitlines()):
        if len(row) == 4 and row[1].isdigit() and int(row[1]) < since and node not in (left := expand(row[3])):
            found[int(row[0])] = row[2] in left
    return found


async def recent_jobs_on_node(connections: Remote, head: Machine, node: str) -> set[int]:
    """Returns jobs that occupy the node, and jobs that ended there within the last minutes (MinJobAge) other than
    by a command."""
    return set(await _batch_hosts(connections, head, node, RUNNING | _ENDED_BY_ITSELF))


async def _batch_hosts(connections: Remote, head: Machine, node: str, states: Set[str]) -> dict[int, str]:
    argv = [
        "squeue",
        "--all",
        "--noheader",
        f"--nodelist={node}",
        f"--states={','.join(sorted(states))}",
        "--format=%A %B",
    ]
    ran = await connections.remote(head, argv, timeout_s=TIMEOUT_S)
    rows = (line.split() for line in ran.stdout.splitlines())
    return {int(row[0]): row[1] for row in rows if len(row) == 2}


async def failed_jobs_on_node(connections: Remote, head: Machine, node: str) -> dict[int, int]:
    """Returns jobs of this node that failed within the last minutes (MinJobAge), each with its end in unix
    seconds."""
    argv = [*UNIX_TIMES, "squeue", "--all", "--noheader", f"--nodelist={node}", "--states=FAILED", "--format=%A %e"]
    ran = await connections.remote(head, argv, timeout_s=TIMEOUT_S)
    rows = (line.split() for line in ran.stdout.splitlines())
    return {int(row[0]): int(row[1]) for row in rows if len(row) == 2 and row[1].isdigit()}


async def jobs_by_node(connections: Remote, head: Machine) -> dict[str, tuple[int, ...]]:
    """Returns the jobs that occupy each busy node, including completing ones."""
    argv = ["squeue", "--all", "--noheader", f"--states={','.join(sorted(RUNNING))}", "--format=%A %N"]
    ran = await connections.remote(head, argv, timeout_s=TIMEOUT_S)
    found: dict[str, set[int]] = {}
    for line in ran.stdout.splitlines():
        number, _, nodes = line.partition(" ")
        for name in expand(nodes.strip()):
            found.setdefault(name, set()).add(int(number))
    return {name: tuple(sorted(jobs)) for name, jobs in found.items()}


async def jobs_by_partition(
    connections: Remote, head: Machine, partitions: Sequence[str]
) -> dict[str, tuple[int, ...]]:
    """Returns the jobs that run or wait in each of these partitions; a job may be in several."""
    if not partitions:
        return {}
    argv = ["squeue", "--all", "--noheader", f"--partition={','.join(partitions)}", "--format=%A %P"]
    ran = await connections.remote(head, argv, timeout_s=TIMEOUT_S)
    found: dict[str, set[int]] = {}
    for line in ran.stdout.splitlines():
        number, _, names = line.partition(" ")
        for name in set(names.strip().split(",")) & set(partitions):
            found.setdefault(name, set()).add(int(number))
    return {name: tuple(sorted(jobs)) for name, jobs in found.items()}
