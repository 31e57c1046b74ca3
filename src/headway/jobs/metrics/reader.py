"""Reads the files of metrics that trainings write, on the head and as the job's user (headway_train.metrics_file)."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass

from headway.domain.cluster import Cluster
from headway.domain.machines.machine import Machine
from headway.domain.slurm.nodes_and_jobs import JobState
from headway.jobs.remote.user_helper import HelperConnections, call_helper

FOLDER = ".headway/metrics"
PART_BYTES = 1024 * 1024  # of one file in one answer
_FILES = 32  # files of one request
_TIMEOUT_S = 60


@dataclass(frozen=True, slots=True)
class MetricsAsk:
    """A question for the next part of a job's file. `path`: "" if it is not known yet. `folder`: where it is below the user's
    folder. `whole_lines`: whether the part ends with a line."""

    job: JobState
    offset: int = 0
    path: str = ""
    folder: str = FOLDER
    whole_lines: bool = True


@dataclass(frozen=True, slots=True)
class MetricsPart:
    """Whole lines of a job's file from the requested offset on; the beginning of a line only if it is longer than
    PART_BYTES. `size`: bytes of the whole file."""

    path: str
    data: bytes
    size: int


async def read_parts(
    links: HelperConnections, head: Machine, cluster: Cluster, asked: Sequence[MetricsAsk]
) -> dict[int, MetricsPart]:
    """Returns the next part of each file by job id; without jobs that have no file."""
    files = [
        (ask, path) for ask in asked for path in ([ask.path] if ask.path else file_paths(cluster, ask.job, ask.folder))
    ]
    found: dict[int, MetricsPart] = {}
    for begin in range(0, len(files), _FILES):
        some = files[begin : begin + _FILES]
        words = [{"user": ask.job.user, "path": path, "offset": ask.offset, "limit": PART_BYTES} for ask, path in some]
        ran = await call_helper(links, head, {"do": "read", "files": words}, timeout_s=_TIMEOUT_S)
        for (ask, path), line in zip(some, ran.stdout.splitlines(), strict=False):
            answer = json.loads(line)
            if "size" in answer and ask.job.id not in found:
                data = base64.b64decode(answer["b64"])
                whole = data[: data.rfind(b"\n") + 1] if ask.whole_lines else data
                too_long = not whole and len(data) >= PART_BYTES
                found[ask.job.id] = MetricsPart(path, data if too_long else whole, int(answer["size"]))
    return found


def file_paths(cluster: Cluster, job: JobState, folder: str = FOLDER) -> list[str]:
    """Returns where the file of a job may be: on scratch, else in the home of its user."""
    places = dict.fromkeys(place for place in (cluster.storage.scratch, cluster.storage.home) if place)
    return [f"{place}/{job.user}/{folder}/{job.id}.jsonl" for place in places]
