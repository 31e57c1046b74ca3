"""Volumes of other machines that a node has lost: mounted again as soon as their server answers."""

from __future__ import annotations

import json
from collections.abc import Mapping

from headway.errors import HeadwayError
from headway.health.context import Tools, fault_of
from headway.providers.base import Owned
from headway.render.system.systemd_files import escape, volume_units
from headway.transport.remote_program import program

MOUNT_S = 7 * 86400.0  # a volume that is away for longer is a person's to see to
FIRST_S = 3.0  # between two tries; ever more, for a server may be away for a night, and all its nodes try
LAST_S = 60.0
SLOWER = 1.3
_THERE_S = 1.0  # what a mount that works takes
_TRY_S = 30.0


async def mounted(tools: Tools, node: str) -> str:
    """Until every volume from elsewhere is there and answers: its server may be away for hours, and no restart brings it. What
    is still wrong when a person has to see to it."""
    units = await _units(tools)
    ends, pause_s = tools.clock() + MOUNT_S, FIRST_S
    while True:
        try:
            async with tools.mounting:
                fault = await _try(tools, node, units) if units else ""
        except HeadwayError as error:
            fault = fault_of(error)
        if not fault or tools.clock() >= ends:
            return fault
        await tools.sleep(pause_s)
        pause_s = min(pause_s * SLOWER, LAST_S)


async def _units(tools: Tools) -> dict[str, str]:
    """Unit of each volume that another machine has -> its path. What the head exports comes before what may lie there."""
    provider = tools.env.provider
    exported = await provider.exports(tools.cluster.name) if isinstance(provider, Owned) else ()
    return {**{f"{escape(where)}.mount": where for where in exported}, **volume_units(tools.cluster)}


async def _try(tools: Tools, node: str, units: Mapping[str, str]) -> str:
    """Waits for no file system: what hangs there stays there, and is asked about no second time meanwhile."""
    machine = await tools.machine(node)
    start = ["systemctl", "start", "--no-block", *units]
    await tools.env.connections.remote(machine, start, timeout_s=_TRY_S)
    look = ["python3", "-I", "-S", "-c", program("volume_usage")]
    ask = json.dumps({"paths": list(units.values()), "mounted_s": _THERE_S})
    ran = await tools.env.connections.remote(machine, [*look, ask], timeout_s=_TRY_S)
    try:
        rows = [json.loads(line) for line in ran.stdout.splitlines()]
        faults = [f"{row['path']}: {row['error']}" for row in rows if row.get("error")]
    except (ValueError, KeyError, TypeError):
        return f"{node} answered with something else than its volumes"
    return "; ".join(faults)
