"""Mounts the lost network volumes of a node again as soon as their file server answers."""

from __future__ import annotations

import json
from collections.abc import Mapping

from headway.errors import HeadwayError
from headway.health.context import HealthContext, fault_text
from headway.providers.base import OwnedMachinesProvider
from headway.render.system.volume_mounts import unit_name, volume_units
from headway.transport.remote_program import program_source

MOUNT_S = 7 * 86400.0  # a volume that is missing for longer needs a person
FIRST_PAUSE_S = 3.0  # pause between two tries; it grows, because a server may be away for a night and all its nodes try
LONGEST_PAUSE_S = 60.0
BACKOFF = 1.3
_MOUNTED_S = 1.0  # seconds in which a working mount answers
_TRY_S = 30.0


async def remount_volumes(context: HealthContext, node: str) -> str:
    """Waits until every network volume of the cluster file is mounted and answers; an apply may change the file meanwhile.
    Returns "", or the fault that remains after MOUNT_S."""
    exported = await _exported_units(context)
    ends, pause_s = context.clock() + MOUNT_S, FIRST_PAUSE_S
    while True:
        units = {**exported, **volume_units(context.cluster)}
        try:
            async with context.mount_limit:
                fault = await _try_mount(context, node, units) if units else ""
        except HeadwayError as error:
            fault = fault_text(error)
        if not fault or context.clock() >= ends:
            return fault
        await context.sleep(pause_s)
        pause_s = min(pause_s * BACKOFF, LONGEST_PAUSE_S)


async def _exported_units(context: HealthContext) -> dict[str, str]:
    """Returns the mount unit of each volume that the head exports, with its path. They are mounted first, because other
    volumes may be mounted below them."""
    provider = context.cluster_context.provider
    exported = await provider.exports(context.cluster.name) if isinstance(provider, OwnedMachinesProvider) else ()
    return {unit_name(where): where for where in exported}


async def _try_mount(context: HealthContext, node: str, units: Mapping[str, str]) -> str:
    """Starts the mount units once and returns the fault, "" if all volumes answer. It waits for no file system: a check
    that hangs is not started a second time."""
    machine = await context.running_machine(node)
    start = ["systemctl", "start", "--no-block", *units]
    await context.cluster_context.connections.remote(machine, start, timeout_s=_TRY_S)
    look = ["python3", "-I", "-S", "-c", program_source("volume_space")]
    request = json.dumps({"paths": list(units.values()), "mounted_s": _MOUNTED_S})
    ran = await context.cluster_context.connections.remote(machine, [*look, request], timeout_s=_TRY_S)
    try:
        rows = [json.loads(line) for line in ran.stdout.splitlines()]
        faults = [f"{row['path']}: {row['error']}" for row in rows if row.get("error")]
    except (ValueError, KeyError, TypeError):
        return f"{node} did not answer with its list of volumes"
    return "; ".join(faults)
