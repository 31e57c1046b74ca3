"""Why each waiting job of a cluster waits, explained by `jobs.explain.pending_explanation` once per reading for all requests."""

from __future__ import annotations

from dataclasses import replace

from headway.domain.cluster import Cluster
from headway.domain.slurm.nodes_and_jobs import JobState
from headway.errors import HeadwayError
from headway.jobs.explain.pending_explanation import PendingReason, explain_pending
from headway.jobs.explain.placement_search import ClusterSnapshot
from headway.services.app_state import AppState
from headway.services.read_model.snapshot_diff import diff_since


def pending_reason(state: AppState, cluster: Cluster, job: JobState) -> PendingReason | None:
    """Returns why the job waits, according to the cluster's last reading; None for a job that does not wait."""
    snapshot = state.live.snapshot(cluster.name)
    known = state.placement_snapshots.get(cluster.name)
    if known is None or known[0] is not snapshot:
        known = state.placement_snapshots[cluster.name] = (
            snapshot,
            _placement_snapshot(state, cluster, known and known[1]),
            {},
        )
    _, world, found = known
    if job.id not in found:
        found[job.id] = explain_pending(job, world)
    return found[job.id]


def _placement_snapshot(state: AppState, cluster: Cluster, before: ClusterSnapshot | None) -> ClusterSnapshot:
    snapshot = state.live.snapshot(cluster.name)
    at = snapshot.as_of or state.clock()
    diff = (
        diff_since(snapshot, before.by_id).all_changes() if before is not None and before.cluster is cluster else None
    )
    if before is None or diff is None:
        current = ClusterSnapshot.from_readings(
            cluster, snapshot.nodes, snapshot.jobs, snapshot.reservations, at, snapshot.held_slots
        )
        # the same mapping as in the snapshot, so that lists share the diff
        return replace(current, by_id=snapshot.by_id)
    here = replace(before, nodes=snapshot.nodes, reservations=snapshot.reservations, held_slots=snapshot.held_slots)
    return here.update(at, snapshot.jobs, snapshot.by_id, *diff)


async def job_history(state: AppState, cluster: Cluster) -> tuple[JobState, ...]:
    """Returns the jobs of the last days; none while accounting does not answer."""
    try:
        return await state.readings.history(cluster)
    except (HeadwayError, TimeoutError, OSError):
        return ()
