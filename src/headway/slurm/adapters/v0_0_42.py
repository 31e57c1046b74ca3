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
    memory_of_tres,
    one_line_text,
    parse_hosts,
    parse_number,
    parse_program,
    parse_text,
    parse_words,
    read_record,
    seconds_from_minutes,
)


def _return_code(value: Any) -> int:
    return parse_number(value.get("return_code", 0))


def _profile(value: Any) -> str:
    found = one_line_text(value)
    return "" if found == "NOT_SET" else found


NODE = (
    Field("name", "name", parse_text),
    Field("states", "state", parse_words, default=()),
    Field("reason", "reason", parse_text, default=""),
    Field("gpus", "gres", gpu_count, default=0),
    Field("gpu_types", "gres", gpu_types, default=()),
    Field("gpus_used", "gres_used", gpu_count, default=0),
    Field("cpus", "cpus", parse_number, default=0),
    Field("cpus_used", "alloc_cpus", parse_number, default=0),
    Field("memory_mib", "real_memory", parse_number, "MiB", 0),
    Field("memory_used_mib", "alloc_memory", parse_number, "MiB", 0),
    Field("partitions", "partitions", parse_words, default=()),
    Field("reservation", "reservation", parse_text, default=""),
    Field("boot_time", "boot_time", parse_number, "unix s", 0),
)

JOB = (
    Field("id", "job_id", parse_number),
    Field("name", "name", parse_text, default=""),
    Field("user", "user_name", parse_text, default=""),
    Field("account", "account", parse_text, default=""),
    Field("partition", "partition", parse_text, default=""),
    Field("state", "job_state", base_state, default=""),
    Field("nodes", "nodes", parse_hosts, default=()),
    Field("node_count", "node_count", parse_number, default=0),
    Field("submit_time", "submit_time", parse_number, "unix s", 0),
    Field("start_time", "start_time", parse_number, "unix s", 0),
    Field("end_time", "end_time", parse_number, "unix s", 0),
    Field("time_limit_s", "time_limit", seconds_from_minutes, "min"),
    Field("restarts", "restart_cnt", parse_number, default=0),
    Field("stdout", "standard_output", parse_text, default=""),
    Field("stderr", "standard_error", parse_text, default=""),
    Field("command", "command", parse_program, default=""),
    Field("workdir", "current_working_directory", parse_text, default=""),
    Field("priority", "priority", parse_number, default=0),
    Field("exit_code", "exit_code", _return_code, default=0),
    Field("qos", "qos", parse_text, default=""),
    Field("array_job_id", "array_job_id", parse_number, default=0),
    Field("comment", "comment", parse_text, default=""),
    Field("description", "state_description", parse_text, default=""),
    Field("cpus", "cpus", parse_number, default=0),
    Field("dependency", "dependency", parse_text, default=""),
    Field("reservation", "resv_name", parse_text, default=""),
    Field("features", "features", parse_text, default=""),
    Field("licenses", "licenses", parse_text, default=""),
    Field("required_nodes", "required_nodes", parse_hosts, default=()),
    Field("excluded_nodes", "excluded_nodes", parse_hosts, default=()),
    Field("scheduled_nodes", "scheduled_nodes", parse_hosts, default=()),
    Field("switches", "required_switches", parse_number, default=0),
    Field("eligible_time", "eligible_time", parse_number, "unix s", 0),
    Field("array_limit", "array_max_tasks", parse_number, default=0),
    Field("suspend_time", "suspend_time", parse_number, "unix s", 0),
)

