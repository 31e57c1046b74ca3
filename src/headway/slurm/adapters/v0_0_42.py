"""slurmrestd v0.0.42, as Slurm 24.11 answers it.

- Numbers are {"set", "infinite", "number"}; states are lists: the base state first, then flags.
- /node/NAME leaves out what is allocated (CPUs 0, state ALLOCATED); /nodes/ has it, so that is what is asked.
- /jobs/ without parameters means flags=DETAIL: with it come `gres_detail` (one entry a node, in the order of `nodes`)
  and a line for each core of each node of each job, four times the bytes of flags=ALL on 64-core nodes.
- `standard_output` comes with its patterns already filled in.
- `state_reason` is the short word; `state_description` has a sentence now and then, and is empty otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headway.domain.jobstate import ENDED
from headway.domain.live import JobState, NodeState
from headway.slurm.adapters.base import (
    Adapter,
    Field,
    Reservation,
    base_state,
    gpu_count,
    gpu_indexes,
    gpus_of_tres,
    hosts,
    number,
    read,
    seconds_from_minutes,
    text,
    texts,
)


def _return_code(value: Any) -> int:
    return number(value.get("return_code", 0))


NODE = (
    Field("name", "name", text),
    Field("states", "state", texts, default=()),
    Field("reason", "reason", text, default=""),
    Field("gpus", "gres", gpu_count, default=0),
    Field("gpus_used", "gres_used", gpu_count, default=0),
    Field("gpus_used_index", "gres_used", gpu_indexes, default=()),
    Field("cpus", "cpus", number, default=0),
    Field("cpus_used", "alloc_cpus", number, default=0),
    Field("memory_mib", "real_memory", number, "MiB", 0),
    Field("memory_used_mib", "alloc_memory", number, "MiB", 0),
    Field("partitions", "partitions", texts, default=()),
    Field("reservation", "reservation", text, default=""),
    Field("boot_time", "boot_time", number, "unix s", 0),
)

JOB = (
    Field("id", "job_id", number),
    Field("name", "name", text, default=""),
    Field("user", "user_name", text, default=""),
    Field("account", "account", text, default=""),
    Field("partition", "partition", text, default=""),
    Field("state", "job_state", base_state, default=""),
    Field("nodes", "nodes", hosts, default=()),
    Field("node_count", "node_count", number, default=0),
    Field("submit_time", "submit_time", number, "unix s", 0),
    Field("start_time", "start_time", number, "unix s", 0),
    Field("end_time", "end_time", number, "unix s", 0),
    Field("time_limit_s", "time_limit", seconds_from_minutes, "min"),
    Field("restarts", "restart_cnt", number, default=0),
    Field("stdout", "standard_output", text, default=""),
    Field("stderr", "standard_error", text, default=""),
    Field("command", "command", text, default=""),
    Field("workdir", "current_working_directory", text, default=""),
    Field("priority", "priority", number, default=0),
    Field("exit_code", "exit_code", _return_code, default=0),
    Field("qos", "qos", text, default=""),
    Field("array_job_id", "array_job_id", number, default=0),
)

RESERVATION = (
    Field("name", "name", text),
    Field("nodes", "node_list", hosts, default=()),
    Field("users", "users", texts, default=()),
    Field("flags", "flags", texts, default=()),
    Field("start_time", "start_time", number, "unix s", 0),
    Field("end_time", "end_time", number, "unix s", 0),
)


def node_state(row: Mapping[str, Any]) -> NodeState:
    return NodeState(**read(NODE, row))


def job_state(row: Mapping[str, Any]) -> JobState:
    """`end_time` is 0 until the job has ended (Slurm foretells one), `gpu_indexes` empty without gres_detail."""
    found = read(JOB, row)
    if found["state"] not in ENDED:
        found["end_time"] = 0
    task = row.get("array_task_id") or {}
    return JobState(
        **found,
        reason=text(row.get("state_description")) or text(row.get("state_reason")),
        gpus=gpus_of_tres(row.get("tres_alloc_str")) or gpus_of_tres(row.get("tres_req_str")),
        array_task=str(number(task)) if task.get("set") else text(row.get("array_task_string")),
        gpu_indexes=_indexes(found["nodes"], row.get("gres_detail") or ()),
    )


def reservation(row: Mapping[str, Any]) -> Reservation:
    return Reservation(**read(RESERVATION, row))


def _indexes(nodes: tuple[str, ...], details: Any) -> dict[str, tuple[int, ...]]:
    """A job that ended keeps its gres_detail without any IDX."""
    if len(details) != len(nodes):
        return {}
    return {node: found for node, detail in zip(nodes, details, strict=True) if (found := gpu_indexes(detail))}


ADAPTER = Adapter(
    version="v0.0.42",
    nodes="/slurm/v0.0.42/nodes/",
    jobs="/slurm/v0.0.42/jobs/",
    job="/slurm/v0.0.42/job/{id}",
    reservations="/slurm/v0.0.42/reservations/",
    ping="/slurm/v0.0.42/ping/",
    plain={"flags": "ALL"},
    detailed={"flags": "DETAIL"},
    node_state=node_state,
    job_state=job_state,
    reservation=reservation,
)
