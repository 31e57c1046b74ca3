"""Submits, cancels and runs commands as the user: the real sbatch and scancel on the head, never as root."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import PurePosixPath
from typing import Any

from headway.domain.machines.machine import Machine
from headway.domain.slurm.accounts import OPERATOR
from headway.domain.slurm.sbatch_options import DOS_LINES_HINT, parse_options, script_options
from headway.errors import CommandFailed, Fault, NotAllowed, NotFound, Refused, Unanswered
from headway.jobs.remote.user_helper import REFUSED_CODE as PROGRAM_REFUSED
from headway.jobs.remote.user_helper import HelperConnections, call_helper, helper_argv, helper_error
from headway.jobs.submission.requested_resources import requested_resources
from headway.jobs.submission.user_script_lines import insert_arguments
from headway.schemas.submission.submit_request import SubmitIn, SubmitOut
from headway.slurm.commands_as_user import CONTROL_VERBS, control_argv, scancel_argv
from headway.transport.process import CommandResult

SUBMIT_S = 60.0
BUNDLE_S = 300.0
_SUBMITTED = re.compile(r"^Submitted batch job (\d+)", re.MULTILINE)
_PARSABLE = re.compile(r"^(\d+)(?:;\S+)?$", re.MULTILINE)
_UNSURE = (
    "timed out on send/recv",
    "Zero Bytes were transmitted",
    "Unexpected message received",
)  # the same as in node/user_helper/idempotency.py
_NOBODY_KNOWS = 98  # exit code of node/user_helper/idempotency.py: an earlier run with this tag was cut off
_SIGNALLED = range(128, 193)  # 128 + the number of a signal, as in a shell; sbatch uses 255 for a bad option
_LONGEST_OUTPUT = 8 * 1024 * 1024  # bytes of a command's answer, which is kept in memory whole, as JSON, and compressed
MAX_SCRIPT_BYTES = 4 * 1024 * 1024  # Slurm's own limit (max_script_size)


@dataclass(frozen=True)
class CheckpointLink:
    """A checkpoint of an earlier job, `name` in folder `source`, that a new job begins with in its folder `target`."""

    source: str
    name: str
    target: str


@dataclass(frozen=True)
class JobFiles:
    """Files that are put on the shared storage before sbatch runs: the job's copy of a bundle ("" means an empty
    folder), small files that are written once, and a checkpoint to resume from."""

    root: str
    bundle: str
    work: str
    files: Mapping[str, str] = field(default_factory=dict)
    resume: CheckpointLink | None = None


async def run_sbatch(
    links: HelperConnections, head: Machine, request: SubmitIn, user: str, stage: JobFiles | None = None, tag: str = ""
) -> SubmitOut:
    """Runs sbatch as `user`, through a login shell, in the requested folder or their home, after `stage` is in place.
    A request that is repeated with the same `tag` gets the first answer: sbatch runs once for a tag.

    `job_id` is 0 when sbatch did what was requested without submitting (--test-only, --help). Raises Refused with
    sbatch's own words, NotFound for an unknown user, NotAllowed for a user who has left, and Unanswered when it is not
    known whether the job was submitted: nothing is ever sent a second time."""
    _check(request)
    script, arguments = insert_arguments(request.script or "", request.script_args)
    helper_request: dict[str, Any] = {
        "do": "sbatch",
        "user": user,
        "args": _flags(request),
        "cwd": request.chdir,
        "script_name": script_name(request.script_name),
        "script_args": arguments,
        "has_script": request.script is not None,
    }
    if tag:
        helper_request["tag"] = tag
    if request.env:
        helper_request["env"] = dict(request.env)
    if stage is not None:
        helper_request["stage"] = {**asdict(stage), "files": dict(stage.files)}
    text = script.encode()
    if len(text) > MAX_SCRIPT_BYTES:
        raise Refused(
            f"the script and its arguments have {len(text)} bytes; Slurm takes at most {MAX_SCRIPT_BYTES}",
            hint="move data into files and submit them with --with-files",
        )
    ran = await _once(links, head, helper_request, text)
    output = "\n".join(part for part in (ran.stdout.strip(), ran.stderr.strip()) if part)
    if ran.code != 0:
        raise Refused(output or f"sbatch ended with exit code {ran.code} and printed nothing")
    found = _SUBMITTED.search(ran.stdout) or _PARSABLE.search(ran.stdout)
    return SubmitOut(
        job_id=int(found[1]) if found else 0,
        cluster=head.cluster,
        user=user,
        workdir=request.chdir or "~",
        message=output,
    )


async def _once(links: HelperConnections, head: Machine, request: dict[str, Any], script: bytes) -> CommandResult:
    """Returns the result of sbatch. Raises Unanswered when it is not known what sbatch had done before it was cut
    off."""
    why = ""
    try:
        ran = await call_helper(links, head, request, timeout_s=SUBMIT_S, data=script)
        if ran.code == _NOBODY_KNOWS or (ran.code and any(word in ran.stderr for word in _UNSURE)):
            why = ran.stderr.strip()
        elif ran.code not in _SIGNALLED:
            return ran
        else:
            why = f"sbatch was ended by signal {ran.code - _SIGNALLED.start}"
    except Unanswered as error:
        why = error.message
    except CommandFailed:
        why = f"no answer within {SUBMIT_S:g} s"
    raise Unanswered(
        f"{head.name} did not report whether the job is submitted: {why}",
        hint=f"check headway queue {head.cluster} before you submit the job again; Headway did not submit it twice",
    )


async def store_bundle(
    links: HelperConnections, head: Machine, user: str, root: str, digest: str, archive: bytes
) -> bool:
    """Stores the user's bundle on the cluster and returns whether it is stored; an empty archive only checks.
    Raises Refused when it can't be stored."""
    request = {"do": "bundle", "user": user, "root": root, "digest": digest}
    ran = await call_helper(links, head, request, timeout_s=BUNDLE_S, data=archive)
    if ran.code != 0:
        raise CommandFailed(["bundle", digest], ran.code, ran.stderr, where=head.name)
    return bool(json.loads(ran.stdout)["present"])


