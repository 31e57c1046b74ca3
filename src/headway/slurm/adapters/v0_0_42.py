"""slurmrestd v0.0.42, as in Slurm 24.11 and 26.05 (26.11 will drop it).

- Numbers are {"set", "infinite", "number"}; states are lists: the base state first, then flags.
- /node/NAME lacks the allocated resources (CPUs 0, state ALLOCATED); /nodes/ has them, so /nodes/ is used.
- /jobs/ without parameters means flags=DETAIL, which adds `gres_detail` (one entry a node, in the order of `nodes`)
  and a line for each core of each node of each job: four times the bytes of flags=ALL on 64-core nodes.
- `standard_output` has its patterns already filled in.
- `state_reason` is the short word; `state_description` sometimes has a sentence, and is empty otherwise. Where the
  sentence is a word of its own ("launch failed requeued held"), the job's reason says only that it is held."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headway.domain.slurm.job_states import ENDED
from headway.domain.slurm.nodes_and_jobs import JobState, NodeState, Reservation
from headway.slurm.adapters.base import (
    Adapter,
    Field,
    base_state,
    flag_text,
    gpu_count,
    gpu_indexes,
    gpu_shares_of_tres,
    gpu_types,
    gpus_of_tres,
    hosts,
    memory_of_tres,
    number,
    one_line_text,
    read_record,
    seconds_from_minutes,
    text,
    texts,
)


def _return_code(value: Any) -> int:
    return number(value.get("return_code", 0))


def _profile(value: Any) -> str:
    found = one_line_text(value)
    return "" if found == "NOT_SET" else found


NODE = (
    Field("name", "name", text),
    Field("states", "state", texts, default=()),
    Field("reason", "reason", text, default=""),
    Field("gpus", "gres", gpu_count, default=0),
    Field("gpu_types", "gres", gpu_types, default=()),
    Field("gpus_used", "gres_used", gpu_count, default=0),
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
    Field("comment", "comment", text, default=""),
    Field("description", "state_description", text, default=""),
    Field("cpus", "cpus", number, default=0),
    Field("dependency", "dependency", text, default=""),
    Field("reservation", "resv_name", text, default=""),
    Field("features", "features", text, default=""),
    Field("licenses", "licenses", text, default=""),
    Field("required_nodes", "required_nodes", hosts, default=()),
    Field("excluded_nodes", "excluded_nodes", hosts, default=()),
    Field("scheduled_nodes", "scheduled_nodes", hosts, default=()),
    Field("switches", "required_switches", number, default=0),
    Field("eligible_time", "eligible_time", number, "unix s", 0),
    Field("array_limit", "array_max_tasks", number, default=0),
    Field("suspend_time", "suspend_time", number, "unix s", 0),
)

# Columns of squeue that are only shown, by squeue's names.
MORE = (
    Field("accruetime", "accrue_time", number, "unix s"),
    Field("admin_comment", "admin_comment", text),
    Field("allocnodes", "allocating_node", text),
    Field("associd", "association_id", number),
    Field("batchflag", "batch_flag", flag_text),
    Field("batchhost", "batch_host", text),
    Field("burstbuffer", "burst_buffer", text),
    Field("burstbufferstate", "burst_buffer_state", text),
    Field("cluster", "cluster", text),
    Field("clusterfeature", "cluster_features", text),
    Field("container", "container", text),
    Field("containerid", "container_id", text),
    Field("contiguous", "contiguous", flag_text),
    Field("cores", "cores_per_socket", number),
    Field("corespec", "core_spec", number),
    Field("cpus-per-task", "cpus_per_task", number),
    Field("cpus-per-tres", "cpus_per_tres", text),
    Field("deadline", "deadline", number, "unix s"),
    Field("delayboot", "delay_boot", number, "min"),
    Field("derivedec", "derived_exit_code", _return_code),
    Field("groupid", "group_id", number),
    Field("groupname", "group_name", text),
    Field("hetjobid", "het_job_id", number),
    Field("hetjobidset", "het_job_id_set", text),
    Field("hetjoboffset", "het_job_offset", number),
    Field("lastschedeval", "last_sched_evaluation", number, "unix s"),
    Field("maxcpus", "max_cpus", number),
    Field("maxnodes", "max_nodes", number),
    Field("mcslabel", "mcs_label", text),
    Field("mem-per-tres", "memory_per_tres", text),
    Field("mincpus", "minimum_cpus_per_node", number),
    Field("mintime", "time_minimum", seconds_from_minutes, "s"),
    Field("mintmpdisk", "minimum_tmp_disk_per_node", number, "MiB"),
    Field("network", "network", text),
    Field("nice", "nice", number),
    Field("ntperboard", "tasks_per_board", number),
    Field("ntpercore", "tasks_per_core", number),
    Field("ntpernode", "tasks_per_node", number),
    Field("ntpersocket", "tasks_per_socket", number),
    Field("numtasks", "tasks", number),
    Field("origin", "federation_origin", text),
    Field("oversubscribe", "shared", one_line_text),
    Field("preempttime", "preempt_time", number, "unix s"),
    Field("prefer", "prefer", text),
    Field("profile", "profile", _profile),
    Field("reboot", "reboot", flag_text),
    Field("requeue", "requeue", flag_text),
    Field("resizetime", "resize_time", number, "unix s"),
    Field("siblingsactive", "federation_siblings_active", text),
    Field("siblingsviable", "federation_siblings_viable", text),
    Field("sockets", "sockets_per_node", number),
    Field("sperboard", "sockets_per_board", number),
    Field("stdin", "standard_input", text),
    Field("system_comment", "system_comment", text),
    Field("threads", "threads_per_core", number),
    Field("tres-alloc", "tres_alloc_str", text),
    Field("tres-bind", "tres_bind", text),
    Field("tres-freq", "tres_freq", text),
    Field("tres-per-job", "tres_per_job", text),
    Field("tres-per-node", "tres_per_node", text),
    Field("tres-per-socket", "tres_per_socket", text),
    Field("tres-per-task", "tres_per_task", text),
    Field("userid", "user_id", number),
    Field("wait4switch", "maximum_switch_wait_time", number, "s"),
    Field("wckey", "wckey", text),
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
    """Returns the node of a record."""
    return NodeState(**read_record(NODE, row))


def job_state(row: Mapping[str, Any]) -> JobState:
    """Returns the job of a record. `end_time` is 0 until the job has ended (Slurm gives an expected one),
    `gpu_indexes` is empty without gres_detail."""
    found = read_record(JOB, row)
    if found["state"] not in ENDED:
        found["end_time"] = 0
    task = row.get("array_task_id") or {}
    return JobState(
        **found,
        reason=_reason(row),
        memory_mib=memory_of_tres(row.get("tres_alloc_str")) or memory_of_tres(row.get("tres_req_str")),
        gpus=gpus_of_tres(row.get("tres_alloc_str")) or gpus_of_tres(row.get("tres_req_str")),
        gpu_shares=gpu_shares_of_tres(row.get("tres_alloc_str")),
        array_task=str(number(task)) if task.get("set") else text(row.get("array_task_string")),
        gpu_indexes=_indexes(found["nodes"], row.get("gres_detail") or ()),
        more={name: value for name, value in read_record(MORE, row).items() if value},
    )


def _reason(row: Mapping[str, Any]) -> str:
    """Returns the reason's word, or the sentence where it says more ("ReqNodeNotAvail, UnavailableNodes:a-1")."""
    word, sentence = text(row.get("state_reason")), text(row.get("state_description"))
    return sentence if sentence and (not word or sentence.startswith(word) or "requeued" in sentence) else word


def reservation(row: Mapping[str, Any]) -> Reservation:
    """Returns the reservation of a record."""
    return Reservation(**read_record(RESERVATION, row))


def _indexes(nodes: tuple[str, ...], details: Any) -> dict[str, tuple[int, ...]]:
    """Returns node -> GPU numbers. The gres_detail of an ended job has no IDX, so its result is empty."""
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
