"""When a pending job would start if it asked for less: `sbatch --test-only` of a new job with fewer GPUs, a shorter time limit
or another partition. Headway estimates nothing itself."""

from __future__ import annotations

from dataclasses import dataclass, replace

from headway.domain.cluster import Cluster
from headway.domain.slurm.job_states import WAITING
from headway.domain.slurm.nodes_and_jobs import JobState
from headway.errors import Conflict, Refused, Unreachable
from headway.jobs.explain.phrases import count_of, format_duration
from headway.jobs.submission.submission_check import parse_test_only
from headway.schemas.submission.start_alternatives import StartAlternativeOut, StartAlternativesOut
from headway.schemas.submission.submit_request import SubmitIn
from headway.services.access.concurrency_limits import command_slot
from headway.services.access.ownership_rights import authorize_as_owner
from headway.services.access.role_rights import Principal
from headway.services.app_state import AppState
from headway.services.jobs.find_job import read_job_now

MOST_PARTITIONS = 3  # other ones that are tried
_SHORTEST_S = 600  # a time limit is not shortened below it
_SCRIPT = "#!/bin/sh\ntrue\n"  # it never runs
_UNIX_TIMES = {"SLURM_TIME_FORMAT": "%s"}


@dataclass(frozen=True, slots=True)
class Request:
    """What a job asks Slurm for. CPUs, memory and GPUs are of one node."""

    words: str
    nodes: int
    gpus: int
    cpus: int
    memory_mib: int
    time_limit_s: int | None
    partition: str


async def load_start_alternatives(state: AppState, who: Principal, name: str, job_id: int) -> StartAlternativesOut:
    """Returns the start of the job as it is and of smaller requests, each asked of Slurm now. Raises Conflict unless it is
    pending, NotAllowed for another person's job, and Unreachable while Slurm does not answer."""
    _, cluster = await state.clusters.get(name)
    job = await read_job_now(state, cluster, job_id)
    await authorize_as_owner(state, cluster, who, job, f"test other requests for job {job.label}")
    if job.state not in WAITING:
        raise Conflict(f"job {job.label} is {job.state}: only a pending job has a start to wait for")
    if stale := state.live.snapshot(name).stale:
        raise Unreachable(f"Slurm does not answer: {stale}", hint="try again when it does")
    with command_slot(state, who):
        found = [await _tested(state, cluster, job, request) for request in alternatives(job, cluster)]
    return StartAlternativesOut(job=job.label, alternatives=found)


def alternatives(job: JobState, cluster: Cluster) -> list[Request]:
    """Returns the job's request and smaller ones."""
    nodes = max(1, job.node_count)
    now = Request(
        "as it is",
        nodes,
        job.gpus // nodes,
        job.cpus // nodes,
        job.memory_mib // nodes,
        job.time_limit_s,
        job.partition,
    )
    found = [now]
    for part, word in ((2, "half"), (4, "a quarter of")):
        if nodes >= part:
            found.append(replace(now, words=f"{word} the nodes: {nodes // part}", nodes=nodes // part))
        elif nodes == 1 and now.gpus >= part:
            gpus = now.gpus // part
            cpus, memory_mib = max(1, now.cpus // part), now.memory_mib // part
            words = f"{word} the GPUs: {count_of(gpus, 'GPU')}"
            found.append(replace(now, words=words, gpus=gpus, cpus=cpus, memory_mib=memory_mib))
        if job.time_limit_s and job.time_limit_s // part >= _SHORTEST_S:
            limit = job.time_limit_s // part
            words = f"{word} the time: {format_duration(limit)}"
            found.append(replace(now, words=words, time_limit_s=limit))
    others = [one for one in cluster.partitions if one.name not in job.partition.split(",")]
    mine = {team.name for team in cluster.teams if job.user in team.users}
    open_to = [one for one in others if not one.teams or mine.intersection(one.teams)]
    found += [replace(now, words=f"partition {one.name}", partition=one.name) for one in open_to[:MOST_PARTITIONS]]
    return found


def sbatch_words(job: JobState, request: Request) -> list[str]:
    """Returns the options of sbatch for the test."""
    words = ["--test-only", f"--nodes={request.nodes}", "--ntasks-per-node=1", f"--partition={request.partition}"]
    words += [f"--gpus-per-node={request.gpus}"] if request.gpus else []
    words += [f"--cpus-per-task={request.cpus}"] if request.cpus else []
    words += [f"--mem={request.memory_mib}M"] if request.memory_mib else []
    # 0: no limit, which a partition with a limit refuses; Slurm takes whole minutes.
    words += [f"--time={-(-request.time_limit_s // 60)}"] if request.time_limit_s else []
    for option, value in (
        ("account", job.account), ("qos", job.qos), ("constraint", job.features), ("licenses", job.licenses),
        ("reservation", job.reservation), ("exclude", ",".join(job.excluded_nodes)),
    ):  # fmt: skip
        words += [f"--{option}={value}"] if value else []
    return words


async def _tested(state: AppState, cluster: Cluster, job: JobState, request: Request) -> StartAlternativeOut:
    sent = SubmitIn(script=_SCRIPT, script_name="test", args=sbatch_words(job, request), env=_UNIX_TIMES)
    try:
        done = await state.backend.jobs.submit(cluster, sent, job.user)
    except Refused as error:
        return StartAlternativeOut(words=request.words, fault=error.first_line)
    at, nodes, partition = parse_test_only(done.message, state.clock())
    return StartAlternativeOut(words=request.words, starts_at=at, nodes=nodes, partition=partition)