async def cancel_jobs(
    links: HelperConnections,
    head: Machine,
    user: str,
    jobs: Sequence[str],
    *,
    as_operator: bool = False,
) -> None:
    """Runs scancel of "12", "12_3" or "12_[1-4]" as the user, or with `as_operator` as Headway's Slurm operator.

    Raises NotAllowed for another user's job, NotFound for a job that does not exist."""
    _named(jobs)
    request = {
        "do": "exec",
        "user": OPERATOR if as_operator else user,
        "operator": as_operator,
        "argv": scancel_argv(jobs),
        "cwd": "/",
    }
    ran = await call_helper(links, head, request, timeout_s=30)
    errors = [line.partition("error: ")[2] for line in ran.stderr.splitlines() if "error: " in line]
    message = "; ".join(errors) or ran.stderr.strip()
    if "Access/permission denied" in message:
        raise NotAllowed(f"{', '.join(jobs)}: {user} may not cancel it", hint="ask a lead of the team or an admin")
    if "Invalid job id" in message:
        raise NotFound(f"{head.cluster}: {message}", hint="headway queue lists active jobs")
    if ran.code != 0:
        raise CommandFailed(scancel_argv(jobs), ran.code, message, where=head.name)


async def control_job(
    links: HelperConnections, head: Machine, user: str, verb: str, job: str, *, as_operator: bool = False
) -> None:
    """Runs `scontrol requeue | hold | release` for job "12" or "12_3", as the user or as Headway's Slurm operator.
    A job that the operator has put on hold can only be released by an operator. Raises NotAllowed, NotFound, and
    Refused with Slurm's words when the job's state does not permit it."""
    if verb not in CONTROL_VERBS:
        raise Refused(f"not one of requeue, hold, release: {verb[:20]!r}")
    _named([job])
    request = {
        "do": "exec",
        "user": OPERATOR if as_operator else user,
        "operator": as_operator,
        "argv": control_argv(verb, job),
        "cwd": "/",
    }
    ran = await call_helper(links, head, request, timeout_s=30)
    lines = (ran.stderr.strip() or ran.stdout.strip()).splitlines()
    words = lines[0] if lines else ""
    if "permission denied" in words.lower():
        raise NotAllowed(
            f"Slurm does not let {user} {verb} job {job}: {words}", hint="ask a lead of the team or an admin"
        )
    if "Invalid job id" in words:
        raise NotFound(f"{head.cluster}: {words}", hint="headway queue lists active jobs")
    if ran.code != 0:
        raise Refused(f"job {job} can't be {_DONE[verb]} now: {words or f'scontrol ended with {ran.code}'}")


