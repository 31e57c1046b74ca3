"""Reads Kubernetes' Job and JobSet."""

from __future__ import annotations

from headway.convert.job_description import Group, Job, PerNode
from headway.convert.readers.pods import REASONS, SAME, read_pod, set_name, set_nodes, set_time_limit
from headway.convert.reading_state import Reading
from headway.convert.yaml_fields import Field

_INDEX = ("JOB_COMPLETION_INDEX", "$SLURM_PROCID")
_ARRAY_INDEX = ("JOB_COMPLETION_INDEX", "$SLURM_ARRAY_TASK_ID")


def read_kubernetes_job(reading: Reading, root: Field) -> Job:
    """Returns the job of a Kubernetes Job. One with several completions becomes an array of independent tasks, or nodes of
    one job if its pods know each other (a subdomain)."""
    spec = root["spec"]
    pod_spec = spec["template"]["spec"]
    set_name(reading, root)
    set_time_limit(reading, spec["activeDeadlineSeconds"])
    _suspend(reading, spec)
    parallelism = spec["parallelism"].number(1)
    completions = spec["completions"].number(parallelism)
    indexed = spec["completionMode"].text() == "Indexed"
    together = completions == parallelism and completions > 1 and bool(pod_spec["subdomain"])
    pod = read_pod(reading, pod_spec)
    nodes = completions if together else 1
    set_nodes(reading, spec["completions"].place, nodes)
    if completions > 1 and not together:
        limit = f"%{parallelism}" if 0 < parallelism < completions else ""
        reading.set(spec["completions"].place, "array", f"0-{completions - 1}{limit}")
    if parallelism == 0:
        reading.set(spec["parallelism"].place, "hold")
    ranks = () if not indexed else (_INDEX if together else _ARRAY_INDEX,)
    reading.job.program = PerNode((pod.group("main", nodes),), (), ranks)
    root.lose_the_rest(REASONS, SAME)
    return reading.job


def read_jobset(reading: Reading, root: Field) -> Job:
    """Returns the job of a JobSet: nodes of each of its replicated jobs."""
    set_name(reading, root)
    _suspend(reading, root["spec"])
    jobs = root["spec"]["replicatedJobs"]
    groups: list[Group] = []
    for replicated in jobs.items():
        spec = replicated["template"]["spec"]
        set_time_limit(reading, spec["activeDeadlineSeconds"])
        parallelism = spec["parallelism"].number(1)
        completions = spec["completions"].number(parallelism)
        if completions != parallelism:
            spec["completions"].change(
                "all pods of a JobSet become nodes that start at once", "use a Kubernetes Job for work that waits"
            )
        spec["completionMode"].same("nodes of a job are numbered")
        nodes = replicated["replicas"].number(1) * max(parallelism, completions)
        if nodes:
            pod = read_pod(reading, spec["template"]["spec"])
            index = "SLURM_PROCID"
            if groups:
                index = f"(SLURM_PROCID - {sum(group.nodes for group in groups)})"
            if nodes > max(parallelism, completions):
                index = f"{index} % {max(parallelism, completions)}"
            index = "$SLURM_PROCID" if index == "SLURM_PROCID" else f"$(({index}))"
            groups.append(pod.group(replicated["name"].text("job"), nodes, ("JOB_COMPLETION_INDEX", index)))
    if not groups:
        raise jobs.fault("names no job with replicas", "add a replicated job")
    set_nodes(reading, jobs.place, sum(group.nodes for group in groups))
    reading.job.program = PerNode(tuple(groups))
    root.lose_the_rest(REASONS, SAME)
    return reading.job


def _suspend(reading: Reading, spec: Field) -> None:
    suspend = spec["suspend"]
    if suspend and suspend.text() == "true":
        reading.set(suspend.place, "hold")
        reading.change(suspend.place, "the job is held when it is submitted", "start it: scontrol release JOB")
