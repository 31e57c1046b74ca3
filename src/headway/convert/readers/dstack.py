"""Reads dstack's task configurations."""

from __future__ import annotations

import re

from headway.convert.job_description import Group, Job, Mount, PerNode, Place
from headway.convert.quantities import duration_seconds, memory_mib, slurm_memory, slurm_time, whole_number
from headway.convert.readers.pods import add_mount, set_nodes
from headway.convert.reading_state import LOGIN_REMEDY, SECRET_REMEDY, Reading
from headway.convert.yaml_fields import Field
from headway.domain.access.credential_redaction import is_secret

_HEAD = (
    ("DSTACK_NODES_IPS", '$(scontrol show hostnames "$SLURM_JOB_NODELIST")'),
    ("DSTACK_MASTER_NODE_IP", '$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)'),
)
_REASONS = {
    "ports": ("the job has the node's network", "reach a port by ssh -L"),
    "repos": ("sbatch copies no folder", "submit from this folder, or use headway run, which takes it along"),
    "files": ("sbatch copies no files", "submit from this folder, or use headway run, which takes it along"),
    "registry_auth": ("credentials of registries are the user's", LOGIN_REMEDY),
    "retry": ("Slurm repeats a job only after its node failed", "see --requeue, and headway job retry"),
    "disk": ("nodes have their disks", "see --tmp"),
    "python": ("nodes have their Python", "make an environment: headway env, and name it in the script: module load"),
    "nvcc": ("nodes have their compilers", "use a container: --container-image"),
    "priority": ("Slurm computes priorities", "see --qos and --nice"),
    "max_price": ("nodes belong to the cluster", "budgets of teams are in the cluster file"),
    "utilization_policy": ("idle GPUs do not end a job", "headway job shows their use"),
    "schedule": ("Slurm starts no job again and again", "see scrontab"),
    "privileged": ("a job runs as the user who submits it", ""),
    "user": ("a job runs as the user who submits it", "see --container-remap-root"),
    "entrypoint": ("the commands run without it", "call it in the commands"),
    "tags": ("Slurm has no labels", "see --comment and --wckey"),
    "instances": ("nodes belong to the cluster", "see --nodelist"),
    "volumes": ("volumes of dstack are not on the nodes", "put the files into a shared folder"),
    "docker": ("jobs start no Docker", "use a container: --container-image"),
    "idle_duration": ("nodes belong to the cluster", "groups of nodes can scale by themselves"),
    "stop_criteria": ("the job ends with its first task", ""),
    "working_dir": ("sbatch starts in the folder of submission", "see --chdir"),
    "gpu_compute": ("any GPU of the cluster is taken", "see --constraint"),
    "single_branch": ("sbatch copies no folder", ""),
}  # fmt: skip
_SAME = {
    "type": "it says that this is a task", "backends": "nodes belong to the cluster", "regions": "nodes belong to the cluster",
    "fleets": "nodes belong to the cluster", "spot_policy": "nodes belong to the cluster",
    "instance_types": "nodes belong to the cluster", "availability_zones": "nodes belong to the cluster",
    "reservation": "nodes belong to the cluster", "creation_policy": "nodes belong to the cluster",
    "shm_size": "jobs have shared memory up to their memory limit", "stop_duration": "the cluster's KillWait says it",
    "home_dir": "jobs have the user's home", "shell": "commands run in bash",
}  # fmt: skip


def read_dstack(reading: Reading, root: Field) -> Job:
    """Returns the job of a dstack task: its commands on each node. Raises InvalidSpec for other types than tasks."""
    kind = root["type"]
    if kind.value != "task":
        remedy = (
            "start a notebook: headway notebook"
            if kind.value == "dev-environment"
            else "convert a file with type: task"
        )
        raise kind.fault(f"{kind.value} is no job that ends", remedy)
    job = reading.job
    if root["name"]:
        reading.set(root["name"].place, "job-name", root["name"].text())
    _variables(reading, root["env"])
    resources = root["resources"]
    _gpus(reading, resources["gpu"])
    for field, option in ((resources["cpu"], "cpus-per-task"), (resources["memory"], "mem")):
        _amount(reading, field, option)
    _time(reading, root["max_duration"])
    job.image = root["image"].text()
    workdir = root["working_dir"]
    if workdir and job.image:
        job.workdir = workdir.text()
    elif workdir and workdir.text() in (".", "./"):
        workdir.same("sbatch starts in the folder of submission")
    elif workdir:
        reading.set(workdir.place, "chdir", workdir.text())
    for volume in root["volumes"].items():
        if isinstance(volume.value, str) and volume.value.startswith("/") and volume.value.count(":") == 1:
            source, _, target = volume.text().partition(":")
            add_mount(reading, volume.place, Mount(source, target))
    commands = [_without_interpolation(reading, command) for command in root["commands"].items()]
    if not commands:
        raise root["commands"].fault("is missing; the file does not say which program the image starts", "add commands")
    nodes = root["nodes"].number(1) or 1
    set_nodes(reading, root["nodes"].place, nodes)
    gpus = job.options.get("gpus-per-node", "0")
    ranks = (
        ("DSTACK_NODE_RANK", "$SLURM_NODEID"), ("DSTACK_NODES_NUM", "$SLURM_NNODES"), ("DSTACK_GPUS_PER_NODE", gpus),
        ("DSTACK_GPUS_NUM", f"$((SLURM_NNODES * {gpus}))"), ("DSTACK_RUN_NAME", "$SLURM_JOB_NAME"),
    )  # fmt: skip
    # dstack ends a task at the first command that fails.
    job.program = PerNode((Group("task", nodes, "\n".join(["set -e", *commands])),), _HEAD, ranks)
    root.lose_the_rest(_REASONS, _SAME)
    return job


