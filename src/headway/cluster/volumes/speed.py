"""Measures the throughput of each volume from one machine."""

from __future__ import annotations

import json

from headway.cluster.context import ClusterContext
from headway.domain.cluster import Cluster
from headway.errors import NotFound, Unreachable
from headway.schemas.storage.volumes import VolumeSpeedOut
from headway.transport.remote_program import program_source

_S_A_VOLUME = 300.0


async def measure_volumes(cluster: Cluster, context: ClusterContext, node: str, mib: int) -> tuple[VolumeSpeedOut, ...]:
    """Measures home, scratch and every writable volume, in MiB/s. `node`: "" for the head. Raises NotFound,
    Unreachable."""
    machine = (await context.machines(cluster.name)).get(node or cluster.head)
    if machine is None:
        raise NotFound(f"{cluster.name} has no machine {node or cluster.head}", hint=f"headway nodes {cluster.name}")
    storage = cluster.storage
    fixed = {volume.path for volume in storage.volumes if volume.read_only}
    paths = [path for path in storage.paths if path not in fixed]
    argv = ["python3", "-I", "-S", "-c", program_source("volume_speed"), json.dumps({"paths": paths, "mib": mib})]
    ran = await context.connections.remote(machine, argv, timeout_s=_S_A_VOLUME * len(paths))
    try:
        rows = [json.loads(line) for line in ran.stdout.splitlines()]
        return tuple(
            VolumeSpeedOut(
                path=row["path"],
                write_mib_s=row.get("write", 0.0),
                read_mib_s=row.get("read", 0.0),
                checkpoint_mib_s=row.get("checkpoint", 0.0),
                error=row.get("error", ""),
            )
            for row in rows
        )
    except (ValueError, KeyError, TypeError):
        raise Unreachable(f"{machine.name} gave an unreadable answer") from None
