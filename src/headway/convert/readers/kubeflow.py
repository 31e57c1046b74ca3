"""Reads Kubeflow's PyTorchJob and MPIJob."""

from __future__ import annotations

import re

from headway.convert.job_description import Group, Job, PerNode, Place
from headway.convert.readers.pods import REASONS, SAME, Pod, read_pod, set_name, set_nodes, set_time_limit
from headway.convert.reading_state import Reading
from headway.convert.yaml_fields import Field

_MASTER = (
    ("MASTER_ADDR", '$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)'),
    ("MASTER_PORT", "$((10000 + SLURM_JOB_ID % 50000))"),
)
_REASONS = {
    **REASONS,
    "elasticPolicy": ("Slurm gives a fixed number of nodes", "see --nodes=MIN-MAX, and torchrun --nnodes=MIN:MAX"),
    "launcherCreationPolicy": ("all nodes of a job start at once", ""),
    "runLauncherAsWorker": ("the first node runs the launcher and tasks", ""),
}
_SAME = {
    **SAME,
    "sshAuthMountPath": "MPI programs start by srun, not by SSH",
    "mpiImplementation": "srun starts programs of each MPI",
}
_MPI_FLAGS = frozenset(
    {"--allow-run-as-root", "-allow-run-as-root", "--oversubscribe", "--tag-output", "--verbose", "-v", "-q"}
)
_MPI_VALUES = frozenset(
    [
        "-H",
        "--host",
        "-host",
        "--hostfile",
        "-hostfile",
        "--machinefile",
        "-machinefile",
        "-f",
        "-x",
        "-bind-to",
        "--bind-to",
        "-map-by",
        "--map-by",
        "-N",
        "-npernode",
        "--npernode",
        "-ppn",
        "--report-bindings-to",
        "-wdir",
        "--wdir",
        "-genv",
        "-rank-by",
        "--rank-by",
        "--prefix",
        "-output-filename",
    ]
)
_MPI_PAIRS = frozenset({"-mca", "--mca", "-genv", "-gmca", "--gmca"})


def read_pytorchjob(reading: Reading, root: Field) -> Job:
    """Returns the job of a PyTorchJob: a node for the master and for each worker."""
    set_name(reading, root)
    spec = root["spec"]
    set_time_limit(reading, spec["runPolicy"]["activeDeadlineSeconds"])
    replicas = spec["pytorchReplicaSpecs"]
    groups = [group for name in ("Master", "Worker") if (group := _replica(reading, replicas[name], name)) is not None]
    if not groups:
        raise replicas.fault("names neither Master nor Worker with replicas", "add spec.pytorchReplicaSpecs.Worker")
    if len({group.text for group in groups}) == 1:
        groups = [
            Group("Worker", sum(group.nodes for group in groups), groups[0].text, groups[0].words, groups[0].shell)
        ]
    nodes = sum(group.nodes for group in groups)
    set_nodes(reading, replicas.place, nodes)
    per_node = spec["nprocPerNode"].text("1")
    gpus = reading.job.options.get("gpus-per-node", "1")
    per_node = gpus if per_node in ("auto", "gpu") else "1" if per_node == "cpu" else per_node
    ranks = (
        ("RANK", "$SLURM_PROCID"), ("WORLD_SIZE", "$SLURM_NNODES"), ("PET_NNODES", "$SLURM_NNODES"),
        ("PET_NODE_RANK", "$SLURM_NODEID"), ("PET_NPROC_PER_NODE", per_node),
        ("PET_MASTER_ADDR", "$MASTER_ADDR"), ("PET_MASTER_PORT", "$MASTER_PORT"),
    )  # fmt: skip
    reading.job.program = PerNode(tuple(groups), _MASTER, ranks)
    root.lose_the_rest(_REASONS, _SAME)
    return reading.job


def _replica(reading: Reading, replica: Field, name: str) -> Group | None:
    count = replica["replicas"].number(1) if replica else 0
    return read_pod(reading, replica["template"]["spec"]).group(name, count) if count else None


