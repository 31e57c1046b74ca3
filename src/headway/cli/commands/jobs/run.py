"""run: a job made from a command and the folder it stands in."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headway.cli import session
from headway.cli.registry import WORDS_AFTER_DASHES
from headway.cli.session import ClusterName, Format, Output

if TYPE_CHECKING:
    from headway.schemas.submissions import ContainerIn, RunOut


def run(
    ctx: typer.Context,
    cluster: ClusterName = None,
    nodes: Annotated[int, typer.Option("-N", "--nodes", help="How many.")] = 1,
    gpus: Annotated[int, typer.Option("--gpus", help="GPUs of each node.")] = 0,
    tasks: Annotated[int, typer.Option("--tasks", help="Processes on each node; otherwise one a GPU.")] = 0,
    launcher: Annotated[str, typer.Option("--launcher", help="torchrun, srun, mpi or python.")] = "",
    name: Annotated[str, typer.Option("--name", help="Otherwise that of the file that is run.")] = "",
    time: Annotated[str, typer.Option("--time", help="Its limit: minutes, HH:MM:SS or D-HH:MM:SS.")] = "",
    partition: Annotated[str, typer.Option("-p", "--partition")] = "",
    team: Annotated[str, typer.Option("--team", help="Who pays, where you are in several.")] = "",
    after: Annotated[list[str] | None, typer.Option("--after", help="ok:123, notok:123, any:123, start:123.")] = None,
    warn: Annotated[bool, typer.Option("--warn", help="USR1 two minutes before its limit or preemption.")] = False,
    env: Annotated[list[str] | None, typer.Option("--env", help="NAME=VALUE, or NAME as it is here.")] = None,
    stage_in: Annotated[
        list[str] | None,
        typer.Option(
            "--stage-in", metavar="NAME[@VERSION]", help="A dataset, copied to each node: $HEADWAY_SCRATCH/NAME."
        ),
    ] = None,
    folder: Annotated[Path, typer.Option("--folder", help="Files that are sent, by .gitignore.")] = Path(),
    no_files: Annotated[bool, typer.Option("--no-files", help="Send none: all is on the cluster.")] = False,
    image: Annotated[str, typer.Option("--container-image")] = "",
    mounts: Annotated[list[str] | None, typer.Option("--container-mounts", help="SRC:DST[:ro],...")] = None,
    container_workdir: Annotated[str, typer.Option("--container-workdir")] = "",
    container_name: Annotated[str, typer.Option("--container-name")] = "",
    mount_home: Annotated[bool | None, typer.Option("--container-mount-home/--no-container-mount-home")] = None,
    sbatch: Annotated[list[str] | None, typer.Option("--sbatch", help="A further flag of sbatch.")] = None,
    user: Annotated[str, typer.Option("--as", help="As this user (admins).")] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the script, and where each line is from.")] = False,
    estimate: Annotated[
        bool, typer.Option("--estimate", help="Say price, start and what is left of the budget; run nothing.")
    ] = False,
    output: Output = Format.table,
) -> None:
    """Run a command as a job, in a copy of this folder: later edits do not change a queued job.

    headway run --nodes 4 --gpus 8 -- torchrun train.py --steps 500"""
    argv = ctx.meta.get(WORDS_AFTER_DASHES)
    if not argv:
        raise typer.BadParameter("the command stands after --: headway run -- torchrun train.py")
    api = session.connect()
    where = session.choose_cluster(api, cluster)
    from headway.schemas.submissions import RunIn
    from headway.sdk.submission import send_files

    container = _container(image, mounts or [], container_workdir, container_name, mount_home)
    made = {"argv": argv, "container": container, "env": parse_env_options(env or [])}
    request = RunIn.model_validate({**_given(ctx), **made})
    if not no_files and not dry_run and not estimate:
        digest, git = send_files(api.bundles, where, folder.resolve(), user=user)
        request = request.model_copy(update={"bundle": digest, "git": git})
    if estimate:
        from headway.cli.commands.billing.costs import print_estimate
        from headway.schemas.submissions import CheckJobIn

        told = api.billing.estimate(where, CheckJobIn(run=request))
        session.print_json(told) if output is Format.json else print_estimate(told)
        return
    _show(api.jobs.create_run(where, request), output, dry_run=dry_run)


def _given(ctx: typer.Context) -> dict[str, object]:
    """The run's fields on the command line: an option has its field's name, and None or "" leave the field's default."""
    from headway.schemas.submissions import RunIn

    return {name: value for name, value in ctx.params.items() if name in RunIn.model_fields and value not in (None, "")}


def parse_env_options(words: list[str]) -> dict[str, str]:
    """["A=1", "B"] -> {"A": "1", "B": what it is here}. Raises BadParameter for one that is not set here."""
    found = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals and name not in os.environ:
            raise typer.BadParameter(f"--env {name}: it is not set here; --env {name}=VALUE sets it")
        found[name] = value if equals else os.environ[name]
    return found


def _container(image: str, mounts: list[str], workdir: str, name: str, mount_home: bool | None) -> ContainerIn | None:
    if not image:
        if mounts or workdir or name or mount_home is not None:
            raise typer.BadParameter("a container flag without an image: --container-image docker://...")
        return None
    from headway.schemas.submissions import ContainerIn

    every = [one for word in mounts for one in word.split(",") if one]
    return ContainerIn(image=image, mounts=every, workdir=workdir, name=name, mount_home=mount_home)


def _show(done: RunOut, output: Format, *, dry_run: bool) -> None:
    if output is Format.json:
        session.print_json(done)
    elif dry_run:
        import shlex

        for line in done.script:
            session.print_line(f"{line.text:<48} # {line.origin}" if line.origin else line.text)
        session.print_line(f"# its arguments: {shlex.join(done.script_args)}")
    else:
        session.print_line(f"Submitted batch job {done.job_id} on {done.cluster} as {done.user} in {done.workdir}")
        session.print_note(f"follow it: headway logs {done.cluster} -f {done.job_id}")
