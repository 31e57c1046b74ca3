"""The timeline of the job's page: submission, starts, ends and incidents. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from headway.domain.slurm.job_states import RUNNING, WAITING
from headway.domain.slurm.nodes_and_jobs import JobState
from headway.schemas.jobs import JobRunOut, JobRunsOut
from headway.schemas.nodes.incidents import IncidentOut
from headway.web.views.job_facts import placed
from headway.web.views.state_wording import job_word


@dataclass(frozen=True, slots=True)
class TimelineEntry:
    """An entry of the timeline."""

    at: float  # unix seconds; 0: not yet
    kind: str  # ok | warn | bad | now
    title: str
    text: str = ""
    href: str = ""


@dataclass(frozen=True, slots=True)
class Timeline:
    """The timeline of the job."""

    steps: tuple[TimelineEntry, ...]


def timeline(cluster: str, job: JobState, runs: JobRunsOut) -> Timeline:
    """Returns the submission, each run's start and end, and the incidents between them, in order of time."""
    first = min((run.submit_time for run in runs.runs if run.submit_time), default=job.submit_time)
    steps = [TimelineEntry(first, "ok", "Submitted", f"by {job.user} to {job.partition}")]
    for number, run in enumerate(runs.runs):
        steps += _run(run, number, job, last=number == len(runs.runs) - 1)
    steps += [_incident(cluster, incident) for incident in runs.incidents]
    return Timeline(tuple(sorted(steps, key=lambda step: step.at or float("inf"))))


def _run(run: JobRunOut, number: int, job: JobState, *, last: bool) -> list[TimelineEntry]:
    steps = []
    if run.start_time:
        again = f", run {number + 1}" if number else ""
        where = placed(run.placement) if run.placement else ""
        steps.append(
            TimelineEntry(run.start_time, "ok", f"Started{again}", f"on {run.nodelist}{f', {where}' if where else ''}")
        )
    kind, word = job_word(run.state, "")
    if last and job.state in WAITING:
        steps.append(TimelineEntry(0, "now", "Pending again" if number or job.restarts else "Pending"))
    elif last and job.state in RUNNING:
        steps.append(TimelineEntry(0, "now", job_word(job.state, job.reason)[1].capitalize()))
    elif run.end_time:
        code = f"exit code {run.exit_code}" if run.exit_code else ""
        back = run.state == "REQUEUED" or not last
        title = "Went back to the queue" if back else word.capitalize()
        sign = "warn" if back else {"done": "ok", "cancelled": "off"}.get(kind, "bad")
        steps.append(TimelineEntry(run.end_time, sign, title, word if back and run.state != "REQUEUED" else code))
    return steps


def _incident(cluster: str, incident: IncidentOut) -> TimelineEntry:
    return TimelineEntry(
        incident.fault_at or incident.opened_at,
        "bad",
        f"Incident {incident.number} on {incident.node}",
        f"{incident.what}: {incident.state}",
        f"/clusters/{cluster}/incidents/{incident.number}",
    )
