"""The form of the submit page: makes a request from it, and maps the request's faults to form fields. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields

from pydantic import BaseModel, ValidationError

from headway.errors import Fault
from headway.jobs.submission.requested_resources import add_flags, requested_resources
from headway.schemas.base import FaultOut
from headway.schemas.submission.job_flag import job_flags
from headway.schemas.submission.run_request import ContainerIn, RunIn
from headway.schemas.submission.submission_check import CheckJobIn, CheckJobOut
from headway.schemas.submission.submit_request import SubmitIn
from headway.services.jobs.clone import CloneSource
from headway.web.views.submit_page.script_lines import marked_lines

LAUNCHERS: tuple[tuple[str, str], ...] = (
    ("", "by the command's first word"),
    ("torchrun", "torchrun: one process per GPU, on all nodes"),
    ("srun", "srun: the command once per task"),
    ("mpi", "MPI: srun with PMIx, or mpirun"),
    ("ray", "Ray: one Ray of all nodes, the command on the first"),
    ("python", "python: one process, on the first node"),
)
EXAMPLE = """#!/bin/bash
#SBATCH --job-name=train
#SBATCH --nodes=1
#SBATCH --gpus-per-node=1
#SBATCH --time=01:00:00

srun python train.py
"""
_FLAGS = (("partition", "partition"), ("account", "account"), ("nodes", "nodes"), ("gpus", "gpus-per-node"), ("time", "time"),
          ("job_name", "job-name"))  # fmt: skip
_ENV = "env."  # prefix of a variable's name, in the name of its form field
# Field of a fault -> field of the form, if the names differ.
_AT = {"name": "job_name", "argv": "command", "memory": "gpus", "cpus": "nodes", "after": "flags",
       "team": "account", "container": "image"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class SubmitForm:
    """The form's values, all as text, so that an invalid number is shown again with its fault."""

    how: str = "script"  # script | command
    script: str = ""
    script_name: str = "script.sbatch"
    args: str = ""  # arguments of the script
    flags: str = ""  # further flags of sbatch
    chdir: str = ""
    command: str = ""
    launcher: str = ""
    tasks: str = ""
    image: str = ""
    environment: str = ""
    secrets: str = ""  # names
    partition: str = ""
    account: str = ""
    nodes: str = ""
    gpus: str = ""
    time: str = ""
    job_name: str = ""
    origin: str = ""  # the job that this one is cloned from, with its files and variables
    folder: str = ""  # the folder of that job, which the new one does not share
    copied: str = ""  # the number of the job that the form was filled with
    before: str = ""  # the values of that job, as `resubmission.copied_from` returns them
    env: Mapping[str, str] = field(default_factory=dict)  # variables of that job that were not stored (secrets)

    @staticmethod
    def of(values: Mapping[str, object]) -> SubmitForm:
        """Returns the draft from form fields."""
        names = [spec.name for spec in fields(SubmitForm) if spec.name != "env"]
        known = {name: str(values[name]) for name in names if isinstance(values.get(name), str)}
        text = known.get("script", "").replace("\r\n", "\n")  # browsers send CRLF line ends
        named = {**known, "script": text, "script_name": known.get("script_name") or "script.sbatch"}
        lost = {
            name.removeprefix(_ENV): str(values[name])
            for name in values
            if re.fullmatch(rf"{re.escape(_ENV)}[A-Za-z_]\w*", name)
        }
        texts = {name: value if name == "script" else value.strip() for name, value in named.items()}
        return SubmitForm(**texts, env=lost)

    @staticmethod
    def of_clone(source: CloneSource) -> SubmitForm:
        """Returns a form filled with another job, to be changed and submitted."""
        script = source.script
        return SubmitForm(script=script.text, script_name=script.name, args=shlex.join(script.script_args),
                     flags=shlex.join(script.sbatch_args), chdir=script.chdir, origin=str(source.job or ""),
                     folder=source.folder, env=dict.fromkeys(source.lost_secrets, ""))  # fmt: skip

    @property
    def shown(self) -> list[str]:
        """Returns the fields of the page that a fault can be shown at."""
        every = ["partition", "account", "nodes", "gpus", "time", "job_name"]
        if self.how == "command":
            return [*every, "command", "launcher", "tasks", "image", "environment", "secrets"]
        own = ["env"] if self.env else []
        # a cloned script has the lines of its environment, and its flags name its secrets
        own += [] if self.origin else ["environment", "secrets"]
        return [*every, "script", "args", "flags", *own, *([] if self.folder else ["chdir"])]

    @property
    def known(self) -> dict[str, str]:
        """Returns the options in the script's #SBATCH lines, shown as placeholders; of several components the first one's."""
        try:
            return requested_resources(SubmitIn(script=self.script))[0].options if self.how == "script" else {}
        except ValidationError:
            return {}


