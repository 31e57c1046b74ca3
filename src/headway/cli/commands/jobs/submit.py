"""submit: runs sbatch on the cluster with a script from this machine."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headway.cli import common
from headway.cli.options import sbatch_line
from headway.cli.output import formatting
from headway.cli.output.output_formats import print_json
from headway.errors import NotFound, Refused

if TYPE_CHECKING:
    from headway.errors import Unreachable
    from headway.schemas.submission.submit_request import SubmitIn
    from headway.sdk.client import Client

WAIT_S = 2.0


def submit(
    ctx: typer.Context,
    words: Annotated[list[str] | None, typer.Argument(hidden=True, autocompletion=common.complete_cluster)] = None,
) -> None:
    """Submit a batch script from this machine, with the cluster's own sbatch, as your user.

    All flags of sbatch may precede the script, such as -N 2, --gpus-per-node=8 or --wrap "COMMAND". Headway adds:

    \b
    {own_flags}

    headway submit -N 2 --gpus-per-node=8 train.sbatch --epochs 3"""
    words = words or []
    line, first = _read(words)
    if "help" in line.own:
        common.print_line(ctx.get_help())
        return
    from headway.cli.options.env_option import parse_env_options

    api = common.connect()
    name, line = _which(api, words) if first else (common.choose_cluster(api, None), line)
    digest, git = "", None
    if "with-files" in line.own and "estimate" not in line.own:
        from headway.sdk.submission import send_files

        digest, git = send_files(api.bundles, name, Path.cwd(), user=line.own.get("as", ""))
    request = _request(
        bundle=digest,
        git=git,
        env=parse_env_options(line.env),
        args=line.args,
        script=None if line.wrap else _script(line.script, name),
        script_name=Path(line.script).name if line.script else ("wrap" if line.wrap else "stdin"),
        script_args=line.script_args,
        chdir=line.own.get("chdir", ""),
        user=line.own.get("as", ""),
        stage_in=line.stage_in,
        environment=line.own.get("environment", ""),
        secrets=line.secrets,
    )
    if "estimate" in line.own:
        from headway.cli.output.cost_estimate import print_estimate
        from headway.schemas.submission.submission_check import CheckJobIn

        estimate = api.billing.estimate(name, CheckJobIn(submit=request.model_copy(update={"bundle": "", "git": None})))
        print_json(estimate) if "json" in line.own else print_estimate(estimate)
        return
    done = api.jobs.sbatch(name, request)
    if "json" in line.own:
        print_json(done)
    elif "parsable" in line.own:
        common.print_line(str(done.job_id))
    elif done.job_id:
        place = done.workdir if done.workdir not in {"", "~"} else f"/home/{done.user}"
        common.print_line(f"Submitted batch job {done.job_id} on {done.cluster} as {done.user} in {place}")
    else:
        common.print_line(done.message)  # --test-only: sbatch says when and where it would run
    if "wait" in line.own and done.job_id:
        raise typer.Exit(_wait(api, done.cluster, done.job_id))


# `submit --help` is this docstring.
submit.__doc__ = inspect.cleandoc(submit.__doc__ or "").replace("{own_flags}", sbatch_line.own_flags_help())


def _request(**fields: Any) -> SubmitIn:
    from pydantic import ValidationError

    from headway.schemas.submission.submit_request import SubmitIn

    try:
        return SubmitIn(**fields)
    except ValidationError as error:
        if any(fault["loc"][:1] == ("environment",) for fault in error.errors()):
            raise typer.BadParameter(
                f"--environment {fields['environment']}: not an environment; NAME or NAME@VERSION: headway env ls"
            ) from None
        if any(fault["loc"][:1] == ("secrets",) for fault in error.errors()):
            raise typer.BadParameter(
                f"--secret {', '.join(fields['secrets'])}: not the name of a secret: headway secret ls"
            ) from None
        wrong = ", ".join(fields["stage_in"])
        raise typer.BadParameter(
            f"--stage-in {wrong}: not a dataset; NAME or NAME@VERSION: headway dataset ls"
        ) from None


def _read(words: list[str]) -> tuple[sbatch_line.SbatchLine, bool]:
    """Returns (line, whether the first word may be a cluster or the script, which only the server knows)."""
    if not words or words[0].startswith("-") or "/" in words[0] or "." in words[0]:
        return sbatch_line.parse_sbatch_line(words), False
    return sbatch_line.SbatchLine(own={"help": "1"} if words[1:] in (["--help"], ["-h"]) else {}), True


def _which(api: Client, words: list[str]) -> tuple[str, sbatch_line.SbatchLine]:
    common.require_cluster_name(words[0])
    names = [c.name for c in api.clusters.list()]
    if words[0] in names:
        return words[0], sbatch_line.parse_sbatch_line(words[1:])
    if not Path(words[0]).exists():
        raise NotFound(
            f"{words[0]} is neither a cluster nor a script on this machine",
            hint=f"clusters: {', '.join(names)}" if names else "headway init, then headway apply",
        )
    return common.choose_cluster(api, None), sbatch_line.parse_sbatch_line(words)


def _script(name: str | None, cluster: str) -> str:
    from headway.sdk.submission import MAX_SCRIPT_BYTES, script_text

    if name is None or name == "-":
        if sys.stdin.isatty():
            raise Refused("no script is given", hint="use headway submit SCRIPT, or --wrap 'COMMAND'")
        return script_text(sys.stdin.buffer.read(MAX_SCRIPT_BYTES + 1), "standard input")
    path = common.expand_home(name)
    if not path.is_file():
        raise NotFound(
            f"{name}: no such script on this machine",
            hint=f"for a script on the cluster use headway exec {cluster} -u USER -- sbatch {name}",
        )
    return script_text(path.read_bytes(), name)


def _wait(api: Client, cluster: str, job_id: int) -> int:
    """Waits for the job's end (of an array, all its tasks'), as sbatch --wait does; its exit code."""
    from headway.sdk.resources.jobs import Job

    def lost(error: Unreachable) -> None:
        common.print_note(f"{error.message}; job {job_id} continues; still waiting for it")

    try:
        job = Job(api.jobs, cluster, job_id).wait(poll_s=WAIT_S, on_lost=lost)
    except KeyboardInterrupt:
        common.print_note(f"\njob {job_id} continues; headway logs {cluster} -f {job_id}")
        return 130
    if job.state != "COMPLETED":
        outcome = f" after {formatting.duration(job.elapsed_s)}"
        if job.tasks:
            failed = f"; failed: {job.tasks.failed_tasks}" if job.tasks.failed_tasks else ""
            outcome = f"{failed}; {job.tasks.cancelled} cancelled" if job.tasks.cancelled else failed
        common.print_note(f"job {job_id}: {job.state}{outcome}")
        return job.exit_code or 1
    return job.exit_code
