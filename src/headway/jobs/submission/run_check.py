"""Checks of `headway run` that its sbatch options do not have: the command, the launcher, the container, and what the cluster
has. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import replace

from headway.catalog.node_images import slurm_release
from headway.domain.cluster import Cluster
from headway.errors import Fault
from headway.jobs.submission.launcher_choice import by_mpirun, launcher_of
from headway.jobs.submission.node_capacity import NodeCapacity, largest_node
from headway.jobs.submission.requested_resources import requested_resources
from headway.jobs.submission.software_environment import environment_faults
from headway.jobs.submission.stage_in import stage_faults
from headway.schemas.submission.run_request import ContainerIn, RunIn
from headway.schemas.submission.submit_request import SubmitIn

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_WORD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
_TIME = re.compile(r"(\d+-)?\d+(:\d+){0,2}|UNLIMITED", re.IGNORECASE)
# A condition of --after: what another job must have done.
AFTER = re.compile(r"(ok|any|notok|start):(\d+)(_\d+)?")
_ENV = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LONGEST_COMMAND = 100_000  # bytes; Linux takes 128 KiB in one variable


def run_faults(run: RunIn, cluster: Cluster, offer: NodeCapacity | None = None) -> list[Fault]:
    """Returns what is wrong with the run, each fault with its field of RunIn."""
    named = {"--team": "account", "--launcher": "launcher", "": "argv"}
    found = option_faults(run, cluster, run.launcher or launcher_of(run.argv[0]), offer)
    return [replace(fault, path=named.get(fault.path, fault.path.removeprefix("--"))) for fault in found]


def option_faults(run: RunIn, cluster: Cluster, launcher: str, offer: NodeCapacity | None) -> list[Fault]:
    """Returns what is wrong with the run, each fault with its option of `headway run`."""
    return list(_faults(run, cluster, launcher, offer))


def _faults(run: RunIn, cluster: Cluster, launcher: str, offer: NodeCapacity | None) -> Iterator[Fault]:
    if run.name and not _NAME.fullmatch(run.name):
        yield Fault("--name", f"{run.name!r} is not a valid job name", "use letters, digits, dots, - and _")
    if run.time and not _TIME.fullmatch(run.time):
        yield Fault("--time", f"{run.time!r} is not a time limit", "give minutes, HH:MM:SS or D-HH:MM:SS")
    for word in run.after:
        if not AFTER.fullmatch(word):
            yield Fault("--after", f"{word[:60]!r} is not a condition", "use ok:123, notok:123, any:123 or start:123")
    for name in run.env:
        if not _ENV.fullmatch(name):
            yield Fault("--env", f"{name[:60]!r} is not a valid variable name", "use letters, digits and _")
    image = [f"--container-image={run.container.image}"] if run.container else []
    wants = requested_resources(SubmitIn(args=[*image, *run.sbatch]))
    yield from stage_faults(run.stage_in, wants)
    yield from environment_faults(run.environment, wants)
    yield from _cluster_faults(run, cluster, offer or largest_node(cluster))
    if run.warn and launcher == "mpi" and by_mpirun(run):
        yield Fault(
            "--warn",
            "Slurm's warning signal does not reach the ranks that mpirun starts",
            "leave mpirun out: srun starts them",
        )
    if launcher == "mpi" and not by_mpirun(run) and slurm_release(cluster.slurm_version).mpi_plugin != "pmix":
        what = f"srun has no PMIx with {cluster.image}'s Slurm {cluster.slurm_version}: each rank would run as a separate program"
        yield Fault("--launcher", what, "start them with mpirun: headway run -- mpirun PROGRAM")
    if launcher == "ray" and run.tasks:
        yield Fault("--tasks", "Ray starts its own workers", "leave --tasks out")
    if launcher == "mpi" and run.container and by_mpirun(run):
        yield Fault("--launcher", "mpirun can't start tasks in a container", "leave mpirun out: srun starts them")
    words = [*run.argv, *run.env.values(), *run.sbatch]
    if any("\0" in word for word in words):
        yield Fault("", "an argument contains a NUL byte")
    if len(shlex.join(run.argv).encode()) > _LONGEST_COMMAND:
        hint = "write the arguments into a file that the job reads"
        yield Fault("", f"the command has more than {_LONGEST_COMMAND} bytes", hint)
    if any("\n" in word for word in _container_words(run.container)):
        yield Fault("--container", "an argument contains a line break")


def _cluster_faults(run: RunIn, cluster: Cluster, offer: NodeCapacity) -> Iterator[Fault]:
    most = len(cluster.slots)
    if run.gpus > offer.gpus:
        has = f"no node of {cluster.name} has more than {offer.gpus} GPUs"
        yield Fault(
            "--gpus",
            f"the job requests {run.gpus} GPUs per node; {has}",
            "--gpus is the number per node: give fewer and add --nodes",
        )
    names = [partition.name for partition in cluster.partitions]
    if run.partition and (not _WORD.fullmatch(run.partition) or run.partition not in names):
        yield Fault("--partition", f"{cluster.name} has no partition {run.partition!r}", f"it has {', '.join(names)}")
    elif run.nodes > most:
        yield Fault("--nodes", f"the job requests {run.nodes} nodes; {cluster.name} has {cluster.nodes}")
    teams = [team.name for team in cluster.teams]
    if run.team and run.team not in teams:
        yield Fault("--team", f"{cluster.name} has no team {run.team!r}", f"it has {', '.join(teams)}")


def _container_words(container: ContainerIn | None) -> list[str]:
    if container is None:
        return []
    return [container.image, container.workdir, container.name, *container.mounts]
