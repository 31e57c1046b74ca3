"""Another MUNGE key on machines that work: beside the one they use on all of them first, and only then in its place.

A machine that has another key than the head is heard no more. So one that can't take the new key stops the change before it has
begun anywhere; and until all have taken it up, agents know why they can't read each other (node/agent/rekey.py)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from headway.changes.cluster import Goal
from headway.cluster import ops
from headway.cluster.env import Env
from headway.cluster.ops import Step, file_step
from headway.domain.files import File
from headway.domain.machine import Machine
from headway.domain.observed import SeenMachine
from headway.errors import HeadwayError, Refused
from headway.render.agent import AGENT
from headway.render.units import MUNGE_KEY

MARK = "/run/headway/keys-change"  # node/agent/rekey.py
NEXT = f"{MUNGE_KEY}.next"
STEPS_S = 60.0


def waiting(goal: Goal, seen: Mapping[str, SeenMachine]) -> tuple[str, ...]:
    """Machines that work, with another key than they should have."""
    return tuple(name for name in goal.machines if name in seen and _works(seen[name]) and not _has(goal, seen, name))


def begun(goal: Goal, seen: Mapping[str, SeenMachine]) -> bool:
    """Whether some machine has the new key already: then there is no way back."""
    return any(_works(one) and _has(goal, seen, name) for name, one in seen.items() if name in goal.machines)


def _works(one: SeenMachine) -> bool:
    return AGENT in one.units and one.units[AGENT].active


def _has(goal: Goal, seen: Mapping[str, SeenMachine], name: str) -> bool:
    found = seen[name].files.get(MUNGE_KEY)
    return found is not None and found.digest == goal.roles[goal.cluster.role_of(name)].digests[MUNGE_KEY]


async def lay_beside(env: Env, machines: Mapping[str, Machine], file: File, key: bytes) -> dict[str, HeadwayError]:
    """Brings the key to each of these; those that did not take it. `file`: whose it is, and its mode."""
    return await _each(env, machines, [_mark(), file_step(NEXT, file, key)])


async def take_up(env: Env, machines: Mapping[str, Machine]) -> dict[str, HeadwayError]:
    """The key beside takes the other's place and munged reads it; machines where it did not."""
    restart: Step = {"op": "units", "names": ["munge.service"], "action": "restart", "stamps": {}}
    return await _each(env, machines, [_mark(), {"op": "rename", "path": NEXT, "to": MUNGE_KEY}, restart])


async def withdraw(env: Env, machines: Mapping[str, Machine]) -> None:
    """As far as they answer; what stays is root's and MUNGE's alone, and the next key takes its place."""
    await _each(env, machines, [{"op": "remove", "path": path} for path in (NEXT, MARK)])


def stays(refused: Mapping[str, HeadwayError]) -> Refused:
    lines = [
        f"  {error.message if name in error.message else f'{name}: {error.message}'}"
        for name, error in sorted(refused.items())
    ]
    count = f"{len(refused)} machine{'s' * (len(refused) != 1)}"
    return Refused(
        f"{count} can't take the new MUNGE key, so all keep the old one:\n" + "\n".join(lines),
        hint="a machine with another key than the head would lose its jobs; mend what is said above and ask again",
    )


def _mark() -> Step:
    return file_step(MARK, File(""))


async def _each(env: Env, machines: Mapping[str, Machine], steps: list[Step]) -> dict[str, HeadwayError]:
    failed: dict[str, HeadwayError] = {}

    async def one(name: str) -> None:
        try:
            await ops.perform(env.connections, machines[name], steps, timeout_s=STEPS_S)
        except HeadwayError as error:
            failed[name] = error

    await asyncio.gather(*(one(name) for name in machines))
    return failed