def _without_interpolation(reading: Reading, command: Field) -> str:
    text = command.text()
    for found in dict.fromkeys(re.findall(r"\$\{\{.*?\}\}", text)):
        reading.lose(command.place, f"{found} is filled in by dstack", "write the value, or the script's argument $1")
    return text


def _variables(reading: Reading, env: Field) -> None:
    pairs = [(name, value, value.value) for name, value in env.members()] if isinstance(env.value, dict) else []
    if isinstance(env.value, list):
        for item in env.items():
            name, equals, value = item.text().partition("=")
            pairs.append((name, item, value if equals else None))
    for name, field, found in pairs:
        text = "" if found is None else field.text() if isinstance(env.value, dict) else str(found)
        if found is None:
            if is_secret(name):
                reading.lose(Place(field.path, name), "secrets are not passed on by the shell", SECRET_REMEDY)
            else:
                reading.same(Place(field.path, name), "sbatch passes the environment on")
        elif "${{" in text:
            reading.lose(field.place, "it is filled in by dstack", SECRET_REMEDY)
        else:
            reading.set_variable(field.place, name, text)


def _gpus(reading: Reading, field: Field) -> None:
    """Carries 8, H100, H100:8, H100:80GB:8, 24GB..:2, or a mapping with count."""
    if isinstance(field.value, dict):
        count, text = field["count"], field["count"].text("1")
        for name in ("name", "memory", "vendor", "compute_capability", "total_memory"):
            field[name].lose(
                "any GPU of the cluster is taken", "write --gpus-per-node=TYPE:COUNT with the cluster's name"
            )
    elif field:
        count, parts = field, field.text().split(":")
        text = next((part for part in reversed(parts) if re.fullmatch(r"\d+(\.\.\d*)?", part)), "1")
        if parts != [text]:
            reading.change(
                field.place,
                "any GPU of the cluster is taken",
                "write --gpus-per-node=TYPE:COUNT with the cluster's name",
            )
    else:
        return
    least, dots, _ = text.partition("..")
    if not least.isdecimal():
        (count or field).lose("is no number of GPUs", "write --gpus-per-node by hand")
        return
    if int(least):
        reading.set((count or field).place, "gpus-per-node", least)
    else:
        reading.same((count or field).place, "no GPU is requested")
    if dots:
        reading.change((count or field).place, "Slurm gives a fixed number: the least one")


def _amount(reading: Reading, field: Field, option: str) -> None:
    if not field:
        return
    least = field["min"].text() or field["count"].text() if isinstance(field.value, dict) else field.text()
    least, dots, most = least.rpartition(":")[2].partition("..")
    try:
        value = (
            str(whole_number(least)) if option == "cpus-per-task" else slurm_memory(memory_mib(least, default_unit="G"))
        )
    except ValueError as error:
        if dots and not least:
            reading.same(field.place, "no least amount is requested")
        else:
            field.lose(str(error), f"write --{option} by hand")
        return
    reading.set(field.place, option, value)
    if dots and most:
        reading.change(field.place, "Slurm gives a fixed amount: the least one")


def _time(reading: Reading, field: Field) -> None:
    if not field:
        return
    text = field.text()
    if text in ("off", "-1", "false"):
        reading.same(field.place, "the partition's limit holds")
        return
    try:
        reading.set(field.place, "time", slurm_time(float(text) if text.isdecimal() else duration_seconds(text)))
    except ValueError as error:
        field.lose(str(error), "write --time by hand")
