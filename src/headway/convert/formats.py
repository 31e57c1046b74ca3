"""The formats that are read and written, and how the format of a file is recognised."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from headway.errors import Fault, InvalidSpec
from headway.validation.yaml_parser import parse_yaml

MAX_BYTES = 1 << 20
_DEEPEST = 50


class Source(StrEnum):
    """A format that is read."""

    PBS = "pbs"
    LSF = "lsf"
    SGE = "sge"
    SLURM = "slurm"
    KUBERNETES = "kubernetes"
    JOBSET = "jobset"
    PYTORCHJOB = "pytorchjob"
    MPIJOB = "mpijob"
    RAYJOB = "rayjob"
    SKYPILOT = "skypilot"
    DSTACK = "dstack"
    SAGEMAKER = "sagemaker"


class Target(StrEnum):
    """A format that is written."""

    SLURM = "slurm"
    JOBSET = "jobset"
    PYTORCHJOB = "pytorchjob"
    RAYJOB = "rayjob"


NAMES: Mapping[Source, str] = {
    Source.PBS: "PBS script", Source.LSF: "LSF script", Source.SGE: "Grid Engine script", Source.SLURM: "Slurm script",
    Source.KUBERNETES: "Kubernetes Job", Source.JOBSET: "JobSet", Source.PYTORCHJOB: "PyTorchJob", Source.MPIJOB: "MPIJob",
    Source.RAYJOB: "RayJob", Source.SKYPILOT: "SkyPilot task", Source.DSTACK: "dstack task",
    Source.SAGEMAKER: "SageMaker training job",
}  # fmt: skip
SCRIPTS = (Source.PBS, Source.LSF, Source.SGE, Source.SLURM)
_SIGNS = {
    Source.PBS: re.compile(r"^#PBS\s+-", re.MULTILINE),
    Source.LSF: re.compile(r"^#BSUB\s+-", re.MULTILINE),
    Source.SGE: re.compile(r"^#\$\s+-[a-zA-Z]", re.MULTILINE),
    Source.SLURM: re.compile(r"^#SBATCH\s", re.MULTILINE),
}
_KINDS = {
    "Job": Source.KUBERNETES, "JobSet": Source.JOBSET, "PyTorchJob": Source.PYTORCHJOB, "MPIJob": Source.MPIJOB,
    "RayJob": Source.RAYJOB,
}  # fmt: skip
_SKYPILOT = frozenset({"run", "setup", "num_nodes", "envs", "file_mounts", "workdir"})
_TEMPLATE = re.compile(r"(?<!\$)\{\{.*?\}\}|\{%.*?%\}")
_OPTIONS = ", ".join(Source)


def recognise_script(text: str) -> Source | None:
    """Returns the scheduler of a script, None for a text that is no script. Raises InvalidSpec for a script of several
    schedulers, or of none."""
    found = [source for source, sign in _SIGNS.items() if sign.search(text)]
    if len(found) == 1:
        return found[0]
    if found:
        names = " and ".join(NAMES[source].removesuffix(" script") for source in found)
        options = " or ".join(f"--from {source}" for source in found)
        raise _invalid("", f"has lines of {names}", f"say which ones count: {options}")
    if text.startswith("#!"):
        raise _invalid(
            "line 1", "is a script without #PBS, #BSUB, #$ or #SBATCH lines",
            "name the scheduler: --from pbs, lsf, sge or slurm; sbatch runs a script without such lines as it is",
        )  # fmt: skip
    return None


def parse_document(text: str) -> dict[str, Any]:
    """Returns the fields of a YAML or JSON file. Raises InvalidSpec with line and next step."""
    if not text.strip():
        raise _invalid("line 1", "is empty", "name a job file")
    if text.lstrip().startswith("{") and not text.lstrip().startswith("{{"):
        try:
            return _parse_json(text)
        except json.JSONDecodeError as error:
            raise _invalid(
                f"line {error.lineno}", f"not JSON: {error.msg}", "check the quotes and commas there"
            ) from None
    try:
        return parse_yaml(text, "the file")
    except InvalidSpec as error:
        template = _template_line(text)
        if template is not None:
            raise template from None
        fault = error.faults[0]
        if "second YAML document" in fault.message:
            remedy = "put each job into a file of its own, and leave out objects that are no jobs"
            raise _invalid(fault.path, fault.message, remedy) from None
        if fault.message == "is not a mapping of fields":
            raise _invalid(
                "line 1", "is neither a script nor a job file", f"name a file of one of these: {_OPTIONS}"
            ) from None
        if not fault.hint:
            raise _invalid(fault.path, fault.message, "name a job file, and check its text there") from None
        raise


def _parse_json(text: str) -> dict[str, Any]:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            names = [name for name, _ in pairs]
            twice = next(name for name in names if names.count(name) > 1)
            raise _invalid("", f"{twice[:60]!r} is given twice in one object", "remove one")
        return found

    try:
        found = json.loads(text, object_pairs_hook=unique)
    except RecursionError:
        raise _invalid("", f"nested more than {_DEEPEST} levels deep", "name a job file") from None
    except ValueError as error:
        if isinstance(error, json.JSONDecodeError):
            raise
        raise _invalid("", "has a number with too many digits", "correct the number") from None
    if _depth_exceeds(found, _DEEPEST):
        raise _invalid("", f"nested more than {_DEEPEST} levels deep", "name a job file")
    assert isinstance(found, dict)
    return found


def _depth_exceeds(value: Any, most: int) -> bool:
    stack = [(value, 0)]
    while stack:
        found, depth = stack.pop()
        if depth > most:
            return True
        members = found.values() if isinstance(found, dict) else found if isinstance(found, list) else ()
        stack += [(member, depth + 1) for member in members]
    return False


def recognise_document(document: Mapping[str, Any]) -> Source:
    """Returns the format of a YAML or JSON file by its fields. Raises InvalidSpec for unknown and ambiguous ones."""
    if "kind" in document or "apiVersion" in document:
        kind = document.get("kind")
        if not isinstance(kind, str) or kind not in _KINDS:
            shown = str(kind)[:60] if kind is not None else "no kind"
            raise _invalid("kind", f"{shown} is no job that headway convert reads", f"it reads {', '.join(_KINDS)}")
        return _KINDS[kind]
    if "TrainingJobName" in document or "AlgorithmSpecification" in document:
        return Source.SAGEMAKER
    is_dstack = "type" in document
    is_skypilot = bool(_SKYPILOT & document.keys())
    if is_dstack and is_skypilot:
        raise _invalid("", "has fields of dstack and of SkyPilot", "say which it is: --from dstack or --from skypilot")
    if is_dstack or "commands" in document:
        return Source.DSTACK
    if is_skypilot:
        return Source.SKYPILOT
    raise _invalid("", "has fields of no known job file", f"name the format: --from with one of {_OPTIONS}")


def check_templates(document: Mapping[str, Any]) -> None:
    """Raises InvalidSpec if a field outside of commands is a template that was not filled in."""
    stack: list[tuple[Any, str]] = [(dict(document), "")]
    while stack:
        value, path = stack.pop()
        if isinstance(value, dict):
            stack += [(member, f"{path}.{name}".removeprefix(".")) for name, member in value.items()]
        elif isinstance(value, list):
            stack += [(member, f"{path}[{number}]") for number, member in enumerate(value)]
        elif (
            isinstance(value, str)
            and "\n" not in value
            and not re.search(r"\b(commands?|args|run|setup|entrypoint)\b", path)
        ):
            found = _TEMPLATE.search(value)
            if found:
                raise _invalid(
                    path, f"is a template: {found[0][:60]}", "fill it in first, for example with helm template"
                )


def _template_line(text: str) -> InvalidSpec | None:
    for number, line in enumerate(text.split("\n"), start=1):
        found = _TEMPLATE.search(line)
        if found:
            return _invalid(
                f"line {number}", f"is a template: {found[0][:60]}", "fill it in first, for example with helm template"
            )
    return None


def _invalid(path: str, message: str, hint: str) -> InvalidSpec:
    return InvalidSpec([Fault(path, message, hint)], "the file")
