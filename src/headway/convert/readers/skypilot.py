"""Reads SkyPilot's task files."""

from __future__ import annotations

import re

from headway.convert.job_description import Group, Job, PerNode, Place
from headway.convert.quantities import cpu_count, memory_mib, slurm_memory, whole_number
from headway.convert.readers.pods import set_nodes
from headway.convert.reading_state import SECRET_REMEDY, Reading
from headway.convert.yaml_fields import Field
from headway.domain.access.credential_redaction import is_secret

_HEAD = (("SKYPILOT_NODE_IPS", '$(scontrol show hostnames "$SLURM_JOB_NODELIST")'),)
_REASONS = {
    "service": ("Slurm runs jobs that end, no services", "run the service elsewhere"),
    "pool": ("Slurm's partitions are the pool", "see --partition"),
    "ports": ("the job has the node's network", "reach a port by ssh -L"),
    "use_spot": ("nodes belong to the cluster", "see --qos and --requeue"),
    "disk_size": ("nodes have their disks", "see --tmp"),
    "disk_tier": ("nodes have their disks", ""),
    "network_tier": ("nodes have their fabric", ""),
    "local_disk": ("nodes have their disks", "see --tmp"),
    "instance_type": ("nodes belong to the cluster", "see --partition and --constraint"),
    "accelerator_args": ("nodes have their drivers", ""),
    "job_recovery": ("Slurm repeats a job only after its node failed", "see --requeue, and checkpoints"),
    "spot_recovery": ("Slurm repeats a job only after its node failed", "see --requeue, and checkpoints"),
    "autostop": ("nodes belong to the cluster", "groups of nodes can scale by themselves"),
    "labels": ("Slurm has no labels", "see --comment and --wckey"),
    "priority": ("Slurm computes priorities", "see --qos and --nice"),
    "priority_class": ("Slurm computes priorities", "see --qos and --nice"),
    "any_of": ("Slurm gives nodes of one kind", "name one kind of GPU"),
    "ordered": ("Slurm gives nodes of one kind", "name one kind of GPU"),
    "file_mounts": (
        "the job copies and mounts nothing",
        "put the files into a shared folder, or use a dataset: headway dataset",
    ),
    "storage_mounts": ("the job copies and mounts nothing", "use a dataset: headway dataset"),
    "volumes": ("volumes of clouds are not on the nodes", "put the files into a shared folder"),
    "workdir": ("sbatch copies no folder", "submit from this folder, or use headway run, which takes it along"),
    "event_callback": ("Slurm calls no program of yours", "see --mail-type"),
    "config": ("it is configuration of SkyPilot", ""),
    "experimental": ("it is configuration of SkyPilot", ""),
    "secrets": ("values of secrets are not copied", SECRET_REMEDY),
    "inputs": ("it belongs to SkyPilot's optimizer", ""),
    "outputs": ("it belongs to SkyPilot's optimizer", ""),
}
_SAME = {
    "cloud": "nodes belong to the cluster", "infra": "nodes belong to the cluster", "region": "nodes belong to the cluster",
    "zone": "nodes belong to the cluster",
}  # fmt: skip


def read_skypilot(reading: Reading, root: Field) -> Job:
    """Returns the job of a SkyPilot task: setup and run on each node."""
    job = reading.job
    if root["name"]:
        reading.set(root["name"].place, "job-name", root["name"].text())
    resources = root["resources"]
    if isinstance(resources.value, dict):
        _resources(reading, resources)
    for name, value in root["envs"].members():
        if value:
            reading.set_variable(value.place, name, value.text())
        elif is_secret(name):
            reading.lose(Place(value.path, name), "secrets are not passed on by the shell", SECRET_REMEDY)
        else:
            reading.same(Place(value.path, name), "sbatch passes the environment on")
    run, setup = root["run"].text().strip("\n"), root["setup"].text().strip("\n")
    if not run and not setup:
        raise root["run"].fault("is missing", "add the commands that the task runs")
    nodes = root["num_nodes"].number(1) or 1
    set_nodes(reading, root["num_nodes"].place, nodes)
    gpus = job.options.get("gpus-per-node", "0").rpartition(":")[2]
    ranks = (
        ("SKYPILOT_NODE_RANK", "$SLURM_NODEID"), ("SKYPILOT_NUM_NODES", "$SLURM_NNODES"), ("SKYPILOT_NUM_GPUS_PER_NODE", gpus),
        ("SKYPILOT_TASK_ID", "$SLURM_JOB_ID"),
    )  # fmt: skip
    if setup:
        reading.change(root["setup"].place, "it runs before run in each job", "install packages once: headway env")
    text = f"(\n{setup}\n) || exit\n{run}" if setup else run
    job.program = PerNode((Group("task", nodes, text),), _HEAD, ranks)
    root.lose_the_rest(_REASONS, _SAME)
    return job


def _resources(reading: Reading, resources: Field) -> None:
    accelerators = resources["accelerators"]
    if isinstance(accelerators.value, dict | list):
        if isinstance(accelerators.value, dict):
            kinds = [f"{name}:{count.text()}" if count else name for name, count in accelerators.members()]
        else:
            kinds = accelerators.words()
        accelerators.mark()
        set_gpus(reading, accelerators, kinds[0] if kinds else "1")
        if len(kinds) > 1:
            reading.change(accelerators.place, "the first kind of GPU is taken", "name one kind of GPU")
    elif accelerators:
        set_gpus(reading, accelerators, accelerators.text())
    for name, option in (("cpus", "cpus-per-task"), ("memory", "mem")):
        field = resources[name]
        text = field.text().strip()
        if not text:
            continue
        try:
            if text.endswith("x"):
                raise ValueError("is a multiple of the CPUs")
            amount = text.removesuffix("+")
            value = str(cpu_count(amount)) if name == "cpus" else slurm_memory(memory_mib(amount, default_unit="G"))
            reading.set(field.place, option, value)
        except ValueError as error:
            field.lose(str(error), f"write --{option} by hand")
    image = resources["image_id"]
    if isinstance(image.value, str) and image.value.startswith("docker:"):
        reading.job.image = image.text().removeprefix("docker:")
    elif image:
        image.lose("nodes have their image", "use a container: --container-image")


def set_gpus(reading: Reading, field: Field, text: str) -> None:
    """Carries H100, H100:8 or 8 as GPUs of each node. The kind becomes the type of the request."""
    kind, _, count = text.rpartition(":") if ":" in text else ("", "", text) if text.isdecimal() else (text, "", "1")
    number = re.sub(r"\.0$", "", count)
    try:
        whole = str(whole_number(number))
    except ValueError:
        field.lose("is no number of GPUs", "write --gpus-per-node by hand")
        return
    reading.set(field.place, "gpus-per-node", whole)
    if kind:
        reading.change(
            field.place,
            f"any GPU of the cluster is taken, not only {kind}",
            "write --gpus-per-node=TYPE:COUNT with the cluster's name",
        )
