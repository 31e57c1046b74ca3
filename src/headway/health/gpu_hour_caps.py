"""Resets teams' GPU-hour usage when the period of their cap begins."""

from __future__ import annotations

from datetime import datetime

from headway.changes.slurm_accounts import usage_resets_due
from headway.cluster.context import ClusterContext
from headway.domain.cluster import Cluster
from headway.domain.machine import Machine
from headway.slurm import account_commands


async def reset_due_usage(cluster: Cluster, env: ClusterContext, head: Machine, now: datetime) -> list[tuple[str, str]]:
    """Sets back every team whose period began since the last time; a server that was away catches up. A team seen for
    the first time is noted: its usage begins with it. So is one whose last time is yet to come: the clock was ahead then.
    Returns (team, words) for people to read."""
    last = await env.store.cap_refills.of_cluster(cluster.name)
    capped = [team for team in cluster.teams if team.gpu_hours is not None]
    for team in capped:
        if last.get(team.name, float("inf")) > now.timestamp():
            await env.store.cap_refills.record(cluster.name, team.name, now.timestamp())
    known = {name: datetime.fromtimestamp(at, now.tzinfo) for name, at in last.items()}
    said = []
    for change in usage_resets_due(capped, known, now):
        await account_commands.apply_account_change(env.connections, head, change.data)
        await env.store.cap_refills.record(cluster.name, change.what, now.timestamp())
        said.append((change.what, f"GPU-hours begin anew: {change.why}"))
    return said
