"""Replaces the MUNGE key on running machines: the new key is first stored next to the old one on all of them, and only
then activated.

A head ignores messages of a machine with another key. So if a machine can't store the new key, the change stops before
any machine has activated it. A head activates the key before any node does, or gets the old one back. Until all machines have
activated it, agents know why they can't read each other's messages (node/agent/lost_contact/key_change.py). Once the heads have
the key, it is the cluster's key, which machines that are created or started get. After a killed run, the next one
continues if a head has the new key; otherwise an apply with the cluster's old key undoes the change."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

from headway.changes.cluster_changes import DesiredState
from headway.cluster import remote_steps
from headway.cluster.context import ClusterContext
from headway.cluster.keys import secrets
from headway.cluster.remote_steps import Step, file_step
from headway.domain.machines.machine import Machine
from headway.domain.machines.managed_file import File
from headway.domain.machines.observed_state import Observed, ObservedMachine
from headway.errors import HeadwayError, Refused
from headway.render.system.agent_config import AGENT
from headway.render.system.unit_list import MUNGE_KEY

MARK = "/run/headway/keys-change"  # node/agent/lost_contact/key_change.py
NEXT = f"{MUNGE_KEY}.next"
MUNGED = "munge.service"
STAMP = f"/run/headway/loaded/{MUNGED}"  # node/ops/files.py
STEPS_S = 60.0
# Removes the stamp of the key that munged has loaded. If the run ends before munged is restarted, an apply detects that
# by the file's time.
_UNKNOWN: Step = {"op": "remove", "path": STAMP}
_RESTART: Step = {"op": "units", "names": [MUNGED], "action": "restart", "stamps": {}}


async def replace_munge_key(
    context: ClusterContext,
    goal: DesiredState,
    observed: Observed,
    cluster_secrets: Mapping[str, str],
    new: Mapping[str, str],
) -> tuple[str, ...]:
    """Replaces the MUNGE key of running machines, and stores the cluster's `new` secrets between the heads and the
    nodes. Returns the machines that have the key now; a node that could not take it is left to its own setup. Raises
    Refused if a machine can't store the key while the head still uses the old one, or if the head itself can't."""
    cluster, seen = goal.cluster, observed.seen
    names = machines_to_rekey(goal, seen)
    machines = {name: observed.machines[name] for name in names}
    failed: dict[str, HeadwayError] = {}
    if names:
        file = goal.roles["head"].files[MUNGE_KEY]
        failed = await distribute_key(context, machines, file, secrets.secret_content(cluster_secrets, file.secret))
        if failed and cluster.head in names and not rekey_begun(goal, seen):
            await remove_new_key(context, machines)
            raise old_key_stays_error(failed)
        kept = await context.store.secrets.of_cluster(cluster.name)
        old = secrets.secret_content(kept, file.secret) if file.secret in new else None
        failed |= await rekey_heads(context, goal, observed, failed, old)
    await secrets.store_new_secrets(context.store, cluster, new)
    failed |= await activate_key(
        context, {name: machine for name, machine in machines.items() if name not in (*failed, *cluster.heads)}
    )
    return tuple(name for name in names if name not in failed)


def machines_to_rekey(goal: DesiredState, seen: Mapping[str, ObservedMachine]) -> tuple[str, ...]:
    """Returns the running machines that do not use the key they should have."""
    return tuple(name for name in goal.machines if name in seen and _works(seen[name]) and not _uses(goal, seen, name))


def rekey_begun(goal: DesiredState, seen: Mapping[str, ObservedMachine]) -> bool:
    """Returns whether some machine already has the new key. Then there is no way back."""
    return any(_works(machine) and _has(goal, seen, name) for name, machine in seen.items() if name in goal.machines)


def _works(machine: ObservedMachine) -> bool:
    """Returns whether the machine's agent is active."""
    return AGENT in machine.units and machine.units[AGENT].active


def _has(goal: DesiredState, seen: Mapping[str, ObservedMachine], name: str) -> bool:
    """Returns whether the machine's key file holds the new key."""
    found = seen[name].files.get(MUNGE_KEY)
    return found is not None and found.digest == goal.roles[goal.cluster.role_of(name)].digests[MUNGE_KEY]


def _uses(goal: DesiredState, seen: Mapping[str, ObservedMachine], name: str) -> bool:
    """Returns whether the machine has the new key. For a head, its munged must also have loaded the key, because nodes
    follow the head. A run may have been killed in between."""
    if not _has(goal, seen, name) or name not in goal.cluster.heads:
        return _has(goal, seen, name)
    munged = seen[name].units.get(MUNGED)
    return munged is not None and munged.active and munged.started >= seen[name].files[MUNGE_KEY].ctime


