"""What a service does next, decided from its replicas: start some, drain some, end some. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from headway.domain.slurm.job_states import RUNNING
from headway.domain.slurm.nodes_and_jobs import OUT, JobState, NodeState
from headway.jobs.serving.service_file import Service, warned_s
from headway.store.db.service_rows import ReplicaRow

COMING = ("submitting", "pending", "starting")
SERVING = ("serving", "unhealthy")
UNHEALTHY_S = 30.0  # after so long without health a replica is replaced
FINISH_S = 30.0  # for the last requests of a replica whose job ends
FIRST_PAUSE_S, LONGEST_PAUSE_S = 2.0, 300.0  # before a replica follows one that failed


@dataclass(frozen=True)
class NextStep:
    """What is to be done with a service. Numbers of replicas, with the reason."""

    start: int
    drain: Mapping[int, str]
    end: Mapping[int, str]


def reason_to_leave(
    service: Service,
    version: int,
    replica: ReplicaRow,
    job: JobState | None,
    nodes: Mapping[str, NodeState],
    now: float,
) -> str:
    """Returns the reason for which another replica has to take the place of this one; "" if it may stay."""
    if replica.version != version:
        return f"version {version} replaces it"
    if preempted_at(job):
        return "a job of a higher partition or QOS preempts it"
    node = nodes.get(replica.node)
    if node is not None and not OUT.isdisjoint(node.states):
        return f"node {node.name} is out of service: {node.reason or node.states[-1]}"
    if replica.state == "unhealthy" and now - replica.since > UNHEALTHY_S:
        return f"it has not been healthy for {UNHEALTHY_S:.0f} s"
    if job is not None and replica.node and job.time_limit_s and job.start_time:
        left = job.start_time + job.time_limit_s - now
        if left < min(warned_s(service), job.time_limit_s / 2):
            return "its time limit is near"
    return ""


def preempted_at(job: JobState | None) -> int:
    """Returns since when Slurm preempts a running job, in unix seconds; 0 if it does not."""
    at = job.more.get("preempttime", 0) if job is not None and job.state in RUNNING else 0
    return int(at) if at else 0


def must_drain(service: Service, job: JobState | None, ends_at: Sequence[float], now: float) -> bool:
    """Returns whether a replica has to finish its requests now, also if no other is healthy: its time limit, or one of the other
    ends of its job, is as near as the requests need."""
    limit = [job.start_time + job.time_limit_s] if job is not None and job.start_time and job.time_limit_s else []
    return any(now > end - min(service.drain_s, FINISH_S) for end in (*limit, *ends_at))


def start_failed(service: Service, replica: ReplicaRow, now: float) -> bool:
    """Returns whether a replica has run for `start_s` without a healthy answer."""
    return replica.state == "starting" and now - replica.since > service.start_s


def pause_after_failures(replicas: Sequence[ReplicaRow]) -> tuple[int, float]:
    """Returns how many replicas have failed since one was last healthy, and until when the next one waits (unix seconds)."""
    healthy = max((one.healthy_at or 0.0 for one in replicas), default=0.0)
    failed = [one for one in replicas if one.failed and (one.ended_at or 0.0) > healthy]
    if not failed:
        return 0, 0.0
    last = max(one.ended_at or 0.0 for one in failed)
    return len(failed), last + min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** (len(failed) - 1))


def next_step(
    wanted: int,
    replicas: Sequence[ReplicaRow],
    leaving: Mapping[int, str],
    *,
    may_start: bool,
    at_once: Collection[int] = (),
) -> NextStep:
    """Returns what to do so that `wanted` replicas run. `leaving`: replicas that are to be replaced, with the reason. One that
    serves is drained only when enough others are healthy, or if it is in `at_once`."""
    coming = [one for one in replicas if one.state in COMING and one.number not in leaving]
    good = [one for one in replicas if one.state in SERVING and one.number not in leaving]
    going = [one for one in replicas if one.state in SERVING and one.number in leaving]
    end = {one.number: leaving[one.number] for one in replicas if one.state in COMING and one.number in leaving}
    start = max(0, wanted - len(good) - len(coming)) if may_start else 0
    for one in sorted(coming, key=lambda one: -one.number)[: max(0, len(good) + len(coming) - wanted)]:
        end[one.number] = "fewer replicas are wanted"
    healthy = sum(one.state == "serving" for one in good)
    # Sick ones first: they answer no requests.
    going.sort(key=lambda one: (one.state == "serving", one.number))
    surplus = max(0, healthy + len(going) - wanted)
    drain = {one.number: leaving[one.number] for one in going if one.state == "unhealthy" or one.number in at_once}
    for one in going[:surplus]:
        drain[one.number] = leaving[one.number]
    for one in sorted(good, key=lambda one: (one.state == "serving", -one.number))[: max(0, len(good) - wanted)]:
        drain[one.number] = "fewer replicas are wanted"
    return NextStep(start, drain, end)


def with_step(replicas: Sequence[ReplicaRow], step: NextStep, now: float) -> list[ReplicaRow]:
    """Returns the replicas after a decision."""
    found = []
    for one in replicas:
        if one.number in step.end:
            one = replace(one, state="ending", since=now, why=step.end[one.number])
        elif one.number in step.drain:
            one = replace(one, state="draining", since=now, why=step.drain[one.number])
        found.append(one)
    return found