def _named(jobs: Sequence[str]) -> None:
    bad = [job for job in jobs if not re.fullmatch(r"\d+(_(\d+|\[[\d,\-]+\]))?", job)]
    if bad or not jobs:
        raise Refused(f"not a job id: {', '.join(bad) or '(none)'}", hint="headway queue lists job ids")


_DONE = {"requeue": "requeued", "hold": "held", "release": "released"}


async def run_command(
    links: HelperConnections,
    head: Machine,
    user: str,
    argv: Sequence[str],
    stdin: bytes = b"",
    *,
    timeout_s: float = 3600,
) -> tuple[int, bytes, bytes]:
    """Returns (exit code, stdout, stderr) of one command on the head, run as root or through a login shell of
    `user`. Raises Refused when the command has run and its output is larger than an answer may be."""
    if not argv:
        raise Refused("there is no command to run")
    words = list(argv) if user == "root" else helper_argv({"do": "exec", "user": user, "argv": list(argv), "cwd": ""})
    most = _LONGEST_OUTPUT + 1
    ran = await links.remote(head, words, timeout_s=timeout_s, input=stdin, check=False, max_output=most)
    if user != "root" and ran.code == PROGRAM_REFUSED and not ran.out:
        raise helper_error(ran.stderr)
    err = ran.stderr.encode()
    if len(ran.out) + len(err) > _LONGEST_OUTPUT:
        raise Refused(
            f"{argv[0]} ended with exit code {ran.code}, but its output is longer than {_LONGEST_OUTPUT // 2**20} MiB, the limit",
            hint="use POST .../commands, as headway exec does: it streams the output",
        )
    return ran.code, ran.out, err


def script_name(name: str) -> str:
    """Returns the last part of a path when it is safe as a file name: sbatch names the job after it. Raises
    Refused otherwise."""
    last = PurePosixPath(name).name
    if last in ("", ".", "..") or "\0" in last or len(last.encode()) > 200:
        raise Refused(f"not a usable script name: {name[:80]!r}", hint="rename the file with letters, digits, . _ -")
    return last


def _flags(request: SubmitIn) -> list[str]:
    """Returns the request's flags, with an --export added for the names in `env` where the script or the flags
    export only a part of the environment. Raises Refused where one flag can't express that."""
    if fault := export_fault(request):
        raise Refused(fault.message, hint=fault.hint)
    names, parts = _exported(request)
    if not names or not parts:
        return list(request.args)
    kept = [] if parts[0].upper() in ("", "NONE") else [parts[0]]
    return [*request.args, f"--export={','.join([*kept, *names])}"]


def _exported(request: SubmitIn) -> tuple[list[str], list[str]]:
    """Returns (names in `env`, values of --export that leave some names out)."""
    names = [name for name in request.env if not name.startswith(("SLURM_", "SBATCH_"))]  # without sbatch's own
    exports = [want.options["export"] for want in requested_resources(request) if "export" in want.options]
    return names, [value for value in exports if "ALL" not in value.upper().split(",")]


def export_fault(request: SubmitIn) -> Fault | None:
    """Returns a fault when the names in `env` can't be combined with the --export of the request: --export is
    given for one component among several, or its value has quotes, which can't be copied into a flag."""
    names, parts = _exported(request)
    if not names or not parts:
        return None
    if len(requested_resources(request)) == 1 and parts[0].upper() != "NIL" and not set(parts[0]) & set("\"'\\"):
        return None
    words = f"--export={parts[0]} does not export {', '.join(names)} to the job"
    return Fault("flags", words, f"add the names: --export={','.join(names)}")


def _check(request: SubmitIn) -> None:
    if any(option.name == "wait" for option in (*parse_options(request.args), *script_options(request.script or ""))):
        raise Refused(
            "--wait would hold the request until the job ends", hint="use headway submit, then headway logs -f JOB"
        )
    if request.script is not None and not request.script.startswith("#!"):
        raise Refused(f"{request.script_name}: the first line must name an interpreter", hint="begin with #!/bin/bash")
    if request.script is not None and "\r\n" in request.script:
        raise Refused(
            f"{request.script_name}: has Windows line ends, which sbatch refuses",
            hint=DOS_LINES_HINT,
        )
    if any(not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) for name in request.env):
        raise Refused("the name of an environment variable has a character that is not allowed")
    if request.script is None and not any(w.startswith("--wrap") or w in _ASKS for w in request.args):
        raise Refused("the request has neither a script nor --wrap")


_ASKS = ("--help", "-h", "--usage", "--version", "-V")
