"""run: submits a job from a command and the folder that it works in. Its options are fields of RunIn
(`schemas/submission/run_request.py`)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headway.cli import common
from headway.cli.common import ClusterName
from headway.cli.options.options_from_schema import run_fields, with_job_options
from headway.cli.output.output_formats import Format, Output, print_json
from headway.cli.registry import WORDS_AFTER_DASHES
from headway.schemas.submission.run_request import RunIn
from headway.schemas.submission.submission_check import CheckJobIn

if TYPE_CHECKING:
    from headway.schemas.submission.run_request import RunOut


@with_job_options
def run(
    ctx: typer.Context,
    cluster: ClusterName = None,
    folder: Annotated[
        Path, typer.Option("--folder", help="Folder to upload, without what its .gitignore excludes.")
    ] = Path(),
    no_files: Annotated[bool, typer.Option("--no-files", help="Do not upload the folder.")] = False,
    estimate: Annotated[
        bool, typer.Option("--estimate", help="Print price, expected start and remaining budget; submit nothing.")
    ] = False,
    output: Output = Format.table,
    **options: Any,
) -> None:
    """Run a command as a job, in a copy of this folder: later edits do not change a queued job.

    headway run --nodes 4 --gpus 8 -- torchrun train.py --steps 500"""
    argv = ctx.meta.get(WORDS_AFTER_DASHES)
    if not argv:
        raise typer.BadParameter("no command is given after --: headway run -- torchrun train.py")
    api = common.connect()
    name = common.choose_cluster(api, cluster)
    request = RunIn.model_validate({**run_fields(options), "argv": argv})
    if not no_files and not request.dry_run and not estimate:
        from headway.sdk.submission import send_files

        digest, git = send_files(api.bundles, name, folder.resolve(), user=request.user)
        request = request.model_copy(update={"bundle": digest, "git": git})
    if estimate:
        from headway.cli.output.cost_estimate import print_estimate

        answer = api.billing.estimate(name, CheckJobIn(run=request))
        print_json(answer) if output is Format.json else print_estimate(answer)
        return
    print_run(api.jobs.create_run(name, request), output, dry_run=request.dry_run)


def print_run(done: RunOut, output: Format, *, dry_run: bool) -> None:
    """Prints a submitted job, or the script of a dry run."""
    if done.warning:
        common.print_note(f"warning: {done.warning}")
    if output is Format.json:
        print_json(done)
    elif dry_run:
        import shlex

        for line in done.script:
            common.print_line(f"{line.text:<48} # {line.origin}" if line.origin else line.text)
        common.print_line(f"# its arguments: {shlex.join(done.script_args)}")
    else:
        common.print_line(f"Submitted batch job {done.job_id} on {done.cluster} as {done.user} in {done.workdir}")
        common.print_note(f"follow it: headway logs {done.cluster} -f {done.job_id}")
