"""Makes submissions of a site's jobs: fewer and smaller, as the rehearsal has fewer nodes, and in less time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from headway.slurm_import.replay.accounted_jobs import AccountedJob

JOB_NAME = "headway-rehearsal"
MOST_SUBMISSIONS = 2000  # each is a process on the containers of one machine


@dataclass(frozen=True)
class Submission:
    """One sbatch. `at_s`: seconds after the start of the replay; `sleep_s`: how long the job runs."""

    job: AccountedJob
    at_s: float
    user: str
    argv: tuple[str, ...]
    sleep_s: int


@dataclass(frozen=True)
class Replay:
    """The submissions of a replay. `factor`: how much faster it runs than the site's day; `left_out`: why jobs are not
    replayed -> number."""

    submissions: list[Submission]
    factor: float
    read: int
    left_out: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True)
class Capacity:
    """Nodes of each partition at the site and in the rehearsal, by the partition's name in the rehearsal; names of
    partitions and accounts of the site -> those of the rehearsal; its users."""

    site_nodes: Mapping[str, int]
    nodes: Mapping[str, int]
    partitions: Mapping[str, str]
    teams: Mapping[str, str]
    users: frozenset[str]


def plan_replay(jobs: Sequence[AccountedJob], capacity: Capacity, seconds: float) -> Replay:
    """Returns the submissions of these jobs within this time. A rehearsal with a tenth of a partition's nodes gets jobs
    with a tenth of the nodes, or every tenth job of those that have one node; at least one of each kind. What a job asks
    of a node is as at the site."""
    if not jobs:
        return Replay([], 1.0, 0)
    first = jobs[0].submit
    factor = max(1.0, (jobs[-1].submit - first) / seconds)
    left_out: Counter[str] = Counter()
    credit: dict[tuple[object, ...], float] = {}
    found: list[Submission] = []
    for job in jobs:
        partition, team = capacity.partitions.get(job.partition.lower(), ""), capacity.teams.get(job.account, "")
        why = _reason(job, partition, team, capacity)
        if why:
            left_out[why] += 1
            continue
        wanted = job.nodes * capacity.nodes[partition] / max(1, capacity.site_nodes[partition])
        nodes = max(1, min(round(wanted), capacity.nodes[partition]))
        credit[job.kind] = credit.get(job.kind, 1 - min(1.0, wanted / nodes)) + min(1.0, wanted / nodes)
        if credit[job.kind] < 1:
            left_out["the rehearsal has fewer nodes: others of the same kind are replayed"] += 1
        elif len(found) >= MOST_SUBMISSIONS:
            left_out[f"a replay has at most {MOST_SUBMISSIONS} jobs"] += 1
        else:
            credit[job.kind] -= 1
            argv = _argv(job, partition, team, nodes)
            sleep_s = max(1, round(job.elapsed_s / factor))
            found.append(Submission(job, (job.submit - first) / factor, job.user, argv, sleep_s))
    return Replay(found, factor, len(jobs), left_out)


def _reason(job: AccountedJob, partition: str, team: str, capacity: Capacity) -> str:
    """Returns why a job can't be submitted in the rehearsal; "" if it can."""
    if job.user not in capacity.users:
        return f"user {job.user} is not in the file"
    if not team:
        return f"account {job.account} is no team of the file"
    return "" if capacity.nodes.get(partition) else f"partition {job.partition} is not in the file"


def _argv(job: AccountedJob, partition: str, team: str, nodes: int) -> tuple[str, ...]:
    words = [f"--job-name={JOB_NAME}", "--output=/dev/null", "--chdir=/", "--no-requeue", f"--partition={partition}"]
    words += [
        f"--account={team}",
        f"--nodes={nodes}",
        "--ntasks-per-node=1",
        f"--cpus-per-task={_share(job.cpus, job)}",
    ]
    words += [f"--mem={_share(job.memory_mib, job)}M"] if job.memory_mib else []
    words += [f"--gpus-per-node={_share(job.gpus, job)}"] if job.gpus else []
    words += [f"--time={job.limit_min}"] if job.limit_min else []
    return tuple(words)


def _share(number: int, job: AccountedJob) -> int:
    """Returns the part of one node, rounded up."""
    return -(-number // job.nodes)
