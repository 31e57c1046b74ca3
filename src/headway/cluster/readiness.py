"""Finishes the set-up of a cluster's machines in Slurm, and checks whether the cluster is ready."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager

from headway.changes.cluster_changes import DesiredState
from headway.cluster.active_head import active_head
from headway.cluster.context import ClusterContext
from headway.cluster.keys import secrets
from headway.cluster.planned_reservations import update_reservations
from headway.cluster.scaling.scale_in import keep_node
from headway.cluster.scaling.spare_selection import spares_to_reserve
from headway.domain.cluster import Cluster
from headway.domain.machines.machine import Machine, MachineState
from headway.domain.machines.scale_in_order import choose_slots
from headway.domain.operation_progress import ReportProgress
from headway.domain.readiness import ReadinessCheck
from headway.domain.slurm.hostlist import compress
from headway.domain.slurm.node_reasons import (
    INCIDENT_REASON,
    NO_MACHINE_REASON,
    SCALE_IN_REASON,
    is_headway_reason,
    is_held_slot,
)
from headway.domain.slurm.nodes_and_jobs import NodeState
from headway.errors import CommandFailed, HeadwayError, Unreachable
from headway.slurm import node_commands, node_reservations
from headway.slurm.reader import SlurmReader
from headway.store import StoreUnavailable

REGISTER_S = 90
REST_S = 30
POLL_S = 0.25
_TOO_LATE = "ResumeTimeout"  # slurmctld's reason for a node that took too long to come up


@asynccontextmanager
async def open_slurm_reader(cluster: Cluster, context: ClusterContext, head: Machine) -> AsyncIterator[SlurmReader]:
    """Opens a reader of this cluster's Slurm and closes it at the end."""
    key = secrets.secret_content(await context.store.secrets.of_cluster(cluster.name), "jwt_key")
    reader = SlurmReader(context.connections, head, key, cluster.slurm_version)
    try:
        yield reader
    finally:
        await reader.close()


async def read_node_states(cluster: Cluster, context: ClusterContext, head: Machine) -> dict[str, NodeState]:
    """Returns the state of every node by name."""
    async with open_slurm_reader(cluster, context, head) as reader:
        return {node.name: node for node in await reader.nodes()}


async def wait_for_slurmrestd(cluster: Cluster, context: ClusterContext, head: Machine) -> None:
    """Waits until slurmrestd answers, at most REST_S. A timeout is not an error here: the next caller reports it."""
    ends = time.monotonic() + REST_S
    async with open_slurm_reader(cluster, context, head) as reader:
        while time.monotonic() < ends:
            if await reader.ping():
                return
            await asyncio.sleep(POLL_S)


async def wait_for_nodes(cluster: Cluster, context: ClusterContext, head: Machine, names: frozenset[str]) -> None:
    """Waits until all these nodes have registered with slurmctld, at most REGISTER_S. Raises Unreachable naming the
    silent ones."""
    silent = names & cluster.group_of.keys()
    ends = time.monotonic() + REGISTER_S
    async with open_slurm_reader(cluster, context, head) as reader:
        while silent and time.monotonic() < ends:
            states = {node.name: node for node in await reader.nodes()}
            silent = frozenset(name for name in silent if name not in states or not _registered(states[name]))
            if silent:
                await asyncio.sleep(POLL_S)
    if silent:
        raise _not_registered_error(cluster.name, silent)


def _not_registered_error(cluster: str, silent: frozenset[str]) -> Unreachable:
    return Unreachable(
        f"{compress(silent)}: slurmd did not register with the controller within {REGISTER_S} s",
        hint=f"headway ssh {cluster} {min(silent)} -- journalctl -u slurmd",
    )


def _registered(node: NodeState) -> bool:
    """Returns whether slurmd has registered with the controller."""
    return not {"NOT_RESPONDING", "UNKNOWN", "POWERED_DOWN"}.intersection(node.states) and node.boot_time > 0