def read_mpijob(reading: Reading, root: Field) -> Job:
    """Returns the job of an MPIJob: a node for each worker, and the launcher's mpirun as srun."""
    set_name(reading, root)
    spec = root["spec"]
    set_time_limit(reading, spec["runPolicy"]["activeDeadlineSeconds"])
    replicas = spec["mpiReplicaSpecs"]
    launcher, worker = replicas["Launcher"], replicas["Worker"]
    if not launcher:
        raise replicas.fault("names no Launcher", "add spec.mpiReplicaSpecs.Launcher")
    launcher["replicas"].same("one launcher runs")
    nodes = worker["replicas"].number(1) if worker else 1
    # The worker first: its resources are those of the nodes.
    if worker:
        read_pod(reading, worker["template"]["spec"], needs_command=False)
        for part in ("command", "args"):
            worker["template"]["spec"]["containers"][0][part].same(
                "srun starts the programs; workers need no SSH daemon"
            )
    pod = read_pod(reading, launcher["template"]["spec"])
    set_nodes(reading, replicas.place, nodes)
    slots = spec["slotsPerWorker"].number(1)
    reading.job.options["ntasks-per-node"] = str(slots)
    place = launcher["template"]["spec"]["containers"][0]["command"].place
    words = _without_mpirun(reading, place, pod, nodes * slots)
    reading.job.program = PerNode((Group("Worker", nodes, " ".join(words) or pod.text, tuple(words), pod.shell),))
    root.lose_the_rest(_REASONS, _SAME)
    return reading.job


def _without_mpirun(reading: Reading, place: Place, pod: Pod, slots: int) -> list[str]:
    """Returns the program that mpirun starts, so that srun can start it. A launcher of another kind runs as a whole."""
    words = list(pod.words) or _single_command(pod.text)
    if not words or re.sub(r".*/", "", words[0]) not in ("mpirun", "mpiexec", "horovodrun"):
        reading.change(place, "the launcher's text runs in each task", "start the MPI program with srun instead")
        return list(pod.words)
    del words[0]
    while words and words[0].startswith("-"):
        option = words.pop(0)
        name, equals, value = option.partition("=")
        if name in ("-n", "-np", "--np", "--n", "-c"):
            count = value if equals else words.pop(0) if words else ""
            if count.isdecimal() and int(count) != slots:
                reading.job.options["ntasks"] = count
                reading.job.options.pop("ntasks-per-node", None)
        elif name in _MPI_PAIRS:
            value = " ".join(words[:2])
            del words[:2]
            reading.lose(
                Place(place.where, f"{name} {value}"),
                "srun has no options of Open MPI",
                "set it as OMPI_MCA_NAME=VALUE",
            )
        elif name in _MPI_VALUES and not equals:
            value = words.pop(0) if words else ""
            if name == "-x":
                _exported(reading, Place(place.where, f"-x {value}"), value)
            else:
                reading.lose(
                    Place(place.where, f"{name} {value}"),
                    "srun places tasks by its own options",
                    "see --distribution and --cpu-bind",
                )
        elif name in _MPI_FLAGS:
            reading.same(Place(place.where, option), "srun does this")
        else:
            reading.lose(Place(place.where, option), "srun has no options of mpirun", "see the manual page of srun")
    reading.change(place, "srun starts the tasks, not mpirun", "")
    return words


def _exported(reading: Reading, place: Place, text: str) -> None:
    name, equals, value = text.partition("=")
    if equals:
        reading.set_variable(place, name, value)
    else:
        reading.same(place, "srun passes the environment on")


def _single_command(text: str) -> list[str]:
    """Returns the words of shell text that is one command, else []."""
    joined = re.sub(r"\\\n", " ", text.strip()).removeprefix("exec ")
    return joined.split() if joined and not re.search(r"[\n;|&<>(){}'\"`#]", joined) else []
