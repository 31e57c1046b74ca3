"""Reads how full each volume is, as seen by the head."""

from __future__ import annotations

import json

from headway.cluster.active_head import require_active_head
from headway.cluster.context import ClusterContext
from headway.domain.cluster import Cluster
from headway.domain.storage.volume_space import VolumeSpace
from headway.errors import Unreachable
from headway.transport.remote_program import program_source

ANSWER_S = 15.0


async def read_volume_space(cluster: Cluster, context: ClusterContext) -> tuple[VolumeSpace, ...]:
    """Returns the size and free space of home, scratch and all network volumes. Raises Unreachable if the head does not
    answer."""
    machine = await require_active_head(cluster, context, await context.machines(cluster.name))
    argv = ["python3", "-I", "-S", "-c", program_source("volume_space"), json.dumps({"paths": cluster.storage.paths})]
    ran = await context.connections.remote(machine, argv, timeout_s=ANSWER_S)
    try:
        rows = [json.loads(line) for line in ran.stdout.splitlines()]
        found = {
            row["path"]: VolumeSpace(row["path"], row.get("size"), row.get("free"), row.get("error", ""))
            for row in rows
        }
    except (ValueError, KeyError, TypeError):
        raise Unreachable(f"{machine.name} gave an unreadable answer") from None
    return tuple(
        found.get(path, VolumeSpace(path, None, None, "its usage is unknown")) for path in cluster.storage.paths
    )
