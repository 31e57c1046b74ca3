"""Finds the active head. No other code depends on how many heads a cluster has."""

from __future__ import annotations

from collections.abc import Mapping

from headway.cluster.context import ClusterContext
from headway.domain.cluster import Cluster
from headway.domain.machines.machine import Machine, MachineState
from headway.errors import HeadwayError, Unreachable
from headway.slurm.scontrol import ping_argv

ASK_S = 2.0
LEADER_FILE = "leads"  # name of the file in Slurm's state folder, see `leader_file`
_ASK = ["systemctl", "is-active", "--quiet", "slurmrestd.service"]


async def active_head(cluster: Cluster, context: ClusterContext, machines: Mapping[str, Machine]) -> Machine | None:
    """Returns the head to connect to, None if none runs. With several heads it is the first whose daemons answer; each
    of them reaches the active controller."""
    running = [machines[name] for name in cluster.heads if _runs(machines.get(name))]
    if len(running) < 2:
        return running[0] if running else None
    answering = []
    for machine in running:
        try:
            ran = await context.connections.remote(machine, _ASK, timeout_s=ASK_S, check=False)
        except HeadwayError:
            continue
        if ran.code == 0:
            return machine
        answering.append(machine)
    return (answering or running)[0]


async def active_or_stopped_head(
    cluster: Cluster, context: ClusterContext, machines: Mapping[str, Machine]
) -> Machine | None:
    """Returns the active head or, if none runs, a stopped one. None means that no head is left, and Slurm's state is
    lost with them."""
    there = next((machines[name] for name in cluster.heads if name in machines), None)
    return await active_head(cluster, context, machines) or there


def _runs(machine: Machine | None) -> bool:
    return machine is not None and machine.state is MachineState.RUNNING


async def second_head_leads(
    cluster: Cluster, context: ClusterContext, machines: Mapping[str, Machine]
) -> Machine | None:
    """Returns the second head if it can't reach the first one's controller, else None. The second controller is active
    then, or becomes active once the first one's heartbeat in the state folder has expired."""
    second = machines.get(cluster.heads[-1])
    if cluster.controllers == 1 or second is None or second.state is not MachineState.RUNNING:
        return None
    try:
        ran = await context.connections.remote(second, ping_argv(), timeout_s=10, check=False)
    except HeadwayError:
        return None
    lines = ran.stdout.splitlines()
    return second if lines and lines[0].endswith("is DOWN") else None


def leader_file(cluster: Cluster) -> str:
    """Returns the path of the file in which a controller writes its name when it becomes active
    (render.ha.single_active_head)."""
    return f"{cluster.state_folder}/{LEADER_FILE}"


async def second_head_took_over(cluster: Cluster, context: ClusterContext, second: Machine) -> bool:
    """Returns whether the second head was the last to become active, by the leader file."""
    try:
        ran = await context.connections.remote(second, ["cat", leader_file(cluster)], timeout_s=ASK_S * 2, check=False)
    except HeadwayError:
        return False
    return ran.stdout.split()[:1] == [second.name]


async def answers_ssh(context: ClusterContext, machine: Machine) -> bool:
    """Returns whether the machine answers over SSH."""
    try:
        await context.connections.remote(machine, ["true"], timeout_s=ASK_S * 2)
    except HeadwayError:
        return False
    return True


async def require_active_head(cluster: Cluster, context: ClusterContext, machines: Mapping[str, Machine]) -> Machine:
    """Returns the active head. Raises Unreachable if none runs."""
    found = await active_head(cluster, context, machines)
    if found is None:
        raise Unreachable(f"{cluster.head} is not running", hint=f"headway status {cluster.name}")
    return found
