"""Reads scripts of Slurm (#SBATCH), to write them as Kubernetes objects."""

from __future__ import annotations

from headway.convert.job_description import Job, Mount, Place, Script
from headway.convert.readers.pods import add_mount
from headway.convert.reading_state import UNKNOWN_OPTION, Reading
from headway.domain.slurm.sbatch_options import LONG, Option
from headway.lint.batch_text import BatchText


def read_slurm(reading: Reading, text: str) -> Job:
    """Returns the job of a Slurm script."""
    script = BatchText(text.replace("\r\n", "\n"))
    if "\r\n" in text:
        reading.change(Place("line 1", "CR LF"), "line ends of Windows become those of Linux")
    job = reading.job
    numbers = {directive.line for directive in script.directives}
    for directive in script.directives:
        for option in directive.options:
            read_option(reading, Place(f"line {directive.line}", " ".join(option.words)), option)
    first = script.lines[0] if script.lines else ""
    interpreter = first[2:].strip() if first.startswith("#!") else "/bin/bash"
    kept = [
        (number, line)
        for number, line in enumerate(script.lines, start=1)
        if number not in numbers and not (number == 1 and first.startswith("#!"))
    ]
    while kept and not kept[0][1].strip():
        kept.pop(0)
    job.program = Script(tuple(line for _, line in kept), interpreter, kept[0][0] if kept else 1)
    return job


def read_option(reading: Reading, place: Place, option: Option) -> None:
    """Carries an option of sbatch, or notes why it is lost."""
    job = reading.job
    if option.name not in LONG:
        reading.lose(place, *UNKNOWN_OPTION)
    elif option.name == "container-image":
        job.image = docker_name(option.value)
        reading.carry(place)
    elif option.name == "container-workdir":
        job.workdir = option.value
        reading.carry(place)
    elif option.name == "container-mounts":
        _mounts(reading, place, option.value)
    elif option.name == "export":
        _export(reading, place, option.value)
    else:
        reading.set(place, option.name, option.value)


def _mounts(reading: Reading, place: Place, text: str) -> None:
    for part in text.split(","):
        read_mount(reading, Place(place.where, f"--container-mounts={part}"), part)


def read_mount(reading: Reading, at: Place, text: str) -> None:
    """Carries a mount: SOURCE:TARGET:FLAGS."""
    source, _, rest = text.partition(":")
    target, _, flags = rest.partition(":")
    if not source.startswith("/"):
        reading.lose(at, "only folders of the node are carried", "add the volume by hand")
    else:
        reading.carry(at)
        add_mount(reading, at, Mount(source, target or source, "ro" in flags.split("+")))


def _export(reading: Reading, place: Place, text: str) -> None:
    for part in text.split(","):
        name, equals, value = part.partition("=")
        at = Place(place.where, f"--export={name}")
        if equals:
            reading.set_variable(at, name, value)
        elif part in ("ALL", "NONE", "NIL"):
            reading.lose(
                at, "the shell that submits has no environment for the pods", "name each variable that the job needs"
            )
        else:
            reading.lose(at, "its value is known only to the shell that submits", f"write --export={name}=VALUE")


def docker_name(image: str) -> str:
    """Returns an image's name as Kubernetes takes it: `nvcr.io/nvidia/pytorch:25.05` for `nvcr.io#nvidia/pytorch:25.05`."""
    return image.removeprefix("docker://").replace("#", "/", 1)
