"""Changes node states with scontrol, and reads them with scontrol and sinfo. Callers decide when."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from headway.domain.machines.machine import Machine
from headway.domain.slurm.hostlist import compress
from headway.domain.slurm.nodes_and_jobs import OUT
from headway.errors import CommandFailed
from headway.slurm.scontrol import TIMEOUT_S, one_line, run_scontrol
from headway.transport.ssh import Remote

_NODE_STATE = re.compile(r"\bState=(\S+)")
# Slurm appends the user and the time in brackets, then fields that only some nodes have: Comment=, Extra=, InstanceId=,
# InstanceType=, ReservationName=.
_NODE_REASON = re.compile(r"\bReason=(.*?)(?: \[[^\]\s]+@[^\]]*\](?: +\w+=.*)?)?\s*$", re.MULTILINE)


async def set_node_down(connections: Remote, head: Machine, node: str, reason: str) -> None:
    """Sets the node DOWN. Its jobs end at once; Slurm requeues those that allow it."""
    await set_nodes_down(connections, head, [node], reason)


async def set_nodes_down(connections: Remote, head: Machine, names: Sequence[str], reason: str) -> None:
    """Sets all these nodes DOWN with one command."""
    await _update_nodes(connections, head, names, "State=DOWN", f"Reason={one_line(reason)}")


async def drain_node(connections: Remote, head: Machine, node: str, reason: str) -> None:
    """Drains the node: no new job starts there, running jobs continue."""
    await drain_nodes(connections, head, [node], reason)


async def drain_nodes(connections: Remote, head: Machine, names: Sequence[str], reason: str) -> None:
    """Drains all these nodes with one command."""
    await _update_nodes(connections, head, names, "State=DRAIN", f"Reason={one_line(reason)}")


async def undrain_nodes(connections: Remote, head: Machine, names: Sequence[str]) -> None:
    """Ends the drain of all these nodes with one command; nodes without a machine stay powered down."""
    await _update_nodes(connections, head, names, "State=UNDRAIN")


async def resume_node(connections: Remote, head: Machine, node: str) -> None:
    """Returns the node to service from DOWN, DRAIN or FAIL; does nothing to a node that is in service."""
    ran = await run_scontrol(connections, head, "update", f"NodeName={node}", "State=RESUME", check=False)
    if ran.code != 0 and "invalid node state" not in ran.stderr.lower():
        raise CommandFailed(ran.argv, ran.code, ran.stderr, where=head.name)


async def resume_node_if(connections: Remote, head: Machine, node: str, is_ours: Callable[[str], bool]) -> str:
    """Returns the node to service if `is_ours` accepts the reason that Slurm has for it now, and returns "".

    Otherwise changes nothing and returns that reason: an administrator set it, perhaps a moment ago, and only they may
    lift it."""
    states, reason = await read_node_state(connections, head, node)
    if states & OUT and not is_ours(reason):
        return reason or "no reason given"
    await resume_node(connections, head, node)
    return ""


async def read_node_state(connections: Remote, head: Machine, node: str) -> tuple[frozenset[str], str]:
    """Returns (states, reason) as the controller has them now."""
    ran = await run_scontrol(connections, head, "--oneliner", "show", "node", node)
    state = _NODE_STATE.search(ran.stdout)
    reason = _NODE_REASON.search(ran.stdout)
    words = state[1] if state else ""
    not_responding = {"NOT_RESPONDING"} if "*" in words else set()
    return frozenset(words.replace("*", "").split("+")) | not_responding, reason[1] if reason else ""


async def set_removed_nodes_down(connections: Remote, head: Machine, names: Sequence[str], reason: str) -> None:
    """Sets nodes without a machine DOWN and ends their drain, because no job is left there to wait for."""
    await set_nodes_down(connections, head, names, reason)
    if names:
        await run_scontrol(connections, head, "update", f"NodeName={compress(names)}", "State=UNDRAIN", check=False)
        await set_nodes_down(connections, head, names, reason)  # UNDRAIN has removed the reason


async def power_up_node(connections: Remote, head: Machine, name: str) -> None:
    """Sets a powered-down node to powering up in Slurm."""
    argv = ["sinfo", "--all", "--noheader", f"--nodes={name}", "--format=%T"]
    ran = await connections.remote(head, argv, timeout_s=TIMEOUT_S)
    if ran.stdout.strip().endswith("~"):
        await run_scontrol(connections, head, "update", f"NodeName={name}", "State=POWER_UP")


async def power_down_nodes(connections: Remote, head: Machine, names: Sequence[str]) -> None:
    """Sets nodes without a machine to powered down, which also ends a drain; Slurm may power them up for a job."""
    states = await read_node_reasons(connections, head)
    for name in names:
        if not states.get(name, ("~", ""))[0].endswith(("~", "%")):
            update = ("update", f"NodeName={name}", "State=POWER_DOWN_FORCE")
            await run_scontrol(connections, head, *update, check=False)


async def close_nodes(connections: Remote, head: Machine, names: Sequence[str], reason: str) -> None:
    """Powers nodes down and keeps Slurm from powering them up. Jobs that wait there for a machine return to the queue.

    The state is DOWN, because a power-down clears a drain but not DOWN."""
    await set_nodes_down(connections, head, names, reason)
    await power_down_nodes(connections, head, names)


async def open_nodes(connections: Remote, head: Machine, names: Sequence[str]) -> None:
    """Lets Slurm power up these nodes, which have no machine, for jobs again."""
    for name in names:
        await run_scontrol(connections, head, "update", f"NodeName={name}", "State=RESUME", check=False)
    await power_down_nodes(connections, head, names)


async def read_node_reasons(connections: Remote, head: Machine) -> dict[str, tuple[str, str]]:
    """Returns (state, reason) of each node as sinfo prints them; a node without a reason has "none"."""
    argv = ["sinfo", "--all", "--noheader", "--Node", "--format=%N|%T|%E"]
    ran = await connections.remote(head, argv, timeout_s=TIMEOUT_S)
    rows = (line.strip().split("|", 2) for line in ran.stdout.splitlines())
    return {row[0]: (row[1], row[2]) for row in rows if len(row) == 3}


async def idle_nodes(connections: Remote, head: Machine) -> tuple[str, ...]:
    """Returns the nodes in service that run no job; reserved ones (spares) last."""
    argv = ["sinfo", "--noheader", "--Node", "--format=%N %T"]
    ran = await connections.remote(head, argv, timeout_s=TIMEOUT_S)
    rows = {tuple(line.split()) for line in ran.stdout.splitlines()}
    return tuple(row[0] for state in ("idle", "reserved") for row in sorted(rows) if row[1:] == (state,))


def is_in_service(sinfo_state: str) -> bool:
    """Returns whether a node in this state, as sinfo writes it, runs jobs or could.

    A maintenance reservation does not take a node out of service: sinfo writes "maint" when it is idle, and appends "$" to
    other states."""
    out = ("down", "drain", "fail", "unknown", "inval", "power", "future")
    state = sinfo_state.removesuffix("$")
    return bool(state) and not state.startswith(out) and not state.endswith(("*", "~", "#", "%", "!", "@", "^"))


async def _update_nodes(connections: Remote, head: Machine, names: Sequence[str], *what: str) -> None:
    if names:
        await run_scontrol(connections, head, "update", f"NodeName={compress(names)}", *what)