async def mark_empty_slots(
    goal: DesiredState, context: ClusterContext, head: Machine, leaving: Collection[str] = ()
) -> frozenset[str]:
    """Sets slots without a machine down, with a reason. A node that was being scaled in and stays after all (all but
    `leaving`) is restored, and a held slot that has a machine is released. Returns the nodes that should have a machine
    but are marked as having none, because the apply that created it did not complete."""
    empty = set(goal.cluster.slot_names) - set(goal.machines)
    states = await node_commands.read_node_reasons(context.connections, head)
    by_itself = {name for name, group in goal.cluster.group_of.items() if group.idle_s is not None}
    unmarked = [
        name for name in sorted(empty - by_itself) if states.get(name, ("", NO_MACHINE_REASON))[1] != NO_MACHINE_REASON
    ]
    await node_commands.set_removed_nodes_down(context.connections, head, unmarked, NO_MACHINE_REASON)
    for name in goal.machines:
        reason = states.get(name, ("", ""))[1]
        if name not in leaving and reason.startswith(SCALE_IN_REASON):
            await keep_node(context, head, name, reason)
    held = [name for name in goal.machines if is_held_slot(*states.get(name, ("", "")))]
    await node_commands.undrain_nodes(context.connections, head, held)
    return frozenset(name for name in goal.machines if states.get(name, ("", ""))[1] == NO_MACHINE_REASON)


async def return_new_node(context: ClusterContext, head: Machine, name: str) -> None:
    """Waits until a machine created for an empty slot has registered, and returns the node to service, so that it takes
    jobs while other machines are still created. A node that is out for another reason stays out. Raises Unreachable."""
    ends = time.monotonic() + REGISTER_S
    while time.monotonic() < ends:
        states, reason = await node_commands.read_node_state(context.connections, head, name)
        if reason != NO_MACHINE_REASON and not is_held_slot("+".join(states), reason):
            return
        if "NOT_RESPONDING" not in states:
            await node_commands.resume_node(context.connections, head, name)
            return
        await asyncio.sleep(POLL_S)
    raise _not_registered_error(head.cluster, frozenset([name]))


async def return_nodes(
    cluster: Cluster, context: ClusterContext, head: Machine, names: frozenset[str]
) -> tuple[str, ...]:
    """Returns those of the nodes to service that are DOWN in Slurm although they have registered, and returns their
    names. A drain by a person stays, and a node with an incident returns at the end of that incident, after tests."""
    states = await read_node_states(cluster, context, head)
    back = [n for n in sorted(names) if n in states and "DOWN" in states[n].states and "DRAIN" not in states[n].states]
    return tuple(
        [name for name in back if not await node_commands.resume_node_if(context.connections, head, name, _may_return)]
    )


def _may_return(reason: str) -> bool:
    """Returns whether the reason in Slurm was set by Headway or slurmctld, but not for an incident."""
    by_headway = is_headway_reason(reason) or reason.startswith(_TOO_LATE) or not reason
    return by_headway and not reason.startswith(INCIDENT_REASON)


async def hold_spares(cluster: Cluster, context: ClusterContext, head: Machine, report: ReportProgress) -> None:
    """Updates the reservation of spares to the nodes that are usable. If Slurm refuses, the cluster works all the same,
    and the Slurm reconciler tries again."""
    states = await read_node_states(cluster, context, head)
    reserved = frozenset(await node_reservations.reserved_nodes(context.connections, head))
    to_reserve = spares_to_reserve(cluster, states, reserved)
    if to_reserve == reserved:
        return
    try:
        await node_reservations.set_reserved_nodes(context.connections, head, sorted(to_reserve))
    except CommandFailed as error:
        await report("spares", error.first_line, level="warning", done=True)
    else:
        await report("spares", f"{cluster.spares} held ready", done=True)


