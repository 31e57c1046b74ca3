"""Resets the GPU-hour usage of teams when the period of their cap begins."""

from __future__ import annotations

from datetime import datetime

from headway.changes.account_changes import usage_resets_due
from headway.cluster.context import ClusterContext
from headway.domain.cluster import Cluster
from headway.domain.machines.machine import Machine
from headway.slurm.accounting import sacctmgr_commands


async def reset_due_usage(
    cluster: Cluster, context: ClusterContext, head: Machine, now: datetime
) -> list[tuple[str, str]]:
    """Resets the GPU-hour usage of every team whose period began since its last reset, including periods that began
    while the server was down. A team without a recorded reset is recorded with the current time, so that its usage
    counts from now on; so is a team whose recorded reset is in the future because the clock was ahead then. Returns
    messages as (team, text)."""
    last = await context.store.gpu_hour_cap_resets.of_cluster(cluster.name)
    capped = [team for team in cluster.teams if team.gpu_hours is not None]
    for team in capped:
        if last.get(team.name, float("inf")) > now.timestamp():
            await context.store.gpu_hour_cap_resets.record(cluster.name, team.name, now.timestamp())
    known = {name: datetime.fromtimestamp(at, now.tzinfo) for name, at in last.items()}
    messages = []
    for change in usage_resets_due(capped, known, now):
        await sacctmgr_commands.apply_account_change(context.connections, head, change.data)
        await context.store.gpu_hour_cap_resets.record(cluster.name, change.what, now.timestamp())
        messages.append((change.what, f"GPU-hours reset: {change.why}"))
    return messages
