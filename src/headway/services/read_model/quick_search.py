"""Search for clusters, nodes and jobs by a part of their name or number, in what was last read of the clusters.

Not here: the search of a cluster's queue with its filters (services/queue/search.py)."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from headway.domain.slurm.job_states import RUNNING, WAITING
from headway.domain.slurm.nodes_and_jobs import JobState, NodeState
from headway.services.read_model.snapshot import Snapshot

MOST = 8  # results of one kind

Rank = tuple[int, ...]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class FoundJob:
    """A job, and the cluster that it belongs to. Of an array only one task is found."""

    cluster: str
    job: JobState


@dataclass(frozen=True, slots=True)
class FoundNode:
    """A node, and the cluster that it belongs to."""

    cluster: str
    node: NodeState


@dataclass(frozen=True, slots=True)
class SearchResults:
    """The best results of each kind, the best first."""

    clusters: tuple[str, ...]
    jobs: tuple[FoundJob, ...]
    nodes: tuple[FoundNode, ...]


def search_clusters(snapshots: Sequence[Snapshot], text: str, current: str = "") -> SearchResults:
    """Returns the clusters, jobs and nodes with `text` in their name, number or (of jobs) user. Exact names come before
    beginnings, these before other places; jobs that run before those that wait; the cluster `current` before others.
    All clusters, and no jobs or nodes, for an empty text."""
    wanted = text.strip().casefold()
    clusters = [(match, name) for name in sorted(s.cluster for s in snapshots) if (match := _match(name, wanted))]
    if not wanted:
        return SearchResults(tuple(name for _, name in clusters), (), ())
    places = sorted(snapshots, key=lambda snapshot: (snapshot.cluster != current, snapshot.cluster))
    return SearchResults(
        tuple(name for _, name in sorted(clusters)[:MOST]),
        tuple(_best(_jobs(places, wanted), lambda found: found.job.id)),
        tuple(_best(_nodes(places, wanted), lambda found: found.node.name)),
    )


def _match(name: str, wanted: str) -> int:
    """Returns 1 for the same text, 2 for a beginning, 3 for another part, 0 for none."""
    have = name.casefold()
    if have == wanted:
        return 1
    return 2 if have.startswith(wanted) else 3 if wanted in have else 0


def _jobs(places: Iterable[Snapshot], wanted: str) -> Iterator[tuple[Rank, FoundJob]]:
    for order, snapshot in enumerate(places):
        arrays: set[int] = set()
        for job in snapshot.jobs:
            number = job.array_job_id or job.id
            best = min((m for m in (_number(job, wanted), _match(job.name, wanted)) if m), default=0)
            best = best or (4 if job.user.casefold() == wanted else 0)
            if best and number not in arrays:
                if job.array_job_id:
                    arrays.add(number)
                state = 0 if job.state in RUNNING else 1 if job.state in WAITING else 2
                yield (best, state, order), FoundJob(snapshot.cluster, job)


def _number(job: JobState, wanted: str) -> int:
    """Returns how well the job's number fits, as `_match`. A number within a number is no result."""
    if not wanted[0].isdigit():
        return 0
    match = min(_match(str(job.array_job_id or job.id), wanted) or 9, _match(job.label, wanted) or 9)
    return match if match < 3 else 0


def _nodes(places: Iterable[Snapshot], wanted: str) -> Iterator[tuple[Rank, FoundNode]]:
    for order, snapshot in enumerate(places):
        for node in snapshot.nodes:
            if not node.absent and (match := _match(node.name, wanted)):
                yield (match, order), FoundNode(snapshot.cluster, node)


def _best(found: Iterator[tuple[Rank, T]], order: Callable[[T], int | str]) -> list[T]:
    best = heapq.nsmallest(MOST, found, key=lambda one: (one[0], order(one[1])))
    return [result for _, result in best]
