"""Writes a PyTorchJob of Kubeflow's training operator (kubeflow.org/v1)."""

from __future__ import annotations

from typing import Any

from headway.convert.job_description import Job, Loss, PerNode, RayProgram
from headway.convert.writers.pod_template import PodWriter, dns_name, metadata, node_count, shell_command
from headway.convert.writers.script_in_pods import script_in_pods
from headway.errors import Fault, InvalidSpec
from headway.validation.yaml_parser import dump_yaml

_RESTARTS = 3
_CONTAINER = "pytorch"  # the operator sets MASTER_ADDR, RANK and others in the container of this name


def write_pytorchjob(job: Job) -> tuple[str, list[Loss]]:
    """Returns the object as YAML, and what of the job it does not contain. Raises InvalidSpec without an image, for a Ray
    cluster, and for nodes with different commands."""
    losses: list[Loss] = []
    if isinstance(job.program, RayProgram) or (isinstance(job.program, PerNode) and len(job.program.groups) > 1):
        what = "is a Ray cluster" if isinstance(job.program, RayProgram) else "has nodes with different commands"
        remedy = (
            "write a RayJob (--to rayjob)" if isinstance(job.program, RayProgram) else "write a JobSet (--to jobset)"
        )
        raise InvalidSpec([Fault("", f"{what}, which is no PyTorchJob", remedy)], "the file")
    name = dns_name(job, losses)
    writer = PodWriter(job, losses)
    nodes = node_count(job)
    pod = writer.pod(_CONTAINER, _command(job, name, nodes, writer))
    policy: dict[str, Any] = {}
    restarts = "Never"
    if "requeue" in job.options:
        restarts, policy["backoffLimit"] = "OnFailure", _RESTARTS
        writer.written.add("requeue")
        place = job.places["requeue"]
        why = f"a failed pod starts again, up to {_RESTARTS} times"
        losses.append(Loss(place.where, place.text, "changed", why, "the others must wait for it"))
    if "hold" in job.options:
        policy["suspend"] = True
        writer.written.add("hold")
    seconds = writer.time_limit_s()
    if seconds:
        policy["activeDeadlineSeconds"] = seconds
    writer.finish()
    replicas = {"Master": _replicas(1, restarts, pod)}
    if nodes > 1:
        replicas["Worker"] = _replicas(nodes - 1, restarts, pod)
    spec = ({"runPolicy": policy} if policy else {}) | {"pytorchReplicaSpecs": replicas}
    document = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": metadata(job, name), "spec": spec}
    return dump_yaml(document), losses


def _replicas(count: int, restarts: str, pod: dict[str, Any]) -> dict[str, Any]:
    return {"replicas": count, "restartPolicy": restarts, "template": {"spec": pod}}


def _command(job: Job, name: str, nodes: int, writer: PodWriter) -> list[str]:
    if isinstance(job.program, PerNode):
        group = job.program.groups[0]
        return shell_command(group.shell, group.text)
    assert not isinstance(job.program, RayProgram)
    gpus = writer.pod(_CONTAINER, [])["containers"][0].get("resources", {}).get("limits", {}).get("nvidia.com/gpu", "0")
    host = f"$([ $index = 0 ] && echo {name}-master-0 || echo {name}-worker-$((index - 1)))"
    text = script_in_pods(
        job, job.program, name=name, nodes=nodes, tasks_per_node=writer.tasks_per_node(), gpus=int(gpus), host=host,
        index="0", losses=writer.losses, rank="RANK",
    )  # fmt: skip
    return shell_command(job.program.interpreter, text)
