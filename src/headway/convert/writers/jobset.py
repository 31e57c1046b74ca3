"""Writes a Kubernetes JobSet (jobset.x-k8s.io/v1alpha2)."""

from __future__ import annotations

import re
from typing import Any

from headway.convert.job_description import Group, Job, Loss, PerNode, Place, RayProgram, Script
from headway.convert.writers.pod_template import PodWriter, dns_name, metadata, node_count, shell_command
from headway.convert.writers.script_in_pods import script_in_pods
from headway.errors import Fault, InvalidSpec
from headway.validation.yaml_parser import dump_yaml

_RESTARTS = 3
_ARRAY = re.compile(r"(\d+)-(\d+)(?:%(\d+))?")
_SLURM_TEXT = re.compile(r"\$\{?SLURM\w*\}?|scontrol")


def write_jobset(job: Job) -> tuple[str, list[Loss]]:
    """Returns the object as YAML, and what of the job it does not contain. Raises InvalidSpec without an image, and for a
    Ray cluster."""
    losses: list[Loss] = []
    if isinstance(job.program, RayProgram):
        fault = Fault(
            "", "is a Ray cluster, which is no JobSet", "write a RayJob (--to rayjob) or a script (--to slurm)"
        )
        raise InvalidSpec([fault], "the file")
    name = dns_name(job, losses)
    writer = PodWriter(job, losses)
    spec: dict[str, Any] = {}
    if "hold" in job.options:
        spec["suspend"] = True
        writer.written.add("hold")
    if "requeue" in job.options:
        spec["failurePolicy"] = {"maxRestarts": _RESTARTS}
        writer.written.add("requeue")
        place = job.places["requeue"]
        losses.append(
            Loss(place.where, place.text, "changed", f"all pods start again up to {_RESTARTS} times after any failure")
        )
    if isinstance(job.program, Script):
        spec["replicatedJobs"] = [_of_script(job, job.program, name, writer)]
    else:
        spec["replicatedJobs"] = [_of_group(job.program, group, writer, losses) for group in job.program.groups]
    writer.finish()
    document = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": metadata(job, name),
        "spec": spec,
    }
    return dump_yaml(document), losses


def _of_script(job: Job, script: Script, name: str, writer: PodWriter) -> dict[str, Any]:
    nodes, index = node_count(job), "${JOB_COMPLETION_INDEX:-0}"
    pods = at_once = nodes
    array = job.options.get("array")
    match = _ARRAY.fullmatch(array or "")
    if match and nodes == 1:
        first, last = int(match[1]), int(match[2])
        pods = max(1, last - first + 1)
        at_once = min(pods, int(match[3] or pods))
        index = f"$((JOB_COMPLETION_INDEX + {first}))" if first else index
        writer.written.add("array")
    elif array is not None:
        place = job.places.get("array", Place("", array))
        reason = "an array of jobs with several nodes" if nodes > 1 else "this list of numbers"
        writer.losses.append(Loss(place.where, place.text, "lost", f"a JobSet has no counterpart for {reason}",
                                  "create an object for each number"))  # fmt: skip
        writer.written.add("array")
    tasks = writer.tasks_per_node()
    host = f"{name}-main-0-$index.{name}"
    pod_gpus = (
        writer.pod("main", ["true"])["containers"][0].get("resources", {}).get("limits", {}).get("nvidia.com/gpu", "0")
    )
    text = script_in_pods(
        job, script, name=name, nodes=nodes, tasks_per_node=tasks, gpus=int(pod_gpus), host=host, index=index,
        losses=writer.losses,
    )  # fmt: skip
    return _replicated("main", pods, at_once, shell_command(script.interpreter, text), writer)


def _of_group(program: PerNode, group: Group, writer: PodWriter, losses: list[Loss]) -> dict[str, Any]:
    variables = [*program.head_variables, *program.rank_variables]
    variables = [pair for pair in variables if pair[0] != "JOB_COMPLETION_INDEX"]
    for name, _ in variables:
        if re.search(rf"\b{name}\b", group.text):
            losses.append(Loss("", name, "lost", "no pod has this variable", "set it in the command"))
    found = sorted(set(_SLURM_TEXT.findall(group.text)))
    losses += [Loss("", word, "lost", "pods have nothing of Slurm", "set it in the command") for word in found]
    name = re.sub(r"[^a-z0-9-]+", "-", group.name.lower()).strip("-")[:15] or "main"
    return _replicated(name, group.nodes, group.nodes, shell_command(group.shell, group.text), writer)


def _replicated(name: str, pods: int, at_once: int, command: list[str], writer: PodWriter) -> dict[str, Any]:
    pod = writer.pod(name, command) | {"restartPolicy": "Never"}
    spec: dict[str, Any] = {
        "parallelism": at_once, "completions": pods, "completionMode": "Indexed", "backoffLimit": 0,
    }  # fmt: skip
    seconds = writer.time_limit_s()
    if seconds:
        spec["activeDeadlineSeconds"] = seconds
    return {"name": name, "replicas": 1, "template": {"spec": spec | {"template": {"spec": pod}}}}
