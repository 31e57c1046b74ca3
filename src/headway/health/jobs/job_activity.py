"""Signs of life of running jobs: when a job last reported progress or wrote output, and what its GPUs did. `stall_detection`
judges them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields

from headway.cluster.monitoring.http_client import ForwardsPorts
from headway.cluster.monitoring.metric_queries import gpu_usage_queries
from headway.cluster.monitoring.prometheus_client import query_instant
from headway.domain.machines.machine import Machine
from headway.domain.slurm.nodes_and_jobs import JobState
from headway.errors import HeadwayError
from headway.health.jobs.stall_detection import GpuUsage
from headway.transport.ssh import Remote

REPORTS = "/var/lib/headway/reports"
_LONGEST_PATH = 4096  # bytes, Linux's PATH_MAX


def running_since(job: JobState) -> int:
    """Returns when the job began to run without a break, in unix seconds. A suspended job does nothing until it is
    resumed, so that time does not count."""
    return max(job.start_time, job.suspend_time)


def quiet_s(job: JobState, last_output: Mapping[int, float], now: float) -> float:
    """Returns for how many seconds the job has neither reported nor written output, since it began to run without a
    break. `last_output`: the result of `read_last_output`."""
    return now - max(running_since(job), last_output.get(job.id, 0.0))


async def read_last_output(connections: Remote, head: Machine, jobs: Iterable[JobState]) -> dict[int, float]:
    """Returns when each job last reported or wrote output, in unix seconds: the latest change of its report, standard
    output and standard error. Jobs that never did are missing. Raises Unreachable."""
    of: dict[str, int] = {}
    for job in jobs:
        of[f"{REPORTS}/{job.id}.jsonl"] = job.id
        of.update({path: job.id for path in (job.stdout, job.stderr) if _is_file_path(path)})
    # on stdin, because users choose the paths, and there may be too many for one command line
    look = ["xargs", "-0", "stat", "-L", "-c", "%Y %n", "--"]
    paths = "\0".join(of).encode(errors="replace")
    ran = await connections.remote(head, look, timeout_s=20, input=paths, check=False)
    found: dict[int, float] = {}
    for line in ran.stdout.splitlines():
        when, _, path = line.partition(" ")
        if path in of and when.isdigit():
            found[of[path]] = max(found.get(of[path], 0.0), float(when))
    return found


def _is_file_path(path: str) -> bool:
    """Returns whether the path can be passed to `stat`. A path that can't would make the whole command fail."""
    return path.startswith("/") and not {"\n", "\0"} & set(path) and len(path.encode(errors="replace")) < _LONGEST_PATH


async def read_gpu_usage(connections: ForwardsPorts, head: Machine, window_s: int) -> dict[int, GpuUsage]:
    """Returns the usage of each job with GPUs over the last `window_s` seconds, {} if Prometheus does not answer."""
    try:
        rows = await query_instant(connections, head, gpu_usage_queries(window_s))
    except HeadwayError:
        return {}
    usage: dict[int, dict[str, float]] = {}
    for row in rows:
        if (job := row.labels.get("hpc_job", "")).isdigit():
            usage.setdefault(int(job), {})[row.key] = row.values[0][1]
    complete = {field.name for field in fields(GpuUsage)}
    return {number: GpuUsage(**use) for number, use in usage.items() if use.keys() == complete}


def complete_usage(job: JobState, use: Mapping[int, GpuUsage]) -> GpuUsage | None:
    """Returns the job's usage, or None if some of its GPUs had no samples for part of the time, because Prometheus or a
    node's agent was down."""
    found = use.get(job.id)
    return found if found is not None and found.observed_gpus >= job.gpus else None
