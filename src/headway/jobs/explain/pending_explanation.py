"""Explains why a job waits and what would start it, from Slurm's reason and a snapshot of the cluster. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from headway.domain.slurm.hostlist import compress, expand
from headway.domain.slurm.job_states import ENDED, RUNNING, WAITING
from headway.domain.slurm.nodes_and_jobs import JobState, NodeState
from headway.jobs.explain.limit_reasons import explain_limit, parse_limit
from headway.jobs.explain.phrases import Moment, Phrase, count_of, describe_end, format_duration, join_phrases
from headway.jobs.explain.placement_search import (
    RESOURCE_REASONS,
    ClusterSnapshot,
    explain_placement,
    has_simple_constraint,
    reason_word,
    requested_shares,
)
from headway.jobs.explain.reason_lines import job_reason
from headway.jobs.view.array_tasks import tasks_of

_DEPENDENCY = re.compile(
    r"(?P<kind>\w+)(?::(?P<job>\d+)(?:_(?P<task>\d+|\*))?(?:\+(?P<later>\d+))?)?\((?P<state>\w+)\)"
)
_TO = {
    "afterok": "to succeed", "afterany": "to end", "afternotok": "to fail", "aftercorr": "to succeed",
    "afterburstbuffer": "to end",
}  # fmt: skip
_UNAVAILABLE = re.compile(r"UnavailableNodes:(\S+)")
_HELD = ("JobHeld", "requeued held", "requeued_held", "JobHoldMaxRequeue", "job_requeued_in_held_state")


@dataclass(frozen=True, slots=True)
class PendingReason:
    """Why a job waits (`reason`), what would start it (`needs`, () where that is not known), and when and on which
    nodes Slurm expects to start it (`starts_at`, unix seconds, 0 where Slurm gives no time)."""

    reason: str
    needs: Phrase = ()
    starts_at: int = 0
    nodes: tuple[str, ...] = ()


def explain_pending(job: JobState, world: ClusterSnapshot) -> PendingReason | None:
    """Returns why the job waits, or None for a job that does not wait."""
    if job.state not in WAITING:
        return None
    words, wants = job_reason(job) or "not yet considered by the scheduler", explain_needs(job, world)
    limit = parse_limit(reason_word(job.reason))
    # Slurm still gives a start time for jobs held back by a limit on usage over time, and for jobs that never start.
    vain = str(wants[0] if wants else "").startswith("never starts") or (limit is not None and limit.is_usage)
    expected = job.start_time if job.start_time > world.now and not vain else 0
    return PendingReason(words, wants, expected, job.scheduled_nodes)


def explain_needs(job: JobState, world: ClusterSnapshot) -> Phrase:
    """Returns what would start the job, in words."""
    word = reason_word(job.reason)
    if any(held_reason in job.reason for held_reason in _HELD) or job.state == "REQUEUE_HOLD":
        return _held_by_person(job, world)
    limit = parse_limit(word)
    if limit is not None:
        return explain_limit(limit, job, world)
    return _BY_REASON.get(word, _nothing)(job, world)


def _nothing(job: JobState, world: ClusterSnapshot) -> Phrase:
    return explain_placement(job, world) if reason_word(job.reason) in RESOURCE_REASONS else ()


def _room(job: JobState, world: ClusterSnapshot) -> Phrase:
    """Returns which resources are missing. Where none seem to be missing, the scheduler has not assigned them yet."""
    if not has_simple_constraint(job):
        return ()
    if any(requested_shares(job)):
        return explain_placement(job, world)
    return explain_placement(job, world) or ("enough nodes are free: it should start in the next scheduling cycle",)


def _priority(job: JobState, world: ClusterSnapshot) -> Phrase:
    """Returns which jobs go first, and which resources the job itself is missing."""
    count, first = world.jobs_ahead(job)
    own = explain_placement(job, world)
    if first is None:
        return own
    size = count_of(first.gpus, "GPU") if first.gpus else count_of(max(1, first.node_count), "node")
    if count == 1:
        text = f"job {first.label} of {first.user} for {size} has higher priority"
    else:
        text = f"{count_of(count, 'job')} go before it, first job {first.label} of {first.user} for {size}"
    return join_phrases(text, ("; it ", *own) if own else "")


def _dependency(job: JobState, world: ClusterSnapshot) -> Phrase:
    """Returns the unfulfilled dependencies, each with the state of the other job."""
    phrases: list[Phrase] = []
    for match in _DEPENDENCY.finditer(job.dependency):
        if match["state"] != "unfulfilled":
            continue
        if match["kind"] == "singleton":
            phrases.append((f"needs the other jobs named {job.name} of {job.user} to end",))
            continue
        task = match["task"] or ""
        name = f"{match['job']}_{task}" if task else match["job"]
        of = (
            tasks_of(world.jobs, int(match["job"] or 0), task) if task.isdigit() else _of(int(match["job"] or 0), world)
        )
        if match["kind"] == "after":
            phrases.append(_after(name, int(match["later"] or 0), of))
        else:
            phrases.append(join_phrases(f"needs job {name} {_TO.get(match['kind'], 'to end')}", _stands(of)))
    either = "?" in job.dependency
    joined: list[str | Moment] = []
    for words in phrases[:3]:
        joined += [" or " if either else "; "] if joined else []
        joined += words
    if len(phrases) > 3:
        joined.append(f"; and {count_of(len(phrases) - 3, 'more')}".removesuffix("s"))
    return tuple(joined)


def _of(number: int, world: ClusterSnapshot) -> list[JobState]:
    """Returns the job with that number, or all tasks of that array."""
    return [job for job in world.jobs if number in (job.id, job.array_job_id)]


def _after(name: str, minutes: int, jobs: list[JobState]) -> Phrase:
    """Returns the words for an `after` dependency: the job may start when the other has started, or so many
    minutes later."""
    text = (
        f"may start {format_duration(60 * minutes)} after job {name} starts"
        if minutes
        else f"needs job {name} to start"
    )
    started = [job.start_time for job in jobs if job.state in RUNNING]
    waiting = [job for job in jobs if job.state in WAITING]
    if waiting or not started:
        return join_phrases(text, _stands(waiting or jobs))
    return (text, ", ", Moment(max(started) + 60 * minutes)) if minutes else (text, ", which has started")


def _stands(jobs: list[JobState]) -> Phrase:
    """Returns the state of the job, or of the tasks of the array, that is waited for."""
    running = [job for job in jobs if job.state in RUNNING]
    if running:
        if any(job.state in WAITING for job in jobs):
            return (", with tasks that still wait",)
        last = max(running, key=lambda job: job.start_time + (job.time_limit_s or 10**9))
        if last.time_limit_s is None:
            return (", which runs without a time limit",)
        return (", which runs and ends ", Moment(last.start_time + last.time_limit_s), " at the latest")
    waiting = next((job for job in jobs if job.state in WAITING), None)
    if waiting is not None:
        return (f", which is pending ({reason_word(waiting.reason) or 'no reason yet'})",)
    ended = next((job for job in jobs if job.state in ENDED), None)
    return (f", which has ended ({ended.state})",) if ended else ()


def _begin(job: JobState, world: ClusterSnapshot) -> Phrase:
    at = max(job.eligible_time, job.start_time)
    if at <= world.now:
        return ("starts in the next scheduling cycle",)
    return ("may start ", Moment(at))


def _held_by_person(job: JobState, _world: ClusterSnapshot) -> Phrase:
    who = " by an operator" if "Admin" in job.reason else ""
    return (f"needs a release{who}: on its page, or scontrol release {job.label}",)


def _time_limit(job: JobState, world: ClusterSnapshot) -> Phrase:
    limit_text = format_duration(job.time_limit_s) if job.time_limit_s else "no limit"
    mine = [partition for partition in world.cluster.partitions if partition.name in job.partition.split(",")]
    less = [
        partition for partition in mine if partition.max_time_s and partition.max_time_s < (job.time_limit_s or 10**9)
    ]
    allow = ", ".join(f"{partition.name} allows {format_duration(partition.max_time_s or 0)}" for partition in less)
    others = [
        partition.name
        for partition in world.cluster.partitions
        if partition not in mine
        and (partition.max_time_s is None or (job.time_limit_s or 10**9) <= partition.max_time_s)
    ]
    ways = f" or use {' or '.join(others)}" if others else ""
    allow = allow or f"more than {job.partition} allows now"
    return (f"never starts as it is: it requests {limit_text}, {allow}; request less{ways}",)


def _node_limit(job: JobState, world: ClusterSnapshot) -> Phrase:
    sizes = {
        partition.name: len(partition.nodes)
        for partition in world.cluster.partitions
        if partition.name in job.partition.split(",")
    }
    has = ", ".join(
        f"{name} has {count_of(number, 'node')}" for name, number in sizes.items() if number < job.node_count
    )
    least = has or f"more than {job.partition} allows one job now"
    return (f"never starts as it is: it requests {count_of(job.node_count, 'node')}, {least}",)


def _not_available(job: JobState, world: ClusterSnapshot) -> Phrase:
    """Returns which nodes are out of service or reserved, and until when."""
    found = _UNAVAILABLE.search(job.reason) or _UNAVAILABLE.search(job.description)
    named = set(job.required_nodes or (expand(found[1].rstrip(",")) if found else ()))
    nodes = [node for node in world.nodes if node.name in named]
    out = [node for node in nodes if not node.usable]
    kept = [node for node in nodes if node.usable and node.reservation and node.reservation != job.reservation]
    if out:
        return (f"needs {_out(out)}",)
    if kept:
        return join_phrases(f"{compress([n.name for n in kept])} {_be(len(kept))} reserved", _reserved(kept[0], world))
    coming = [
        reservation
        for reservation in world.reservations
        if reservation.start_time > world.now and "MAINT" in reservation.flags
    ]
    if coming:
        first = min(coming, key=lambda reservation: reservation.start_time)
        before = "would overlap reservation " + first.name + ", which begins "
        return (before, Moment(first.start_time), ": a shorter --time may start it before")
    return explain_placement(job, world)


def _out(out: list[NodeState]) -> str:
    listed = [
        f"{node.name} ({'+'.join(node.states).lower()}{f': {node.reason}' if node.reason else ''})" for node in out
    ]
    more = f" and {len(listed) - 2} more" if len(listed) > 2 else ""
    return f"{', '.join(listed[:2])}{more} back in service"


def _reserved(node: NodeState, world: ClusterSnapshot) -> Phrase:
    reservation = next((listed for listed in world.reservations if listed.name == node.reservation), None)
    return (
        (f" by {node.reservation}, which ends ", Moment(reservation.end_time))
        if reservation
        else (f" by {node.reservation}",)
    )


def _reservation(job: JobState, world: ClusterSnapshot) -> Phrase:
    reservation = next((listed for listed in world.reservations if listed.name == job.reservation), None)
    if reservation is None:
        return (f"reservation {job.reservation} does not exist: cancel the job and submit it without --reservation",)
    if reservation.start_time > world.now:
        return (f"reservation {reservation.name} begins ", Moment(reservation.start_time))
    return explain_placement(job, world) or (f"reservation {reservation.name} is full",)


def _array_limit(job: JobState, world: ClusterSnapshot) -> Phrase:
    number = job.array_job_id or job.id
    tasks = [other for other in world.running if other.array_job_id == number]
    if not tasks:
        return ("starts in the next scheduling cycle",)
    most = (
        f"{len(tasks)} of at most {count_of(job.array_limit, 'task')} at once"
        if job.array_limit
        else count_of(len(tasks), "task")
    )
    text = f"its array runs {most}"
    return join_phrases(text, "; ", describe_end(tasks[0], tasks[0].label))


def _licenses(job: JobState, _world: ClusterSnapshot) -> Phrase:
    return (f"needs licences that other jobs hold: {job.licenses}",) if job.licenses else ()


def _constraints(job: JobState, _world: ClusterSnapshot) -> Phrase:
    features_text = f" (--constraint={job.features})" if job.features else ""
    return (f"no node fits its request{features_text}: cancel it and submit it with another request",)


def _never(_job: JobState, _world: ClusterSnapshot) -> Phrase:
    return ("never starts: cancel it",)


def _partition_down(job: JobState, _world: ClusterSnapshot) -> Phrase:
    return (f"needs an operator to set partition {job.partition} to UP",)


def _be(number: int) -> str:
    return "is" if number == 1 else "are"


_BY_REASON: dict[str, Callable[[JobState, ClusterSnapshot], Phrase]] = {
    "Resources": _room,
    "Priority": _priority,
    "Dependency": _dependency,
    "DependencyNeverSatisfied": _never,
    "BeginTime": _begin,
    "PartitionTimeLimit": _time_limit,
    "PartitionNodeLimit": _node_limit,
    "PartitionDown": _partition_down,
    "PartitionInactive": _partition_down,
    "ReqNodeNotAvail": _not_available,
    "NodeDown": _not_available,
    "Reservation": _reservation,
    "ReservationDeleted": _reservation,
    "JobArrayTaskLimit": _array_limit,
    "Licenses": _licenses,
    "BadConstraints": _constraints,
    "InvalidAccount": _never,
    "InvalidQOS": _never,
}