# Columns of squeue that are only shown, by squeue's names.
MORE = (
    Field("accruetime", "accrue_time", parse_number, "unix s"),
    Field("admin_comment", "admin_comment", parse_text),
    Field("allocnodes", "allocating_node", parse_text),
    Field("associd", "association_id", parse_number),
    Field("batchflag", "batch_flag", flag_text),
    Field("batchhost", "batch_host", parse_text),
    Field("burstbuffer", "burst_buffer", parse_text),
    Field("burstbufferstate", "burst_buffer_state", parse_text),
    Field("cluster", "cluster", parse_text),
    Field("clusterfeature", "cluster_features", parse_text),
    Field("container", "container", parse_text),
    Field("containerid", "container_id", parse_text),
    Field("contiguous", "contiguous", flag_text),
    Field("cores", "cores_per_socket", parse_number),
    Field("corespec", "core_spec", parse_number),
    Field("cpus-per-task", "cpus_per_task", parse_number),
    Field("cpus-per-tres", "cpus_per_tres", parse_text),
    Field("deadline", "deadline", parse_number, "unix s"),
    Field("delayboot", "delay_boot", parse_number, "min"),
    Field("derivedec", "derived_exit_code", _return_code),
    Field("groupid", "group_id", parse_number),
    Field("groupname", "group_name", parse_text),
    Field("hetjobid", "het_job_id", parse_number),
    Field("hetjobidset", "het_job_id_set", parse_text),
    Field("hetjoboffset", "het_job_offset", parse_number),
    Field("lastschedeval", "last_sched_evaluation", parse_number, "unix s"),
    Field("maxcpus", "max_cpus", parse_number),
    Field("maxnodes", "max_nodes", parse_number),
    Field("mcslabel", "mcs_label", parse_text),
    Field("mem-per-tres", "memory_per_tres", parse_text),
    Field("mincpus", "minimum_cpus_per_node", parse_number),
    Field("mintime", "time_minimum", seconds_from_minutes, "s"),
    Field("mintmpdisk", "minimum_tmp_disk_per_node", parse_number, "MiB"),
    Field("network", "network", parse_text),
    Field("nice", "nice", parse_number),
    Field("ntperboard", "tasks_per_board", parse_number),
    Field("ntpercore", "tasks_per_core", parse_number),
    Field("ntpernode", "tasks_per_node", parse_number),
    Field("ntpersocket", "tasks_per_socket", parse_number),
    Field("numtasks", "tasks", parse_number),
    Field("origin", "federation_origin", parse_text),
    Field("oversubscribe", "shared", one_line_text),
    Field("preempttime", "preempt_time", parse_number, "unix s"),
    Field("prefer", "prefer", parse_text),
    Field("profile", "profile", _profile),
    Field("reboot", "reboot", flag_text),
    Field("requeue", "requeue", flag_text),
    Field("resizetime", "resize_time", parse_number, "unix s"),
    Field("siblingsactive", "federation_siblings_active", parse_text),
    Field("siblingsviable", "federation_siblings_viable", parse_text),
    Field("sockets", "sockets_per_node", parse_number),
    Field("sperboard", "sockets_per_board", parse_number),
    Field("stdin", "standard_input", parse_text),
    Field("system_comment", "system_comment", parse_text),
    Field("threads", "threads_per_core", parse_number),
    Field("tres-alloc", "tres_alloc_str", parse_text),
    Field("tres-bind", "tres_bind", parse_text),
    Field("tres-freq", "tres_freq", parse_text),
    Field("tres-per-job", "tres_per_job", parse_text),
    Field("tres-per-node", "tres_per_node", parse_text),
    Field("tres-per-socket", "tres_per_socket", parse_text),
    Field("tres-per-task", "tres_per_task", parse_text),
    Field("userid", "user_id", parse_number),
    Field("wait4switch", "maximum_switch_wait_time", parse_number, "s"),
    Field("wckey", "wckey", parse_text),
)

RESERVATION = (
    Field("name", "name", parse_text),
    Field("nodes", "node_list", parse_hosts, default=()),
    Field("users", "users", parse_words, default=()),
    Field("flags", "flags", parse_words, default=()),
    Field("start_time", "start_time", parse_number, "unix s", 0),
    Field("end_time", "end_time", parse_number, "unix s", 0),
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
        array_task=str(parse_number(task)) if task.get("set") else parse_text(row.get("array_task_string")),
        gpu_indexes=_indexes(found["nodes"], row.get("gres_detail") or ()),
        more={name: value for name, value in read_record(MORE, row).items() if value},
    )


def _reason(row: Mapping[str, Any]) -> str:
    """Returns the reason's word, or the sentence where it says more ("ReqNodeNotAvail, UnavailableNodes:a-1")."""
    word, sentence = parse_text(row.get("state_reason")), parse_text(row.get("state_description"))
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
