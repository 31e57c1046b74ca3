"""Injects faults into machines of test clusters and heals them."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping

from headway.cluster.context import ClusterContext
from headway.domain.cluster import Cluster
from headway.domain.injected_fault import OF_GPUS, OF_HEADS, OF_MACHINES, Daemon, FaultKind
from headway.domain.machines.machine import Machine, MachineState
from headway.errors import CommandFailed, NotFound, Refused
from headway.providers.base import FaultInjectingProvider
from headway.schemas.nodes.incidents import FaultIn
from headway.transport.remote_program import program_source

_REFUSED = 97  # exit code of node/programs/inject_fault.py when it refuses
_TIMEOUT_S = 60.0
_UNITS: Mapping[Daemon, str] = {
    Daemon.AGENT: "headway-agent", Daemon.RELAY: "headway-agent", Daemon.ALERTMANAGER: "prometheus-alertmanager",
}  # fmt: skip


async def inject_fault(cluster: Cluster, context: ClusterContext, fault: FaultIn) -> str:
    """Injects or heals a fault and returns what was done. Raises Refused for machines without fault injection and
    NotFound for a missing machine."""
    if not cluster.provider.simulates_hardware and not fault.force:
        raise Refused(
            f"{cluster.name} is not a local cluster: a fault would harm real machines",
            hint="try it on a cluster with provider: local; --force injects it anyway and may end jobs",
        )
    node = fault.node or cluster.head
    if fault.node and node not in cluster.machine_names:
        raise NotFound(f"{cluster.name} has no machine {fault.node}", hint=f"headway nodes {cluster.name}")
    is_head = node in cluster.heads
    if is_head and fault.kind not in OF_HEADS:
        raise Refused(f"{node} is a head: {fault.kind} is a fault of nodes", hint=f"headway nodes {cluster.name}")
    gpus = (cluster.largest_plan if is_head else cluster.group_of[node].plan).gpus
    if fault.kind in OF_GPUS and not fault.heal and fault.gpu >= gpus:
        raise Refused(f"{node} has {_gpus(gpus)}, not {fault.gpu}", hint="choose one with --gpu N")
    machines = await context.machines(cluster.name)
    machine = machines.get(node)
    if machine is None:
        raise NotFound(f"{node} has no machine", hint=f"run headway apply to restore {cluster.name}")
    if fault.kind is FaultKind.RECLAIM and not cluster.group_of[node].spot:
        raise Refused(
            f"{node} is of group {cluster.group_of[node].name}, whose machines are not spot machines",
            hint="set spot: true in its group",
        )
    if fault.kind in OF_MACHINES:
        return await _inject_by_provider(context, machine, fault)
    return await _inject_on_machine(cluster, context, machine, fault)


def _gpus(count: int) -> str:
    return f"GPUs 0 to {count - 1}" if count else "no GPU"


async def _inject_by_provider(context: ClusterContext, machine: Machine, fault: FaultIn) -> str:
    breaks, node = context.provider, machine.name
    if not isinstance(breaks, FaultInjectingProvider):
        raise Refused(
            f"{node}: provider {context.provider.traits.name} can't inject this fault", hint="cause this fault by hand"
        )
    if fault.kind is FaultKind.RECLAIM:
        if fault.heal:
            raise Refused(f"{node}: a reclaim can't be healed")
        await breaks.reclaim(machine, time.time() + fault.in_s)
        return f"{node} is reclaimed in {fault.in_s} s"
    if fault.heal:
        if fault.kind is FaultKind.CUT_NETWORK:
            await breaks.join(machine)
            return f"{node} is on the network again"
        if machine.state is MachineState.STOPPED:
            await context.provider.start(machine)
            return f"{node} is started"
        await breaks.thaw(machine)
        return f"{node} runs again"
    if machine.state is not MachineState.RUNNING:
        raise Refused(f"{node} is not running", hint=f"headway fault {machine.cluster} {fault.kind} {node} --heal")
    if fault.kind is FaultKind.KILL_NODE:
        await breaks.kill(machine)
        return f"{node} has lost its power"
    if fault.kind is FaultKind.FREEZE_NODE:
        await breaks.freeze(machine)
        return f"{node} is frozen"
    await breaks.cut(machine)
    return f"{node} is off the network"


async def _inject_on_machine(cluster: Cluster, context: ClusterContext, machine: Machine, fault: FaultIn) -> str:
    request = {"do": fault.kind, "heal": fault.heal, "code": fault.code, "gpu": fault.gpu, "text": fault.text}
    if fault.daemon is not None:
        request["unit"] = _UNITS.get(fault.daemon, fault.daemon)
    if not cluster.provider.simulates_hardware:
        request["real"] = True
    argv = ["python3", "-I", "-S", "-c", program_source("inject_fault"), json.dumps(request)]
    ran = await context.connections.remote(machine, argv, timeout_s=_TIMEOUT_S, check=False)
    if ran.code == _REFUSED:
        raise Refused(f"{machine.name}: {ran.stderr.strip()}")
    if ran.code != 0:
        raise CommandFailed(argv[:2], ran.code, ran.stderr, where=machine.name)
    return f"{machine.name}: {json.loads(ran.stdout)['done']}"
