"""The durations of an incident, in seconds. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from headway.domain.incident import Incident, IncidentState


@dataclass(frozen=True, slots=True)
class IncidentTimings:
    """Seconds from the fault to each event, None for an event that has not happened. If there are several jobs, the
    slowest counts."""

    detect_s: float | None = None  # the incident is opened
    drain_s: float | None = None  # the node is drained in Slurm
    requeue_s: float | None = None
    running_s: float | None = None  # the job runs again
    step_s: float | None = None  # the job reports a training step again
    closed_s: float | None = None  # the node is returned to service


def incident_timings(incident: Incident) -> IncidentTimings:
    """Returns the incident's durations."""
    steps = incident.steps
    drained = [step.at for step in steps if step.state is IncidentState.DRAINING]
    closed = [step.at for step in steps if step.state.closed]
    jobs = incident.jobs

    def after(at: float | None) -> float | None:
        return None if at is None else round(max(0.0, at - incident.fault_at), 3)

    return IncidentTimings(
        detect_s=after(steps[0].at if steps else None),
        drain_s=after(drained[0] if drained else None),
        requeue_s=after(_slowest(job.requeued_at for job in jobs)),
        running_s=after(_slowest(job.running_at for job in jobs)),
        step_s=after(_slowest(job.step_at for job in jobs)),
        closed_s=after(closed[0] if closed else None),  # steps recorded after the first closing do not count
    )


def _slowest(found: Iterable[float | None]) -> float | None:
    """Returns the latest time, None if any is missing."""
    known = list(found)
    return max((at for at in known if at is not None), default=None) if None not in known else None