async def distribute_key(
    context: ClusterContext, machines: Mapping[str, Machine], file: File, key: bytes
) -> dict[str, HeadwayError]:
    """Stores the key next to the present one on each of these machines. Returns the errors by machine. `file`: owner
    and mode of the key file."""
    return await _each(context, machines, [_mark(), file_step(NEXT, file, key)])


async def activate_key(context: ClusterContext, machines: Mapping[str, Machine]) -> dict[str, HeadwayError]:
    """Replaces the present key by the new one stored next to it and restarts munged. Returns the errors by machine."""
    return await _each(
        context, machines, [_mark(), _UNKNOWN, {"op": "rename", "path": NEXT, "to": MUNGE_KEY}, _RESTART]
    )


async def rekey_heads(
    context: ClusterContext,
    goal: DesiredState,
    observed: Observed,
    refused: Mapping[str, HeadwayError],
    old: bytes | None,
) -> dict[str, HeadwayError]:
    """Activates the new key on the heads that need it. Returns the errors of heads where that failed, if nodes may
    follow all the same. `refused`: machines that could not store the new key. `old`: the cluster's previous key; None:
    the new key is the cluster's already, and there is no way back. Raises Refused if a head fails; with `old` all heads
    that answer get the old key back first."""
    heads, file = goal.cluster.heads, goal.roles["head"].files[MUNGE_KEY]
    machines = {name: observed.machines[name] for name in machines_to_rekey(goal, observed.seen)}
    failed = {name: refused[name] for name in heads if name in refused}
    failed |= await activate_key(
        context, {name: machines[name] for name in heads if name in machines and name not in failed}
    )
    if not failed or (old is None and goal.cluster.head not in failed):
        return failed
    if old is None:
        await remove_new_key(context, machines, marks=False)
        raise heads_behind_error(failed)
    lost = await restore_key(
        context, {name: observed.machines[name] for name in heads if name in observed.seen}, file, old
    )
    await remove_new_key(context, machines, marks=not lost)
    raise old_key_stays_error(failed, lost)


async def restore_key(
    context: ClusterContext, machines: Mapping[str, Machine], file: File, key: bytes
) -> dict[str, HeadwayError]:
    """Puts the old key back on machines that may have the new one. Returns the errors by machine. The stored new key is
    removed first, so that a late `activate_key` finds nothing."""
    remove_new: Step = {"op": "remove", "path": NEXT}
    return await _each(context, machines, [remove_new, _mark(), _UNKNOWN, file_step(MUNGE_KEY, file, key), _RESTART])


async def remove_new_key(context: ClusterContext, machines: Mapping[str, Machine], *, marks: bool = True) -> None:
    """Removes the new key that is stored next to the present one, from machines that answer. A key file that stays is
    readable for root and MUNGE only, and the next new key overwrites it. `marks`: also removes the mark that keys may
    differ."""
    await _each(context, machines, [{"op": "remove", "path": path} for path in ((NEXT, MARK) if marks else (NEXT,))])


def old_key_stays_error(refused: Mapping[str, HeadwayError], lost: Iterable[str] = ()) -> Refused:
    """Returns the error that all machines keep the old key. `lost`: heads that may still have the new key."""
    names = ", ".join(sorted(lost))
    return Refused(
        f"{_count(refused)} can't install the new MUNGE key, so all machines keep the old one:\n{_lines(refused)}"
        + (f"\n{names} may have the new key; with it the head reaches no node" if names else ""),
        hint="correct the errors above and run apply at once: all machines then get the same key"
        if names
        else "a machine with another key than the head would lose its jobs; correct the errors above and try again",
    )


def heads_behind_error(refused: Mapping[str, HeadwayError]) -> Refused:
    """Returns the error that a head can't take the key that the cluster already uses."""
    return Refused(
        f"{_count(refused)} can't install the cluster's MUNGE key, so no node got it:\n{_lines(refused)}",
        hint="a node with another key than the head would lose its jobs; correct the errors above and run apply again",
    )


def _count(refused: Mapping[str, HeadwayError]) -> str:
    return f"{len(refused)} machine{'s' * (len(refused) != 1)}"


def _lines(refused: Mapping[str, HeadwayError]) -> str:
    return "\n".join(
        f"  {error.message if name in error.message else f'{name}: {error.message}'}"
        for name, error in sorted(refused.items())
    )


def _mark() -> Step:
    return file_step(MARK, File(""))


async def _each(context: ClusterContext, machines: Mapping[str, Machine], steps: list[Step]) -> dict[str, HeadwayError]:
    """Runs the steps on all machines. Returns the errors by machine."""
    failed: dict[str, HeadwayError] = {}

    async def one(name: str) -> None:
        try:
            await remote_steps.run_steps(context.connections, machines[name], steps, timeout_s=STEPS_S)
        except HeadwayError as error:
            failed[name] = error

    await asyncio.gather(*(one(name) for name in machines))
    return failed
