"""Writes a RayJob of KubeRay (ray.io/v1)."""

from __future__ import annotations

import re
import shlex
from typing import Any

from headway.convert.job_description import Job, Loss, PerNode, RayProgram, Script
from headway.convert.writers.pod_template import PodWriter, dns_name, metadata, node_count
from headway.convert.writers.script_in_pods import script_in_pods
from headway.validation.yaml_parser import dump_yaml

_STARTS_RAY = re.compile(r"\bray\s+(start|symmetric-run|stop)\b")


def write_rayjob(job: Job) -> tuple[str, list[Loss]]:
    """Returns the object as YAML, and what of the job it does not contain. Raises InvalidSpec without an image."""
    losses: list[Loss] = []
    name = dns_name(job, losses)
    writer = PodWriter(job, losses)
    nodes = node_count(job)
    entrypoint = _entrypoint(job, name, nodes, writer)
    head, worker = writer.pod("ray-head", []), writer.pod("ray-worker", [])
    cluster: dict[str, Any] = {"headGroupSpec": {"rayStartParams": {}, "template": {"spec": head}}}
    if nodes > 1:
        cluster["workerGroupSpecs"] = [{
            "groupName": "workers", "replicas": nodes - 1, "minReplicas": nodes - 1, "maxReplicas": nodes - 1,
            "rayStartParams": {}, "template": {"spec": worker},
        }]  # fmt: skip
    spec: dict[str, Any] = {"entrypoint": entrypoint, "shutdownAfterJobFinishes": True}
    seconds = writer.time_limit_s()
    if seconds:
        spec["activeDeadlineSeconds"] = seconds
    if "hold" in job.options:
        spec["suspend"] = True
        writer.written.add("hold")
    writer.finish()
    spec["rayClusterSpec"] = cluster
    document = {"apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": metadata(job, name), "spec": spec}
    return dump_yaml(document), losses


def _entrypoint(job: Job, name: str, nodes: int, writer: PodWriter) -> str:
    losses = writer.losses
    match job.program:
        case RayProgram():
            return job.program.entrypoint
        case PerNode():
            if len(job.program.groups) > 1 or nodes > 1:
                losses.append(Loss("", "commands of each node", "changed", "the first group's commands run once, on Ray's head",
                                   "let Ray start the work of the other nodes"))  # fmt: skip
            for variable, _ in (*job.program.head_variables, *job.program.rank_variables):
                if re.search(rf"\b{variable}\b", job.program.groups[0].text):
                    losses.append(Loss("", variable, "lost", "no pod has this variable", "set it in the command"))
            return _one_line(job.program.groups[0].text, job.program.groups[0].shell)
        case Script():
            return _of_script(job, job.program, name, nodes, writer)


def _of_script(job: Job, script: Script, name: str, nodes: int, writer: PodWriter) -> str:
    """Returns the script, which runs once. Of a script that starts Ray itself only the last command is left."""
    if any(_STARTS_RAY.search(line) for line in script.lines if not line.lstrip().startswith("#")):
        script = _last_command(script, writer.losses)
    text = script_in_pods(
        job, script, name=name, nodes=nodes, tasks_per_node=writer.tasks_per_node(), gpus=0, host=None, index="0",
        losses=writer.losses,
    )  # fmt: skip
    if nodes > 1:
        writer.losses.append(
            Loss(
                "", "the script", "changed", "it runs once, on Ray's head", "let Ray start the work of the other nodes"
            )
        )
    return _one_line(text.strip("\n"), script.interpreter)


def _last_command(script: Script, losses: list[Loss]) -> Script:
    last = len(script.lines) - 1
    while last > 0 and (
        not script.lines[last].strip()
        or script.lines[last].lstrip().startswith("#")
        or _STARTS_RAY.search(script.lines[last])
        or script.lines[last].strip() in ("wait", "fi", "done")
    ):
        last -= 1
    first = last
    while first > 0 and script.lines[first - 1].endswith("\\"):
        first -= 1
    for number, line in enumerate(script.lines):
        if not first <= number <= last and line.strip() and not line.lstrip().startswith("#"):
            losses.append(Loss(f"line {number + script.first_line}", line.strip()[:60], "lost", "KubeRay starts the Ray cluster",
                               "add it to the entrypoint if the program needs it"))  # fmt: skip
    return Script(script.lines[first : last + 1], script.interpreter, script.first_line + first)


def _one_line(text: str, interpreter: str) -> str:
    """Returns the entrypoint: ray job submit splits it into words, so a script becomes one word."""
    text = re.sub(r"[ \t]*\\\n[ \t]*", " ", text)
    if not re.search(r"[\n;|&<>(){}$`*?\[\]~]|^\w+=", text):
        return text
    shell = " ".join(shlex.quote(word) for word in shlex.split(interpreter)) or "bash"
    return f"{shell} -c {shlex.quote(text)}"
