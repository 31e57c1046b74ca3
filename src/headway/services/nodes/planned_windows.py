"""Reservations and maintenance windows that are added to the cluster file from the page, and removed from it: what an apply
would change, and which jobs they affect."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from headway.clusterfile.reservation_edits import edit_reservation, with_reservation
from headway.domain.cluster import Cluster
from headway.domain.slurm.hostlist import compress, expand
from headway.errors import Conflict, NotFound, Refused
from headway.schemas.clusters import ApplyIn, ChangeSetOut, Document
from headway.schemas.nodes.schedule import ScheduledJobOut
from headway.schemas.operations import OperationOut
from headway.services.access.role_rights import Principal
from headway.services.app_state import AppState
from headway.services.cluster import clusters, planning
from headway.services.queue.schedule import get_schedule

MAX_HOURS = 24 * 90
_MOST_NODES = 20_000


@dataclass(frozen=True, slots=True)
class PlannedWindow:
    """What a person asks for. `nodes`: a host list, "" = all nodes; `start`: unix seconds. Without `maintenance`, `users` and
    `teams` may use the nodes."""

    name: str
    nodes: str
    start: int
    hours: float
    maintenance: bool
    users: tuple[str, ...] = ()
    teams: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class WindowPlan:
    """What an apply would change, the jobs that may run into the window, and those that Slurm had planned to start before
    or in it. `removed`: the window is taken out of the file."""

    changes: ChangeSetOut
    running: tuple[ScheduledJobOut, ...] = ()
    planned: tuple[ScheduledJobOut, ...] = ()
    removed: bool = False


async def plan_window(state: AppState, who: Principal, name: str, window: PlannedWindow) -> WindowPlan:
    """Returns what adding the window would change. Raises Refused, and InvalidSpec with the faults of its fields."""
    _, cluster = await state.clusters.get(name)
    nodes = _nodes_of(cluster, window)
    document = await _with_window(state, cluster, window, nodes)
    changes = await planning.plan_document(state, who, document)
    schedule = await get_schedule(state, name)
    affected = affected_jobs(schedule.jobs, nodes or cluster.slot_names, window.start, _end(window))
    return WindowPlan(
        changes,
        tuple(job for job in affected if job.state == "running"),
        tuple(job for job in affected if job.state == "planned"),
    )


async def plan_removal(state: AppState, who: Principal, name: str, reservation: str) -> WindowPlan:
    """Returns what removing a reservation of the cluster file would change. Raises NotFound."""
    document = await _without_window(state, name, reservation)
    return WindowPlan(await planning.plan_document(state, who, document), removed=True)


async def add_window(
    state: AppState, who: Principal, name: str, window: PlannedWindow, *, digest: str, confirmed: bool
) -> OperationOut:
    """Queues the apply of the file with the window. Raises as `planning.queue_apply`."""
    _, cluster = await state.clusters.get(name)
    document = await _with_window(state, cluster, window, _nodes_of(cluster, window))
    return await _apply(state, who, name, document, digest=digest, confirmed=confirmed)


async def remove_window(
    state: AppState, who: Principal, name: str, reservation: str, *, digest: str, confirmed: bool
) -> OperationOut:
    """Queues the apply of the file without the reservation. Raises as `planning.queue_apply`."""
    document = await _without_window(state, name, reservation)
    return await _apply(state, who, name, document, digest=digest, confirmed=confirmed)


def affected_jobs(
    jobs: Collection[ScheduledJobOut], nodes: Collection[str], start: int, end: int
) -> list[ScheduledJobOut]:
    """Returns the jobs that have one of these nodes between `start` and `end`, as far as Slurm's limits and plans say."""
    there = set(nodes)
    return [
        job for job in jobs if job.start < end and (not job.end or job.end > start) and not there.isdisjoint(job.nodes)
    ]


async def _apply(
    state: AppState, who: Principal, name: str, document: Document, *, digest: str, confirmed: bool
) -> OperationOut:
    # The queued document would undo what an operation before it changes in the file, a scale for example.
    active = await state.store.operations.active(name)
    if active is not None:
        raise Conflict(f"{active.kind} of {name} is under way", hint="try again when it has ended")
    return await clusters.apply_document(
        state, who, name, ApplyIn(document=document, digest=digest, confirmed=confirmed)
    )


def _nodes_of(cluster: Cluster, window: PlannedWindow) -> tuple[str, ...]:
    """Returns the names of the window's nodes, () for all."""
    text = window.nodes.replace(" ", "")
    if not text:
        return ()
    try:
        nodes = tuple(dict.fromkeys(expand(text, _MOST_NODES)))
    except ValueError as error:
        raise Refused(f"nodes: {error}", hint=f"for example {cluster.slot_names[0]}") from None
    unknown = sorted(set(nodes) - set(cluster.slot_names))
    if unknown:
        raise Refused(
            f"{cluster.name} has no node {unknown[0][:60]}", hint=f"it has {compress(cluster.slot_names)[:200]}"
        )
    return () if len(nodes) == len(cluster.slot_names) else nodes


def _end(window: PlannedWindow) -> int:
    return window.start + round(window.hours * 3600)


async def _with_window(state: AppState, cluster: Cluster, window: PlannedWindow, nodes: tuple[str, ...]) -> Document:
    if not 0 < window.hours <= MAX_HOURS:
        raise Refused(f"the length must be more than 0 hours and at most {MAX_HOURS}", hint="give hours, for example 4")
    if _end(window) <= state.clock():
        raise Refused("the window is over already", hint="give a later start")
    row = await state.clusters.row(cluster.name)
    if window.name in (row.document["spec"].get("reservations") or {}):
        raise Conflict(f"{cluster.name} has a reservation {window.name} already", hint="give another name")
    start = await state.backend.slurm.head_local_time(cluster, window.start)
    minutes = max(1, round(window.hours * 60))
    part: dict[str, Any] = {
        "start": f"{start:%Y-%m-%dT%H:%M}",
        "duration": f"{minutes // 60:02d}:{minutes % 60:02d}:00",
    }
    part |= {"maintenance": True} if window.maintenance else {}
    part |= {"nodes": list(nodes)} if nodes else {}
    part |= {"users": list(window.users)} if window.users and not window.maintenance else {}
    part |= {"teams": list(window.teams)} if window.teams and not window.maintenance else {}
    return _edited(Document.model_validate(row.document), window.name, part)


async def _without_window(state: AppState, name: str, reservation: str) -> Document:
    row = await state.clusters.row(name)
    document = Document.model_validate(row.document)
    if reservation not in (document.spec.get("reservations") or {}):
        raise NotFound(f"the file of {name} has no reservation {reservation[:60]!r}")
    return _edited(document, reservation, None)


def _edited(document: Document, reservation: str, part: dict[str, Any] | None) -> Document:
    return document.model_copy(
        update={
            "spec": with_reservation(document.spec, reservation, part),
            "text": edit_reservation(document.text, reservation, part),
            "owner": "",  # "" keeps the owner
            "origin": None,  # it is no longer the file of its commit
        }
    )
