"""Nodes that fail too often, where they are for spare work only: held by a reservation that a job has to ask for."""

from __future__ import annotations

from headway.domain.slurm.state import LEMONS
from headway.health.context import Tools
from headway.health.policy import repair_ladder
from headway.slurm import commands

_MOST = 2000  # incidents that are looked at, the latest first


async def names(tools: Tools) -> tuple[str, ...]:
    """Those that their score says are; none where the cluster has no such nodes."""
    health, now, store = tools.cluster.health, tools.clock(), tools.env.store
    found = await store.incidents(tools.cluster.name, limit=_MOST) if health.lemon_spare_work else ()
    of = {node: [one for one in found if one.node == node] for node in {one.node for one in found}}
    return tuple(n for n in tools.cluster.slot_names if n in of and repair_ladder.spare_work(of[n], health, now))


async def hold(tools: Tools) -> None:
    """Brings the reservation in line with that. It goes away with the last of them, once no job names it any more."""
    await commands.reserve(tools.env.connections, await tools.head(), await names(tools), LEMONS)
