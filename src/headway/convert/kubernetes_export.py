"""Objects of Kubernetes for a job that has run, or for a service, sized from what they have used."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from headway.convert.conversion import write_job
from headway.convert.formats import Target
from headway.convert.job_description import Job, Loss, Place, Served, Used, in_file_order
from headway.convert.readers.launcher_script import is_launcher_script, launcher, lose_parts, plain_script
from headway.convert.readers.service_file import read_service
from headway.convert.readers.slurm import read_option, read_slurm
from headway.convert.reading_state import Reading
from headway.convert.writers.pod_template import REASONS, PodWriter
from headway.convert.writers.serving import write_deployment, write_inference_service, write_ray_service
from headway.domain.access.credential_redaction import MASK, mask_words, masked_lines, masked_names
from headway.domain.slurm.sbatch_options import parse_options
from headway.errors import Fault, InvalidSpec

RESERVE = 1.25  # of processors and memory, above what was used
_MIB_STEP = 1024


class Kind(StrEnum):
    """The kind of object that is written."""

    JOBSET = "jobset"
    PYTORCHJOB = "pytorchjob"
    RAYJOB = "rayjob"
    DEPLOYMENT = "deployment"
    INFERENCESERVICE = "inferenceservice"
    RAYSERVICE = "rayservice"


OF_JOBS = (Kind.JOBSET, Kind.PYTORCHJOB, Kind.RAYJOB)
OF_SERVICES = (Kind.DEPLOYMENT, Kind.INFERENCESERVICE, Kind.RAYSERVICE)
_SERVICE_WRITERS: Mapping[Kind, Callable[[Job, Served], tuple[str, list[Loss]]]] = {
    Kind.DEPLOYMENT: write_deployment, Kind.INFERENCESERVICE: write_inference_service, Kind.RAYSERVICE: write_ray_service,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Exported:
    """Objects as YAML, and what of the job or service is not in them. `used`: what each pod requests of processors and memory,
    None if no use is known."""

    kind: Kind
    text: str
    losses: tuple[Loss, ...]
    used: Used | None


@dataclass(frozen=True, slots=True)
class RunUse:
    """What a run of a job has used on all its nodes: seconds of processors, and the most memory of a step."""

    nodes: int
    elapsed_s: int
    cpu_s: int
    memory_mib: int


def used_per_node(runs: Iterable[RunUse]) -> Used | None:
    """Returns what the runs have used of each node: the mean of processors, and the mean memory of a node in the largest step, of
    the run with the most, and a quarter more. None if nothing is recorded."""
    found = [run for run in runs if run.memory_mib and run.elapsed_s and run.nodes]
    if not found:
        return None
    cpus = max(run.cpu_s / run.elapsed_s / run.nodes for run in found)
    memory = max(run.memory_mib / run.nodes for run in found)
    return Used(max(1, -int(-cpus * RESERVE // 1)), -int(-memory * RESERVE // _MIB_STEP) * _MIB_STEP)


def export_job(
    script: str,
    arguments: Sequence[str],
    flags: Sequence[str],
    environment: Mapping[str, str],
    *,
    kind: Kind | None,
    image: str,
    queue: str,
    used: Used | None,
) -> Exported:
    """Returns the object of a job. `arguments`: of its script; `flags`: of its sbatch; `environment`: given with the
    job; `kind`: None for a RayJob if its launcher is Ray, else a JobSet. Raises InvalidSpec."""
    words = mask_words(arguments)
    reading = Reading("job")
    _lose_secrets(reading, [Place("arguments", name) for name in masked_names(words)])
    by_ray, is_made = False, is_launcher_script(script)
    if is_made:
        by_ray = launcher(script) == "ray"
        lose_parts(reading, script, environment)
        script, words = plain_script(script, words), []
        reading.change(Place("", "the job's folder"), "pods have the image's files", "build the image with the files")
    else:  # the server has masked it already; its directives are read below
        lines = script.split("\n")
        found = [(at, name) for at, name in masked_lines(script) if not lines[at - 1].startswith("#SBATCH")]
        _lose_secrets(reading, [Place(f"line {at}", name) for at, name in found])
    kind = kind or (Kind.RAYJOB if by_ray else Kind.JOBSET)
    if kind not in OF_JOBS:
        raise _wrong_kind(kind, "a job", OF_JOBS)
    job = read_slurm(reading, script)
    for option in parse_options(flags):
        read_option(reading, Place("sbatch", " ".join(option.words)), option)
    for name, value in environment.items():
        reading.set_variable(Place(f"variable {name}", name), name, value)
    if words:
        job.preamble.append(f"set -- {shlex.join(words)}")
    _complete(job, image, queue, used)
    text, losses = write_job(reading, job, Target(kind), is_masked=is_made)
    return Exported(kind, text, losses, PodWriter(job, []).requested())


def export_service(
    document: Mapping[str, Any], *, kind: Kind | None, image: str, queue: str, used: Used | None
) -> Exported:
    """Returns the objects of a service. `document`: its file; `kind`: None for a Deployment. Raises InvalidSpec."""
    kind = kind or Kind.DEPLOYMENT
    if kind not in OF_SERVICES:
        raise _wrong_kind(kind, "a service", OF_SERVICES)
    reading = Reading("service")
    job, served = read_service(reading, document)
    words = mask_words(served.words)
    _lose_secrets(reading, [Place("run", name) for name in masked_names(words)])
    _complete(job, image, queue, used)
    text, losses = _SERVICE_WRITERS[kind](job, replace(served, words=tuple(words)))
    found = tuple(in_file_order([*reading.losses, *losses]))
    return Exported(kind, text, found, PodWriter(job, []).requested())


def _complete(job: Job, image: str, queue: str, used: Used | None) -> None:
    job.image, job.queue, job.used = image or job.image, queue, used


def _lose_secrets(reading: Reading, places: Iterable[Place]) -> None:
    for place in places:
        reading.lose(place, f"the name is that of a secret, so {MASK} stands for the value", REASONS["secret"][1])


def _wrong_kind(kind: Kind, what: str, kinds: Sequence[Kind]) -> InvalidSpec:
    return InvalidSpec(
        [Fault("--kind", f"{kind} is no object for {what}", f"one of {', '.join(kinds)}")], "the request"
    )