def request(draft: SubmitForm) -> tuple[CheckJobIn | None, list[FaultOut]]:
    """Returns (the request to check or send, its faults); the request is None if a field can't be read."""
    found = list(_unreadable(draft))
    if found:
        return None, [FaultOut(path=fault.path, message=fault.message, hint=fault.hint) for fault in found]
    try:
        return _request(draft), []
    except ValidationError as error:
        fields_of = {"script_args": "args", "args": "flags", "argv": "command"}
        wrong = [(str(detail["loc"][0]) if detail["loc"] else "", detail["msg"]) for detail in error.errors()]
        return None, [FaultOut(path=fields_of.get(field, field), message=message) for field, message in wrong]


def _request(draft: SubmitForm) -> CheckJobIn:
    if draft.how == "command":
        return CheckJobIn(run=_run(draft))
    flags = [f"--{flag}={value}" for name, flag in _FLAGS if (value := getattr(draft, name))]
    sent = SubmitIn(script=draft.script, script_name=draft.script_name, script_args=shlex.split(draft.args),
                    args=add_flags(shlex.split(draft.flags), flags), chdir=draft.chdir, env=dict(draft.env),
                    environment="" if draft.origin else draft.environment,
                    secrets=[] if draft.origin else _names(draft.secrets))  # fmt: skip
    return CheckJobIn(submit=sent)


def faults_by_field(faults: Sequence[FaultOut], how: str) -> dict[str, list[FaultOut]]:
    """Returns the faults by the form field at which they are shown."""
    names = {spec.name for spec in fields(SubmitForm)}
    found: dict[str, list[FaultOut]] = {}
    for fault in faults:
        at = _AT.get(fault.path, fault.path)
        at = at if at in names else ("script" if how == "script" else "command")
        if how == "command" and at in ("script", "args", "flags", "env"):
            at = "command"
        found.setdefault(at, []).append(fault)
    return found


def marks(draft: SubmitForm, checked: CheckJobOut) -> dict[int, str]:
    """Returns the lines of the script to mark, with their level."""
    names = ("nodes", "gpus", "time", "partition", "account")
    own = {name: getattr(draft, name) for name in names} | {"name": draft.job_name}
    return marked_lines(draft.script, checked.faults, checked.findings, own) if draft.how == "script" else {}


def _unreadable(draft: SubmitForm) -> list[Fault]:
    found = []
    for name in ("nodes", "gpus", "tasks"):
        value = getattr(draft, name)
        least = 0 if name == "gpus" else 1
        what = "GPUs" if name == "gpus" else name
        if re.fullmatch(r"-\d+|0+", value) and int(value) < least:
            found.append(Fault(name, f"the number of {what} must be at least {least}, not {value[:40]}"))
        elif value and not re.fullmatch(r"\d{1,6}", value):
            found.append(
                Fault(name, f"{value[:40]!r} is not a number of {what}", f"give a whole number of at least {least}")
            )
    for name in ("args", "flags", "command"):
        try:
            words = shlex.split(getattr(draft, name))
        except ValueError as error:
            found.append(Fault(name, f"can't be read: {str(error).lower()}", "a quote may be missing"))
            continue
        if name == "command" and draft.how == "command" and not words:
            found.append(Fault(name, "there is no command", "give one, for example torchrun train.py --epochs 3"))
    for name, value in draft.env.items():
        if not value:
            found.append(Fault("env", f"{name} is a secret and was not stored", "type its value again"))
    if draft.origin and not re.fullmatch(r"\d{1,9}", draft.origin):
        found.append(Fault("script", "this job does not exist", "start from the job's page"))
    if draft.launcher not in dict(LAUNCHERS):
        found.append(Fault("launcher", "this launcher does not exist"))
    return found


def _run(draft: SubmitForm) -> RunIn:
    container = _filled_in(draft, ContainerIn)
    secrets = _names(draft.secrets)
    fields = {**_filled_in(draft, RunIn), "secrets": secrets, "argv": shlex.split(draft.command)}
    return RunIn.model_validate({**fields, "container": container or None})


def _names(text: str) -> list[str]:
    return text.replace(",", " ").split()


def _filled_in(draft: SubmitForm, model: type[BaseModel]) -> dict[str, str]:
    """Returns the model's fields that are filled in on the form."""
    texts = {name: getattr(draft, flag.form) for name, (_, flag) in job_flags(model).items() if flag.form}
    return {name: text for name, text in texts.items() if text}
