"""slurmrestd v0.0.38, as in Slurm 22.05.

- It requires the user's name in a header besides the token.
- Numbers are plain, null when not set or without limit. A job's state is one word. A node's state is in lower case, with
  the flags in `state_flags`.
- Nodes do not name their reservation: it is taken from the reservations.
- There is no `flags` parameter: the lists are always detailed, with `gres_detail` and a line for each core.
- `standard_output` is the text given to sbatch with its patterns, and empty for the default; `exit_code` is a wait
  status."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from headway.domain.slurm.nodes_and_jobs import JobState, NodeState
from headway.slurm.adapters import v0_0_42 as newer
from headway.slurm.adapters.base import Adapter, Field, parse_text, read_record

_PATTERN = re.compile(r"%(\d*)([%AajJNnstuxb])")


def _upper(value: Any) -> tuple[str, ...]:
    return (str(value).upper(),)


def _exit(wait_status: int) -> int:
    return wait_status >> 8


def _changed(fields: tuple[Field, ...], *others: Field) -> tuple[Field, ...]:
    """Returns the newer version's fields with those of the same name replaced."""
    by_name = {one.name: one for one in others}
    return tuple(by_name.get(one.name, one) for one in fields)


NODE = _changed(newer.NODE, Field("states", "state", _upper, default=()))


def node_state(row: Mapping[str, Any]) -> NodeState:
    """Returns the node of a record."""
    found = read_record(NODE, row)
    found["states"] += tuple(row.get("state_flags") or ())
    return NodeState(**found)


def job_state(row: Mapping[str, Any]) -> JobState:
    """Returns the job of a record, with the patterns of its log files filled in."""
    task = row.get("array_task_id")
    codes = {name: {"return_code": _exit(row.get(name) or 0)} for name in ("exit_code", "derived_exit_code")}
    shaped = {**row, **codes}
    shaped["array_task_id"] = {"set": task is not None, "number": task or 0}
    job = newer.job_state(shaped)
    default = "slurm-%A_%a.out" if job.array_job_id else "slurm-%j.out"
    stdout = fill_filename_pattern(parse_text(row.get("standard_output")) or f"{job.workdir}/{default}", job)
    stderr = parse_text(row.get("standard_error"))
    return replace(job, stdout=stdout, stderr=fill_filename_pattern(stderr, job) if stderr else stdout)


def fill_filename_pattern(pattern: str, job: JobState) -> str:
    """Returns the file name for sbatch's pattern, as for the batch step: node, step and task are 0."""
    first_node = job.nodes[0] if job.nodes else ""
    values = {
        "j": str(job.id),
        "J": str(job.id),
        "A": str(job.array_job_id or job.id),
        "a": job.array_task or "4294967294",
        "u": job.user,
        "x": job.name,
        "N": first_node.split(".")[0],
        "n": "0",
        "s": "batch",
        "t": "0",
        "b": str(int(job.array_task) % 10) if job.array_task.isdigit() else "0",
        "%": "%",
    }

    def one(match: re.Match[str]) -> str:
        width, letter = match.groups()
        value = values[letter]
        return value.zfill(min(int(width), 10)) if width and value.isdigit() else value

    return _PATTERN.sub(one, pattern)


ADAPTER = Adapter(
    version="v0.0.38",
    nodes="/slurm/v0.0.38/nodes/",
    jobs="/slurm/v0.0.38/jobs/",
    job="/slurm/v0.0.38/job/{id}",
    reservations="/slurm/v0.0.38/reservations/",
    ping="/slurm/v0.0.38/ping/",
    plain={},
    detailed={},
    node_state=node_state,
    job_state=job_state,
    reservation=newer.reservation,
    reservations_apart=True,
)
