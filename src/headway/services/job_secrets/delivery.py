"""Sends a cluster's secrets to its heads, where nodes fetch those of the jobs that start (node/agent/jobs/secret_server.py)."""

from __future__ import annotations

import json

from headway.domain.access.job_secret import OwnerKind
from headway.domain.cluster import Cluster
from headway.services.app_state import AppState


async def deliver_secrets(state: AppState, cluster: Cluster) -> tuple[str, ...]:
    """Writes the secrets to all heads and returns the names of the heads that could not be reached: the server sends them
    again (server.workers.job_secret_delivery). Users and teams that the cluster file no longer lists are left out; who is
    in a team is sent too, because Slurm learns it only with the next apply."""
    revision, rows = await state.store.job_secrets.of_cluster(cluster.name)
    if not revision:
        return ()
    listed = {
        OwnerKind.USER: {user.name for user in cluster.users},
        OwnerKind.TEAM: {team.name for team in cluster.teams},
    }
    rows = tuple(row for row in rows if row.owner in listed[row.kind])
    content: dict[str, dict[str, dict[str, str]]] = {"users": {}, "teams": {}}
    for row in rows:
        content[f"{row.kind.value}s"].setdefault(row.owner, {})[row.name] = state.store.job_secrets.value_of(row)
    members = {name: users for name, users in _members(cluster).items() if name in content["teams"]}
    text = json.dumps({"revision": revision, **content, "members": members})
    away = await state.backend.job_secrets.install_job_secrets(cluster, text.encode())
    if not away:
        state.delivered_secrets[cluster.name] = delivery_mark(cluster, revision)
    return away


def delivery_mark(cluster: Cluster, revision: int) -> str:
    """Returns a text that changes with what the heads get: the secrets, the cluster's users, and the members of teams."""
    users = sorted(user.name for user in cluster.users)
    return json.dumps([revision, users, _members(cluster)], sort_keys=True)


def _members(cluster: Cluster) -> dict[str, list[str]]:
    return {team.name: sorted({*team.users, *team.leads}) for team in cluster.teams}
