"""Sends a cluster's secrets to its heads, where nodes fetch those of the jobs that start (node/agent/jobs/secret_server.py)."""

from __future__ import annotations

import json

from headway.domain.access.job_secret import OwnerKind
from headway.domain.cluster import Cluster
from headway.services.app_state import AppState
from headway.services.job_secrets.sealing import open_box


async def deliver(state: AppState, cluster: Cluster) -> tuple[str, ...]:
    """Writes the secrets to all heads and returns the names of the heads that could not be reached: the server sends them
    again (server.workers.job_secret_delivery). Users and teams that the cluster file no longer lists are left out."""
    revision, rows = await state.store.job_secrets.of_cluster(cluster.name)
    if not revision:
        return ()
    teams = {team.name for team in cluster.teams}
    content: dict[str, dict[str, dict[str, str]]] = {"users": {}, "teams": {}}
    box = await open_box(state) if rows else None
    for row in rows:
        if box is not None and (row.kind is OwnerKind.USER or row.owner in teams):
            content[f"{row.kind.value}s"].setdefault(row.owner, {})[row.name] = box.open(row)
    text = json.dumps({"revision": revision, **content})
    away = await state.backend.job_secrets.install_job_secrets(cluster, text.encode())
    if not away:
        state.delivered_secrets[cluster.name] = revision
    return away
