"""The schedule of a cluster: expected ends of running jobs, starts that Slurm's backfill scheduler has planned, and
reservations. Headway plans nothing here: what Slurm has not planned is only counted."""

from __future__ import annotations

import gzip
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from datetime import UTC, datetime, timedelta

from headway.changes.reservation_changes import description, is_over
from headway.domain.cluster import Cluster
from headway.domain.slurm.hostlist import natural_key
from headway.domain.slurm.job_states import RUNNING, WAITING
from headway.domain.slurm.nodes_and_jobs import FLAKY_NODES, OURS, SPARES, JobState, NodeState, Reservation
from headway.domain.slurm.reservations import MAINTENANCE
from headway.schemas.nodes.schedule import (
    ReservationNotInSlurmOut,
    ScheduledJobOut,
    ScheduledNodeOut,
    ScheduledReservationOut,
    ScheduleOut,
)
from headway.services.app_state import AppState
from headway.services.queue.pending_reasons import pending_reason
from headway.services.read_model.snapshot import Snapshot

_LATEST_ZONE = timedelta(hours=12)  # behind UTC
_NO_END_S = 10 * 365 * 86_400  # Slurm has no reservation without end: Headway gives those until the year 2100


async def get_schedule(state: AppState, name: str) -> ScheduleOut:
    """Returns the schedule of the cluster, as last read from Slurm. Raises NotFound."""
    _, cluster = await state.clusters.get(name)
    return schedule_of(state, cluster, await state.readings.snapshot(cluster))


async def schedule_json(state: AppState, name: str, *, compressed: bool = False) -> bytes:
    """Returns the schedule as JSON, gzipped if `compressed`. It is encoded once per reading for all viewers: with thousands
    of jobs it has more than a megabyte. Raises NotFound."""
    _, cluster = await state.clusters.get(name)
    snapshot = await state.readings.snapshot(cluster)
    schedule, key = schedule_of(state, cluster, snapshot), ("schedule json", compressed)
    known: tuple[ScheduleOut, bytes] | None = snapshot.derived.get(key)
    if known is None or known[0] is not schedule:
        body = schedule.model_dump_json().encode()
        known = snapshot.derived[key] = schedule, gzip.compress(body, 4, mtime=0) if compressed else body
    return known[1]


def schedule_of(state: AppState, cluster: Cluster, snapshot: Snapshot) -> ScheduleOut:
    """Returns the schedule; computed once per reading, so callers must not change it."""
    known: tuple[Cluster, ScheduleOut] | None = snapshot.derived.get("schedule")
    if known is None or known[0] is not cluster:
        known = snapshot.derived["schedule"] = cluster, _schedule(state, cluster, snapshot)
    return known[1]


def _schedule(state: AppState, cluster: Cluster, snapshot: Snapshot) -> ScheduleOut:
    now = snapshot.as_of or state.clock()
    leaf_of = {slot.name: slot.leaf for slot in cluster.slots}
    nodes = sorted(snapshot.nodes, key=lambda node: (natural_key(leaf_of.get(node.name, "")), natural_key(node.name)))
    running = [_running(job) for job in snapshot.jobs if job.state in RUNNING and job.nodes]
    waiting = [job for job in snapshot.jobs if job.state in WAITING]
    planned = [job for job in waiting if _planned_start(state, cluster, job, now)]
    in_file = {one.name for one in cluster.reservations}
    reservations = _reservations(snapshot.reservations, in_file, now)
    return ScheduleOut(
        as_of=snapshot.as_of,
        nodes=[ScheduledNodeOut(name=node.name, leaf=leaf_of.get(node.name, ""), out=_out(node)) for node in nodes],
        jobs=[
            *sorted(running, key=lambda job: (job.end or float("inf"), job.id)),
            *sorted((_planned(job) for job in planned), key=lambda job: (job.start, job.id)),
        ],
        reservations=reservations,
        not_in_slurm=_not_in_slurm(cluster, {one.name for one in reservations}, now),
        unplanned=len(waiting) - len(planned),
    )


def _planned_start(state: AppState, cluster: Cluster, job: JobState, now: float) -> bool:
    """Returns whether Slurm has planned a start. It gives times also to jobs that never start."""
    if job.start_time <= now:
        return False
    found = pending_reason(state, cluster, job)
    return found is not None and found.starts_at > 0


def _running(job: JobState) -> ScheduledJobOut:
    return _job_out(job, "running", job.nodes)


def _planned(job: JobState) -> ScheduledJobOut:
    return _job_out(job, "planned", job.scheduled_nodes)


def _job_out(job: JobState, state: str, nodes: Iterable[str]) -> ScheduledJobOut:
    return ScheduledJobOut.model_validate(
        {
            "id": job.id,
            "label": job.label,
            "name": job.name,
            "user": job.user,
            "state": state,
            "nodes": list(nodes),
            "node_count": job.node_count,
            "gpus": job.gpus,
            "start": job.start_time,
            "end": job.start_time + job.time_limit_s if job.time_limit_s is not None else 0,
        }
    )


def _reservations(found: Iterable[Reservation], in_file: set[str], now: float) -> list[ScheduledReservationOut]:
    outs = [
        ScheduledReservationOut.model_validate(
            {
                "name": one.name,
                "kind": _kind(one),
                "nodes": list(one.nodes),
                "users": list(one.users),
                "start": one.start_time,
                "end": one.end_time if one.end_time < now + _NO_END_S else 0,
                "in_file": one.name in in_file,
            }
        )
        for one in found
        if one.end_time > now
    ]
    return sorted(outs, key=lambda one: (one.start, one.name))


def _not_in_slurm(cluster: Cluster, listed: AbstractSet[str], now: float) -> list[ReservationNotInSlurmOut]:
    """Returns the other reservations of the file. Their times are in the head's time zone, which the server does not know:
    one is over when its end has passed in every time zone."""
    passed = datetime.fromtimestamp(now, UTC).replace(tzinfo=None) - _LATEST_ZONE
    return [
        ReservationNotInSlurmOut(name=one.name, text=description(one), over=is_over(one, passed))
        for one in cluster.reservations
        if one.name not in listed
    ]


def _kind(one: Reservation) -> str:
    if one.name.startswith(OURS):
        return {SPARES: "spares", FLAKY_NODES: "flaky"}.get(one.name, "test")
    return "maintenance" if MAINTENANCE in one.flags else "reservation"


def _out(node: NodeState) -> str:
    states = set(node.states)
    if states & {"DOWN", "FAIL", "NOT_RESPONDING"}:
        return "down"
    if "DRAIN" in states:
        return "drained"
    return "" if node.usable and not node.changes else "starting"
