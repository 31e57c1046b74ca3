"""Events of the API's stream and recent events of pages: what changed between two readings of a cluster."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from headway.domain.slurm.job_states import ENDED, FAILED
from headway.domain.slurm.nodes_and_jobs import JobState
from headway.schemas.event_stream import ClusterEventOut
from headway.services.read_model.snapshot import RecentEvent, Snapshot

# Events that are kept for clients that reconnect: those of the last minutes, so that a busy day takes no more memory than
# a busy ten minutes, and enough for the starts and ends of an array of ten thousand tasks.
EVENTS_S = 600.0
MAX_EVENTS = 20_000


@dataclass(frozen=True, slots=True)
class PublishedEvent:
    """An event and its number, as JSON that is made once for all subscribers."""

    number: int
    at: float  # Unix seconds
    cluster: str
    kind: str
    text: str


def changed_jobs(before: Snapshot, after: Snapshot) -> list[tuple[JobState | None, JobState]]:
    """Returns (as it was, as it is) for the jobs that are new, in another state or requeued."""
    if before.jobs is after.jobs:
        return []
    was = before.by_id.get
    return [
        (past, job)
        for job in after.jobs
        if (past := was(job.id)) is not job
        and (past is None or past.state != job.state or past.restarts != job.restarts)
    ]


def events_between(
    before: Snapshot, after: Snapshot, moved: Iterable[tuple[JobState | None, JobState]], now: float
) -> Iterator[ClusterEventOut]:
    """Yields events for the differences between two readings."""
    name = after.cluster
    was = {node.name: node for node in before.nodes} if before.nodes is not after.nodes else {}
    for node in after.nodes if was else ():
        old = was.get(node.name)
        if old is None or old.states != node.states or old.reason != node.reason:
            states = "+".join(old.states) if old else ""
            yield ClusterEventOut(
                at=now, cluster=name, kind="node", name=node.name, state="+".join(node.states), before=states,
                text=node.reason,
            )  # fmt: skip
    for past, job in moved:
        yield ClusterEventOut(
            at=now, cluster=name, kind="job", name=str(job.id), state=job.state, before=past.state if past else "",
            text=job.name, user=job.user,
        )  # fmt: skip
    for job in (before.by_id[number] for number in sorted(before.by_id.keys() - after.by_id.keys())):
        if job.state not in ENDED:
            yield ClusterEventOut(
                at=now, cluster=name, kind="job", name=str(job.id), state="", before=job.state, text=job.name,
                user=job.user,
            )  # fmt: skip


def recent_events_between(
    before: Snapshot, after: Snapshot, moved: Iterable[tuple[JobState | None, JobState]], now: float
) -> Iterator[RecentEvent]:
    """Yields what happened between two readings, in words."""
    was = {node.name: node for node in before.nodes} if before.nodes is not after.nodes else {}
    for node in after.nodes if was else ():
        old = was.get(node.name)
        if old is None or old is node or old.usable == node.usable:
            continue
        if node.usable:
            yield RecentEvent(now, "back in service", where=node.name)
        else:
            state = "+".join(node.states)
            yield RecentEvent(now, f"{state}: {node.reason}" if node.reason else state, "error", node.name)
    same: dict[tuple[int, str, str], list[JobState]] = {}
    for past, job in moved:
        if past is not None and (text := _change(past, job)):
            level = "warning" if job.restarts > past.restarts or job.state in FAILED - {"CANCELLED"} else "info"
            same.setdefault((job.array_job_id or -job.id, text, level), []).append(job)
    for (array, text, level), jobs in same.items():
        if len(jobs) > 1:
            yield RecentEvent(now, f"{text}: {len(jobs):,} tasks", level, f"array {array}")
        else:
            yield RecentEvent(now, text, level, f"job {jobs[0].label}")


def _change(past: JobState, job: JobState) -> str:
    """Returns what happened to the job, "" for a change that is not worth a line."""
    if job.restarts > past.restarts:
        return f"{job.name} was requeued"
    if job.state == "RUNNING":
        return f"{job.name} runs"
    return f"{job.name} ended: {job.state}" if job.state in ENDED else ""
