"""Messages from a cluster's poller to the server: frames on a pipe, each with a kind, two texts and their lengths."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from operator import attrgetter
from typing import Any, TypeVar

from headway.domain.slurm.nodes_and_jobs import JobState, NodeState, Reservation

HEAD = struct.Struct(">cII")
BEGIN = b"B"  # the poller has just started: its first reports are a full state, not changes
JOB = b"J"  # a job that is new or has changed, and its JSON for lists
MANY = b"M"  # changes of many jobs, in the same fields of each
GONE = b"G"  # numbers of jobs that Slurm has forgotten
NODES = b"N"  # all nodes, after a node was added or removed
NODE = b"n"  # the nodes that have changed, each with its index
RESERVATIONS = b"R"  # all reservations, after one has changed
END = b"E"  # the end of one reading, with the error if there was one
LOOK = b"look\n"  # the server's request for another reading

T = TypeVar("T", JobState, NodeState, Reservation)
_KINDS = (JobState, NodeState, Reservation)
_FIELDS = {kind: tuple(field.name for field in fields(kind)) for kind in _KINDS}
_LISTS = {
    kind: tuple(index for index, field in enumerate(fields(kind)) if str(field.type).startswith("tuple["))
    for kind in _KINDS
}
_GPUS = _FIELDS[JobState].index("gpu_indexes")
_VALUES = attrgetter(*_FIELDS[JobState])


def frame(kind: bytes, first: bytes = b"", second: bytes = b"") -> bytes:
    """Returns a frame as bytes."""
    return HEAD.pack(kind, len(first), len(second)) + first + second


def packed(value: JobState | NodeState | Reservation) -> list[Any]:
    """Returns the values of its fields, in order, ready for JSON."""
    return [dict(v) if isinstance(v, Mapping) else v for v in (getattr(value, name) for name in _FIELDS[type(value)])]


def unpacked(kind: type[T], values: list[Any]) -> T:
    """Returns the object that was given to `packed`."""
    for index in _LISTS[kind]:
        values[index] = tuple(values[index])
    if kind is JobState:
        values[_GPUS] = _loaded(_GPUS, values[_GPUS])
    return kind(*values)


def _loaded(place: int, value: Any) -> Any:
    """Returns a job field's value from its JSON form."""
    if place == _GPUS:
        return {node: tuple(numbers) for node, numbers in value.items()}
    return tuple(value) if place in _LISTS[JobState] else value


def job_of(text: bytes) -> JobState:
    """Returns the job of a JOB frame."""
    return unpacked(JobState, json.loads(text))


def differs(before: JobState, after: JobState) -> tuple[int, ...]:
    """Returns the indexes of the fields in which the jobs differ."""
    return tuple(i for i, (was, now) in enumerate(zip(_VALUES(before), _VALUES(after), strict=True)) if was != now)


def news_of(places: tuple[int, ...], jobs: Iterable[JobState]) -> bytes:
    """Returns the changed fields of jobs that all differ in the same fields (`places`), as JSON."""
    return json.dumps([places, [[job.id, *(packed(job)[place] for place in places)] for job in jobs]]).encode()


def with_news(text: bytes, known: Mapping[int, JobState]) -> Iterator[JobState]:
    """Returns the jobs that were given to `news_of`, from their previous state and the changed fields."""
    places, rows = json.loads(text)
    for number, *new in rows:
        values = list(_VALUES(known[number]))
        for place, value in zip(places, new, strict=True):
            values[place] = _loaded(place, value)
        yield JobState(*values)


def nodes_of(text: bytes) -> tuple[NodeState, ...]:
    """Returns the nodes of a NODES frame."""
    return tuple(unpacked(NodeState, values) for values in json.loads(text))


def some_nodes(before: tuple[NodeState, ...], after: tuple[NodeState, ...]) -> bytes | None:
    """Returns the nodes that changed, with their indexes, as JSON; None if the lists hold different nodes."""
    if [node.name for node in before] != [node.name for node in after]:
        return None
    news = [(place, packed(now)) for place, (was, now) in enumerate(zip(before, after, strict=True)) if was != now]
    return json.dumps(news).encode()


def with_nodes(text: bytes, known: tuple[NodeState, ...]) -> tuple[NodeState, ...]:
    """Returns the nodes that were given to `some_nodes`, from their previous state and the changed nodes."""
    nodes = list(known)
    for place, values in json.loads(text):
        nodes[place] = unpacked(NodeState, values)
    return tuple(nodes)


def reservations_of(text: bytes) -> tuple[Reservation, ...]:
    """Returns the reservations of a RESERVATIONS frame."""
    return tuple(unpacked(Reservation, values) for values in json.loads(text))
