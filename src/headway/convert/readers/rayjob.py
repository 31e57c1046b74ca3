"""Reads KubeRay's RayJob."""

from __future__ import annotations

from headway.convert.job_description import Job, Place, RayProgram
from headway.convert.readers.pods import REASONS, SAME, read_pod, set_name, set_nodes, set_time_limit
from headway.convert.reading_state import Reading
from headway.convert.yaml_fields import Field
from headway.errors import InvalidSpec
from headway.validation.yaml_parser import parse_yaml

_REASONS = {
    **REASONS,
    "minReplicas": ("Slurm gives a fixed number of nodes", ""),
    "maxReplicas": ("Slurm gives a fixed number of nodes", ""),
    "enableInTreeAutoscaling": ("Slurm gives a fixed number of nodes", ""),
    "autoscalerOptions": ("Slurm gives a fixed number of nodes", ""),
    "scaleStrategy": ("Slurm gives a fixed number of nodes", ""),
    "idleTimeoutSeconds": ("Slurm gives a fixed number of nodes", ""),
    "gcsFaultToleranceOptions": ("the Ray cluster ends with the job", "see --requeue"),
    "submitterPodTemplate": ("the program starts on the first node", ""),
    "submitterConfig": ("the program starts on the first node", ""),
    "clusterSelector": ("a job has a Ray cluster of its own", ""),
    "rayStartParams": ("Ray counts the CPUs and GPUs of the job by itself", "add options to ray start in the script"),
    "headService": ("the job has the node's network", ""),
    "serviceType": ("the job has the node's network", "reach the dashboard by ssh -L"),
    "metadata": ("it is noted by ray job submit only", ""),
    "entrypointNumCpus": ("the program starts on the first node", ""),
    "entrypointNumGpus": ("the program starts on the first node", ""),
    "entrypointResources": ("the program starts on the first node", ""),
    "runtimeEnvYAML": ("only its env_vars are carried", "install packages in an environment: headway env"),
}
_SAME = {
    **SAME,
    "shutdownAfterJobFinishes": "the Ray cluster ends with the job",
    "submissionMode": "the program starts on the first node",
    "rayVersion": "the image has a version of Ray",
    "jobId": "Slurm numbers jobs",
    "groupName": "all workers are nodes of the job",
    "numOfHosts": "it is in the number of nodes",
    "deletionStrategy": "the Ray cluster ends with the job",
}  # fmt: skip


def read_rayjob(reading: Reading, root: Field) -> Job:
    """Returns the job of a RayJob: a Ray cluster of all nodes, with its head on the first worker's node."""
    set_name(reading, root)
    spec = root["spec"]
    set_time_limit(reading, spec["activeDeadlineSeconds"])
    entrypoint = spec["entrypoint"]
    if not entrypoint:
        raise entrypoint.fault("is missing", "add the command that Ray runs")
    cluster = spec["rayClusterSpec"]
    workers = 0
    for group in cluster["workerGroupSpecs"].items():
        replicas = group["replicas"] or group["minReplicas"]
        count = replicas.number(1) * group["numOfHosts"].number(1)
        workers += count
        if count:
            read_pod(reading, group["template"]["spec"], needs_command=False)
    head = cluster["headGroupSpec"]["template"]["spec"]
    if head:
        read_pod(reading, head, needs_command=False)
    if workers:
        cluster["headGroupSpec"].reading.change(
            Place(cluster["headGroupSpec"].path, ""), "Ray's head runs on the node of the first worker", "",
        )  # fmt: skip
    set_nodes(reading, cluster.place, max(1, workers))
    _runtime_environment(reading, spec["runtimeEnvYAML"])
    reading.job.program = RayProgram(entrypoint.text().strip())
    root.lose_the_rest(_REASONS, _SAME)
    return reading.job


def _runtime_environment(reading: Reading, field: Field) -> None:
    if not field:
        return
    try:
        found = parse_yaml(field.text(), "the runtime environment", may_be_empty=True)
    except InvalidSpec as error:
        raise field.fault(error.faults[0].message, "write YAML with env_vars, pip or working_dir") from None
    for name, value in found.items():
        place = Place(f"{field.path}: {name}", str(value)[:60] if name != "env_vars" else "")
        if name == "env_vars" and isinstance(value, dict):
            for variable, text in value.items():
                reading.set_variable(Place(f"{place.where}.{variable}", variable), str(variable), str(text))
        elif name in ("pip", "conda", "uv"):
            reading.lose(place, "the job installs no packages", "make an environment with them: headway env")
        elif name == "working_dir":
            reading.lose(
                place, "the job copies no folder", "headway run and headway submit take this folder's files along"
            )
        else:
            reading.lose(place, *_REASONS["runtimeEnvYAML"])
