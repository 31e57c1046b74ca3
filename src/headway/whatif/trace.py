"""Jobs of a trace, and the check of a trace before its replay. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from headway.domain.cluster import Cluster
from headway.domain.slurm.hostlist import natural_key
from headway.errors import Refused

MOST_JOBS = 200_000  # MaxJobCount of the rendered slurm.conf
GAP_S = 6 * 3600  # without any job, in a trace that has jobs every few minutes
_GAP_FACTOR = 100  # times the mean distance of submissions


@dataclass(frozen=True, slots=True)
class TraceJob:
    """One job. Times in Unix seconds, 0 for none; `limit_min` 0 for none; `cpus`, `memory_mib` and `gpus` are per node,
    0 for the default.
    `start` and `end`: when it really ran. `cancelled_at`: when it was cancelled while it waited."""

    job_id: str
    user: str
    account: str
    submit: float
    nodes: int
    cpus: int
    run_s: int
    partition: str = ""
    qos: str = ""
    limit_min: int = 0
    memory_mib: int = 0
    gpus: int = 0
    features: str = ""
    begin: float = 0
    start: float = 0
    end: float = 0
    cancelled_at: float = 0

    @property
    def all_gpus(self) -> int:
        """Returns the GPUs of all its nodes."""
        return self.gpus * self.nodes


@dataclass(frozen=True)
class Trace:
    """The jobs that are replayed, in the order of their submission. `left_out`: why others are not -> their number;
    `warnings`: what in the trace makes the result less certain."""

    jobs: tuple[TraceJob, ...]
    left_out: Counter[str] = field(default_factory=Counter)
    warnings: tuple[str, ...] = ()

    @property
    def first(self) -> float:
        """Returns the time of the first submission."""
        return self.jobs[0].submit

    @property
    def last(self) -> float:
        """Returns the time of the last submission."""
        return self.jobs[-1].submit


def check_trace(read: Iterable[TraceJob], cluster: Cluster, left_out: Counter[str] | None = None) -> Trace:
    """Returns the jobs that the cluster's file knows the user, account and partition of. `left_out`: what the reader left out.
    Raises Refused if no job is left, or too many are."""
    dropped = Counter(left_out or {})
    teams = {team.name: team for team in cluster.teams}
    users = {user.name for user in cluster.users}
    partitions = {partition.name for partition in cluster.partitions}
    qos = {team.name for team in cluster.teams} | {one.name for one in cluster.qos}
    kept: list[TraceJob] = []
    turned = 0
    for job in sorted(read, key=lambda one: (one.submit, natural_key(one.job_id))):
        why = _reason(job, users, set(teams), partitions)
        if why:
            dropped[why] += 1
            continue
        if job.start and (job.start < job.submit or (job.end and job.end < job.start)):
            turned += 1
            job = replace(job, start=0, end=0)
        kept.append(job if job.qos in qos else replace(job, qos=""))
    if not kept:
        reasons = "; ".join(f"{why} ({number})" for why, number in dropped.most_common(3)) or "it has no jobs"
        raise Refused(
            f"no job of the trace can be replayed: {reasons}", hint="use the file of the cluster that ran the trace"
        )
    if len(kept) > MOST_JOBS:
        raise Refused(f"the trace has {len(kept):,} jobs, a replay at most {MOST_JOBS:,}", hint="give a shorter time")
    return Trace(tuple(kept), dropped, tuple(_warnings(kept, turned)))


def _reason(job: TraceJob, users: set[str], teams: set[str], partitions: set[str]) -> str:
    """Returns why a job can't be replayed; "" if it can."""
    if job.user not in users:
        return f"user {job.user} is not in the cluster file"
    if job.account and job.account not in teams:
        return f"account {job.account} is no team of the cluster file"
    if job.partition and job.partition not in partitions:
        return f"partition {job.partition} is not in the cluster file"
    if job.run_s <= 0 and not job.cancelled_at:
        return "it ran for no time"
    return ""


def _warnings(jobs: Sequence[TraceJob], turned: int) -> Iterable[str]:
    if turned:
        yield f"the clock of the accounting jumped: {turned} jobs start before their submission or end before their start"
    gap, at = max(
        ((after.submit - before.submit, before.submit) for before, after in pairwise(jobs)), default=(0.0, 0.0)
    )
    if gap > GAP_S and gap > _GAP_FACTOR * (jobs[-1].submit - jobs[0].submit) / len(jobs):
        yield f"the trace has a gap: no job was submitted in the {gap / 3600:.1f} hours after {at:.0f} (Unix seconds)"
