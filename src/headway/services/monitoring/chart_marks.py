"""The events that charts of a cluster, a node or a job mark: incidents, drains by people, restarts and checkpoints."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from urllib.parse import quote

from headway.domain.cluster import Cluster
from headway.domain.incident import Incident
from headway.domain.slurm.nodes_and_jobs import JobState
from headway.errors import HeadwayError
from headway.schemas.jobs import JobRunsOut
from headway.schemas.metrics import ChartMarkOut
from headway.schemas.nodes.incidents import IncidentOut
from headway.services.app_state import AppState
from headway.services.jobs.details import get_runs
from headway.store import AuditAsk

MOST_MARKS = 60  # of each kind
_RUNS_AGE_S = 60.0


@dataclass(frozen=True, slots=True)
class Period:
    """A period in unix seconds, both ends included."""

    start: float
    end: float

    def __contains__(self, at: object) -> bool:
        return isinstance(at, int | float) and self.start <= at <= self.end


async def cluster_marks(state: AppState, name: str, period: Period, node: str = "") -> list[ChartMarkOut]:
    """Returns the incidents of the cluster, or of one node, and the drains by people, the oldest first."""
    incidents = await state.store.incidents.search(
        name, node=node, since=period.start, until=period.end, limit=MOST_MARKS
    )
    found = [_incident_mark(name, incident) for incident in incidents]
    return _latest([*found, *await _drains(state, name, period, node)], period)


async def runs_of_job(state: AppState, cluster: Cluster, job: JobState) -> JobRunsOut:
    """Returns the runs and incidents of the job; none while accounting does not answer. Viewers share one query a minute."""
    key = f"{cluster.name}/runs/{job.id}/{job.state}/{job.start_time}/{job.restarts}"
    try:
        return await state.cache.get(key, _RUNS_AGE_S, lambda: get_runs(state, cluster.name, job.id))
    except HeadwayError:
        return JobRunsOut(runs=[])


async def job_marks(state: AppState, cluster: Cluster, job: JobState, period: Period) -> list[ChartMarkOut]:
    """Returns the restarts and checkpoints of the job and the incidents that affected it, the oldest first."""
    runs = await runs_of_job(state, cluster, job)
    progress = await state.readings.progress(cluster, job)
    found = [
        *_restarts(runs),
        *(_incident_mark(cluster.name, incident) for incident in runs.incidents),
        *(
            ChartMarkOut(at=at, kind="checkpoint", text="Checkpoint saved")
            for at in (progress.checkpoints_at if progress else ())
        ),
    ]
    return _latest(found, period)


async def _drains(state: AppState, name: str, period: Period, node: str) -> Iterable[ChartMarkOut]:
    asked = AuditAsk(
        action="node.drain", target=f"{name}/{node}", result="ok", since=period.start, until=period.end + 1
    )
    rows = await state.store.audit.search(asked, limit=MOST_MARKS)
    for_node = [row for row in rows if not node or row.target == f"{name}/{node}"]
    return [
        ChartMarkOut(
            at=row.at,
            kind="drain",
            text=f"{row.person} drained {row.target.partition('/')[2]}"
            + (f": {row.detail['reason']}" if row.detail.get("reason") else ""),
        )
        for row in for_node
    ]


def _restarts(runs: JobRunsOut) -> Iterator[ChartMarkOut]:
    for number, run in enumerate(runs.runs, 1):
        if number > 1 and run.start_time:
            yield ChartMarkOut(at=run.start_time, kind="restart", text=f"Run {number} started on {run.nodelist}")


def _incident_mark(cluster: str, incident: Incident | IncidentOut) -> ChartMarkOut:
    return ChartMarkOut(
        at=incident.fault_at or incident.opened_at,
        kind="incident",
        text=f"Incident {incident.number} on {incident.node}: {incident.what}",
        href=f"/clusters/{quote(cluster)}/incidents/{incident.number}",
    )


def _latest(marks: Iterable[ChartMarkOut], period: Period) -> list[ChartMarkOut]:
    """Returns the latest marks of each kind in the period, the oldest first."""
    by_kind = defaultdict[str, list[ChartMarkOut]](list)
    for mark in sorted((mark for mark in marks if mark.at in period), key=lambda mark: mark.at):
        by_kind[mark.kind].append(mark)
    return sorted((mark for found in by_kind.values() for mark in found[-MOST_MARKS:]), key=lambda mark: mark.at)
