"""The data of a cluster's overview page. All viewers of a cluster share one read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headway.domain.slurm.nodes_and_jobs import JobState
from headway.schemas.clusters import CheckOut, StatusOut
from headway.schemas.jobs import ProgressOut
from headway.schemas.nodes.incidents import IncidentOut
from headway.services.app_state import AppState
from headway.services.cluster.cluster_to_schema import cluster_out
from headway.services.nodes.incident_to_schema import incident_out
from headway.services.nodes.nodes_to_schema import node_outs
from headway.services.read_model.snapshot import RecentEvent
from headway.services.read_model.topic_hub import cluster_topic

SHARED_S = 1.0  # seconds after which data without change notifications, such as incidents, is read again
SHOWN_INCIDENTS = 4  # incidents that the overview shows with their steps


@dataclass(frozen=True, slots=True)
class Overview:
    """A cluster's last reading, its recent events and its incidents. `jobs` are the running and pending ones, and
    those that ended within the last minutes."""

    status: StatusOut
    jobs: tuple[JobState, ...] = ()
    recent_events: tuple[RecentEvent, ...] = ()  # newest first
    incidents: tuple[IncidentOut, ...] = ()  # newest first: all open ones, and the most recent others
    incident_count: int = 0  # all incidents of the cluster
    progress: Mapping[int, ProgressOut] = field(default_factory=dict)  # job id -> its training progress
    # Cache of values computed from this overview
    derived: dict[Any, Any] = field(default_factory=dict, init=False, compare=False)


async def read_overview(state: AppState, name: str) -> Overview:
    """Returns the cluster's overview. Callers that wait for the same change share one read, and get the same object
    again as long as nothing has changed. Raises NotFound for an unknown cluster."""
    version = state.live.hub.version(cluster_topic(name))
    before = state.overviews.last(name)
    overview: Overview = await state.overviews.get(name, version, SHARED_S, lambda: _read(state, name, before))
    return overview


async def _read(state: AppState, name: str, before: Overview | None) -> Overview:
    """Returns the overview as it is now; `before` itself if it is equal."""
    row = await state.clusters.shared_row(name)
    cluster = await state.clusters.resolved(row)
    snapshot = state.live.snapshot(name)
    status = StatusOut(
        cluster=cluster_out(row, snapshot),
        checks=[CheckOut.model_validate(check) for check in snapshot.checks],
        nodes=node_outs(cluster, snapshot),
    )
    count, _ = await state.store.incidents.counts(name)
    incidents = await _incidents(state, name)
    now = Overview(status, snapshot.jobs, state.live.recent_events(name), incidents, count, snapshot.progress)
    return before if before == now and before is not None else now


async def _incidents(state: AppState, name: str) -> tuple[IncidentOut, ...]:
    """Returns the open incidents and the most recent ones; those that the overview shows include their steps."""
    store = state.store.incidents
    listed = await store.open_and_recent(name, SHOWN_INCIDENTS)
    shown = sorted(listed, key=lambda incident: incident.state.closed)[:SHOWN_INCIDENTS]
    whole = {incident.number: await store.get(incident.number) for incident in shown}
    return tuple(incident_out(whole.get(incident.number, incident)) for incident in listed)
