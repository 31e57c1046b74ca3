"""Converts an incident to the schema of the API. Pure."""

from __future__ import annotations

from dataclasses import asdict

from headway.domain.incident import Incident
from headway.health.incidents.measured_times import incident_timings
from headway.schemas.nodes.incidents import IncidentOut, IncidentStepOut, RequeuedJobOut, TimesOut


def incident_out(incident: Incident) -> IncidentOut:
    """Returns the incident with its steps, requeued jobs and measured times."""
    return IncidentOut(
        number=incident.number,
        cluster=incident.cluster,
        node=incident.node,
        what=incident.what,
        action=incident.action.value,
        state=incident.state.value,
        opened_at=incident.opened_at,
        drained=incident.drained,
        fault_at=incident.fault_at,
        score=incident.score,
        times=TimesOut(**asdict(incident_timings(incident))),
        jobs=[
            RequeuedJobOut(job=job.job, requeued_at=job.requeued_at, running_at=job.running_at, step_at=job.step_at)
            for job in incident.jobs
        ],
        steps=[
            IncidentStepOut(
                at=step.at, state=step.state.value, actor=step.actor, text=step.text, evidence=dict(step.evidence)
            )
            for step in incident.steps
        ],
    )
