"""Records when jobs that an incident requeued run again, and when they report their first training step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from headway.domain.slurm.nodes_and_jobs import JobState
from headway.health.context import HealthContext
from headway.jobs.view.progress import READ_AFTER_END_S

FOLLOW_S = 6 * 3600.0  # a job that has not run again by then is no longer tracked


async def track_recovery(context: HealthContext, jobs: Iterable[JobState], reported: Mapping[int, float]) -> bool:
    """Records restarts and first training steps of requeued jobs. `reported`: job -> unix seconds of its newest
    training step. Returns whether a job may still report its first step."""
    store, now = context.cluster_context.store, context.clock()
    running = {job.id: job for job in jobs if job.state in {"RUNNING", "COMPLETED"} and job.start_time}
    waits = False
    for moved in await store.incidents.jobs_recovering(context.cluster.name, now - FOLLOW_S):
        job = running.get(moved.job)
        # Slurm's times are whole seconds: a job that starts in the second of its requeue started after the requeue.
        if job is None or job.start_time < int(moved.requeued_at):
            continue
        began = moved.running_at
        if began is None:
            began = max(float(job.start_time), moved.requeued_at)
            await store.incidents.record_job_recovery(moved, running_at=began)
        at = reported.get(moved.job, 0.0)
        if at > began:
            await store.incidents.record_job_recovery(moved, step_at=at)
        elif job.state == "RUNNING" or now - job.end_time <= READ_AFTER_END_S:
            waits = True
    return waits
