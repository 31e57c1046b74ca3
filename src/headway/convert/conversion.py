"""Converts one file: recognises its format, reads it, and writes the target."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from headway.convert.formats import (
    MAX_BYTES,
    NAMES,
    SCRIPTS,
    Source,
    Target,
    check_templates,
    parse_document,
    recognise_document,
    recognise_script,
)  # fmt: skip
from headway.convert.job_description import Job, Loss, PerNode, Place, Program, RayProgram, Script, in_file_order
from headway.convert.readers.dstack import read_dstack
from headway.convert.readers.kubeflow import read_mpijob, read_pytorchjob
from headway.convert.readers.kubernetes_jobs import read_jobset, read_kubernetes_job
from headway.convert.readers.lsf import read_lsf
from headway.convert.readers.pbs import read_pbs
from headway.convert.readers.rayjob import read_rayjob
from headway.convert.readers.sagemaker import read_sagemaker
from headway.convert.readers.sge import read_sge
from headway.convert.readers.skypilot import read_skypilot
from headway.convert.readers.slurm import read_slurm
from headway.convert.reading_state import SECRET_REMEDY, Reading
from headway.convert.writers.jobset import write_jobset
from headway.convert.writers.pytorchjob import write_pytorchjob
from headway.convert.writers.rayjob import write_rayjob
from headway.convert.writers.sbatch import write_sbatch
from headway.convert.yaml_fields import Field, root_field
from headway.domain.access.credential_redaction import MASK, mask_script_text, mask_words, masked_lines
from headway.errors import Fault, InvalidSpec

_SCRIPT_READERS: Mapping[Source, Callable[[Reading, str], Job]] = {
    Source.PBS: read_pbs, Source.LSF: read_lsf, Source.SGE: read_sge, Source.SLURM: read_slurm,
}  # fmt: skip
_FIELD_READERS: Mapping[Source, Callable[[Reading, Field], Job]] = {
    Source.KUBERNETES: read_kubernetes_job, Source.JOBSET: read_jobset, Source.PYTORCHJOB: read_pytorchjob,
    Source.MPIJOB: read_mpijob, Source.RAYJOB: read_rayjob, Source.SKYPILOT: read_skypilot, Source.DSTACK: read_dstack,
    Source.SAGEMAKER: read_sagemaker,
}  # fmt: skip
_WRITERS: Mapping[Target, Callable[[Job], tuple[str, list[Loss]]]] = {
    Target.SLURM: write_sbatch, Target.JOBSET: write_jobset, Target.PYTORCHJOB: write_pytorchjob,
    Target.RAYJOB: write_rayjob,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Converted:
    """The result: its text, and what is not in it as the file says. `carried`: places of what is."""

    source: Source
    target: Target
    text: str
    losses: tuple[Loss, ...]
    carried: tuple[Place, ...]


def convert_file(
    data: bytes, *, source: Source | None = None, target: Target | None = None, image: str = ""
) -> Converted:
    """Returns the converted file. `source`: its format, None to recognise it. `target`: None for a Slurm script, and a JobSet
    for one. `image`: the container image, which overrides the file's. Raises InvalidSpec with line or field, and next
    step."""
    text = _decoded(data)
    if source is None:
        source = recognise_script(text)
    document = None if source in SCRIPTS else parse_document(text)
    if document is not None:
        source = source or recognise_document(document)
        check_templates(document)
    assert source is not None
    target = target or (Target.JOBSET if source is Source.SLURM else Target.SLURM)
    if source.value == target.value:
        raise InvalidSpec([Fault("", f"is a {NAMES[source]} already", "name another format: --to")], "the file")
    reading = Reading(NAMES[source])
    if document is None:
        job = _SCRIPT_READERS[source](reading, text)
    else:
        job = _FIELD_READERS[source](reading, root_field(document, reading))
    job.image = image or job.image
    return Converted(source, target, *write_job(reading, job, target), tuple(reading.carried))


def write_job(reading: Reading, job: Job, target: Target, *, is_masked: bool = False) -> tuple[str, tuple[Loss, ...]]:
    """Returns the text of a job that was read, without values of secrets, and what is not in it. `is_masked`: the program has
    no such values. Raises InvalidSpec."""
    if not is_masked:
        job.program = _without_secrets(reading, job.program)
    written, losses = _WRITERS[target](job)
    return written, tuple(in_file_order([*reading.losses, *losses]))


def _decoded(data: bytes) -> str:
    if len(data) > MAX_BYTES:
        raise InvalidSpec(
            [Fault("", f"is larger than {MAX_BYTES >> 20} MiB", "name a job file, not its data")], "the file"
        )
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InvalidSpec(
            [Fault(f"line {line}", "is not UTF-8 text", "convert it: iconv -f latin1 -t utf-8")], "the file"
        ) from None
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise InvalidSpec([Fault(f"line {line}", "has a zero byte, as no text has", "name a job file")], "the file")
    return text


def _without_secrets(reading: Reading, program: Program) -> Program:
    """Returns the program with the values of secrets masked, each a loss."""
    match program:
        case Script():
            masked = mask_script_text("\n".join(program.lines))
            before = masked_lines("\n".join(program.lines))
            for number, name in masked_lines(masked):
                if (number, name) not in before:
                    _lose_secret(reading, f"line {program.first_line + number - 1}", name)
            return replace(program, lines=tuple(masked.split("\n"))) if program.lines else program
        case PerNode():
            groups = []
            for group in program.groups:
                text = mask_script_text(group.text)
                for number, name in masked_lines(text):
                    _lose_secret(reading, f"line {number} of the commands", name)
                groups.append(replace(group, text=text, words=tuple(mask_words(group.words))))
            return replace(program, groups=tuple(groups))
        case RayProgram():
            text = mask_script_text(program.entrypoint)
            for _, name in masked_lines(text):
                _lose_secret(reading, "spec.entrypoint", name)
            return replace(program, entrypoint=text)


def _lose_secret(reading: Reading, where: str, name: str) -> None:
    reading.lose(Place(where, name), f"the name is that of a secret, so {MASK} stands for the value",
                 f"{SECRET_REMEDY}; read $HEADWAY_SECRETS_DIR/NAME")  # fmt: skip