async def readiness_checks(cluster: Cluster, context: ClusterContext) -> tuple[ReadinessCheck, ...]:
    """Returns the readiness checks, one per subject, in the order of their dependencies."""
    machines = await context.machines(cluster.name)
    names = (*cluster.heads, *choose_slots(cluster, machines))
    stopped = [n for n in names if n not in machines or machines[n].state is not MachineState.RUNNING]
    head = await active_head(cluster, context, machines)
    found = [_machines_check(stopped, len(names))]
    if head is None:
        return (*found, ReadinessCheck("head", False, f"{cluster.head} is not running; run headway apply"))
    accounting = ("mariadb", "slurmdbd") if head.name == cluster.head else ()
    units = ("munge", *accounting, "slurmctld", "slurmrestd")
    try:
        ran = await context.connections.remote(head, ["systemctl", "is-active", *units], timeout_s=15, check=False)
    except HeadwayError as error:
        return (*found, ReadinessCheck("head", False, error.message))
    found.append(_head_check(cluster, head))
    for unit, state in zip(units, ran.stdout.split(), strict=False):
        text = "is running" if state == "active" else f"is {state}; headway exec {cluster.name} -- journalctl -u {unit}"
        found.append(ReadinessCheck(unit, state == "active", text))
    if not all(check.ok for check in found if check.name in ("slurmctld", "slurmrestd")):
        return tuple(found)  # slurmctld or slurmrestd would not answer, and the reason is in the checks already
    try:
        states = await read_node_states(cluster, context, head)
        reserved = await node_reservations.reserved_nodes(context.connections, head)
    except StoreUnavailable:
        raise  # the server's database is no part of a machine
    except HeadwayError as error:
        return (*found, ReadinessCheck("slurm", False, error.message))
    return (*found, *_slurm_checks(cluster, names[cluster.controllers :], states, reserved))


def _head_check(cluster: Cluster, head: Machine) -> ReadinessCheck:
    if head.name == cluster.head:
        return ReadinessCheck("head", True, f"{head.name} answers at {head.address}")
    later = "jobs continue, accounting catches up when it is back"
    text = f"{cluster.head} does not answer and {head.name} is the active head: {later}"
    return ReadinessCheck("head", False, text)


def _machines_check(stopped: list[str], count: int) -> ReadinessCheck:
    if not stopped:
        return ReadinessCheck("machines", True, f"{count} of {count} run")
    what = f"{compress(stopped)} {'is' if len(stopped) == 1 else 'are'} missing or stopped"
    return ReadinessCheck("machines", False, f"{what}; run headway apply")


def _slurm_checks(
    cluster: Cluster, names: tuple[str, ...], states: dict[str, NodeState], reserved: tuple[str, ...]
) -> list[ReadinessCheck]:
    bad = {n: states[n] for n in names if n in states and not (states[n].usable or states[n].changes)}
    missing = [n for n in cluster.slot_names if n not in states]
    usable = len(names) - len(bad) - len(set(missing) & set(names))
    lines = [ReadinessCheck("nodes", not bad and not missing, f"{usable} of {len(names)} usable")]
    for name, node in bad.items():
        lines.append(
            ReadinessCheck(name, False, f"{'+'.join(node.states).lower()}: {node.reason or 'no reason given'}")
        )
    if missing:
        lines.append(ReadinessCheck("slurm.conf", False, f"slurmctld does not know {compress(missing)}; headway apply"))
    if cluster.spares:
        short = cluster.spares - len(reserved)
        text = f"{compress(reserved)} ready" if reserved else "no spare is left: all replace failed nodes"
        lines.append(ReadinessCheck("spares", short <= 0, text))
    return lines


async def finish_bring_up(
    goal: DesiredState,
    context: ClusterContext,
    report: ReportProgress,
    started: frozenset[str],
    leaving: Collection[str] = (),
    failed: Collection[str] = (),
) -> None:
    """Finishes a bring-up after the daemons have started: sets slots without a machine down, waits for nodes to
    register, returns nodes to service that this run or an earlier one started, reserves spares, and
    makes the reservations of the file. `leaving`: nodes
    that another operation has drained; `failed`: machines that could not be set up."""
    cluster = goal.cluster
    machines = await context.machines(cluster.name)
    head = machines[cluster.head]
    began = time.monotonic()
    forgotten = await mark_empty_slots(goal, context, head, leaving)
    started |= {name for name in forgotten if name in machines and name not in failed}
    if started:
        await wait_for_nodes(cluster, context, head, started)
        await return_nodes(cluster, context, head, started)
    await hold_spares(cluster, context, head, report)
    if started:
        await report("nodes", "registered with Slurm", done=True, seconds=time.monotonic() - began)
    await update_reservations(cluster, context, head, report)
