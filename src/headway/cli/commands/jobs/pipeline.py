"""pipeline run|show|ls|retry|schedule|schedules|unschedule: jobs that depend on each other."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headway.cli import common
from headway.cli.common import ClusterOption
from headway.cli.options.env_option import EnvOption, parse_env_options
from headway.cli.output import formatting, tables
from headway.cli.output.output_formats import Format, Output, print_json
from headway.errors import NotFound

if TYPE_CHECKING:
    from headway.schemas.submission.pipelines import PipelineIn, PipelineOut, PipelineScheduleOut
    from headway.sdk.client import Client

app = typer.Typer(
    help="Run steps as jobs that depend on each other.",
    no_args_is_help=True,
    rich_markup_mode=None,
    add_completion=False,
)
Which = Annotated[str, typer.Argument(metavar="PIPELINE", help="Pipeline id, or name for its latest run.")]


@app.command("run")
def run(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Pipeline file (YAML).")],
    cluster: ClusterOption = None,
    no_files: Annotated[bool, typer.Option("--no-files", help="Do not upload the file's folder.")] = False,
    user: Annotated[str, typer.Option("--as", help="Submit as this user (admins only).")] = "",
    output: Output = Format.table,
) -> None:
    """Submit every step; each waits for the steps that it needs. All share one copy of the file's folder.

    headway pipeline run rlhf.yaml"""
    document = _read(file, "run")
    api = common.connect()
    name = common.choose_cluster(api, cluster)
    begun = api.pipelines.start(name, _request(api, name, file, document, no_files=no_files, user=user))
    if begun.warning:
        common.print_note(f"warning: {begun.warning}")
    _show(begun, output)


@app.command("show")
def show_one(pipeline: Which, cluster: ClusterOption = None, output: Output = Format.table) -> None:
    """Show a pipeline's steps and their states."""
    api = common.connect()
    _show(api.pipelines.get(common.choose_cluster(api, cluster), pipeline), output)


@app.command("ls")
def ls(cluster: ClusterOption = None, output: Output = Format.table) -> None:
    """List pipelines, latest first."""
    api = common.connect()
    found = api.pipelines.list(common.choose_cluster(api, cluster))
    if output is Format.json:
        print_json(found)
        return
    columns = [
        tables.Column("ID"),
        tables.Column("NAME"),
        tables.Column("USER"),
        tables.Column("STATE"),
        tables.Column("STEPS"),
    ]
    rows: list[list[tables.Cell]] = [
        [p.id, p.name, p.user, p.state, f"{p.done_steps} of {len(p.steps)} done"] for p in found
    ]
    tables.print_table(columns, rows)


@app.command("retry")
def retry(
    pipeline: Which,
    cluster: ClusterOption = None,
    step: Annotated[
        list[str] | None, typer.Option("--step", help="Retry from this step on, regardless of its state.")
    ] = None,
    env: EnvOption = None,
    output: Output = Format.table,
) -> None:
    """Submit the failed steps again, and all steps that need them, in the same folder.

    headway pipeline retry rlhf"""
    from headway.schemas.submission.pipelines import PipelineRetryIn

    api = common.connect()
    request = PipelineRetryIn(steps=step or [], env=parse_env_options(env or []))
    _show(api.pipelines.retry(common.choose_cluster(api, cluster), pipeline, request), output)


@app.command("schedule")
def schedule(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Pipeline file (YAML) with schedule or on.")],
    cluster: ClusterOption = None,
    no_files: Annotated[bool, typer.Option("--no-files", help="Do not upload the file's folder.")] = False,
    user: Annotated[str, typer.Option("--as", help="Submit as this user (admins only).")] = "",
    output: Output = Format.table,
) -> None:
    """Start the pipeline at the times of its `schedule` (cron, UTC), and when the dataset of its `on` has a new version.

    headway pipeline schedule retrain.yaml"""
    document = _read(file, "schedule")
    api = common.connect()
    name = common.choose_cluster(api, cluster)
    _show_schedules(
        [api.pipelines.schedule(name, _request(api, name, file, document, no_files=no_files, user=user))], output
    )


@app.command("schedules")
def schedules(cluster: ClusterOption = None, output: Output = Format.table) -> None:
    """List scheduled pipelines."""
    api = common.connect()
    _show_schedules(api.pipelines.schedules(common.choose_cluster(api, cluster)), output)


@app.command("unschedule")
def unschedule(
    pipeline: Annotated[str, typer.Argument(metavar="NAME", help="Name of the pipeline, or id of the schedule.")],
    cluster: ClusterOption = None,
    output: Output = Format.table,
) -> None:
    """Start a scheduled pipeline no longer. Those that run go on."""
    api = common.connect()
    gone = api.pipelines.unschedule(common.choose_cluster(api, cluster), pipeline)
    if output is Format.json:
        print_json(gone)
        return
    common.print_line(f"{gone.name} of {gone.user} is not scheduled any more")


def _read(file: Path, command: str) -> dict[str, Any]:
    from headway.sdk.cluster_file import read_text_file
    from headway.validation.yaml_parser import parse_yaml

    if not file.is_file():
        raise NotFound(f"{file}: no such file", hint=f"headway pipeline {command} FILE.yaml")
    return parse_yaml(read_text_file(file, "the pipeline file"), "the pipeline file")


def _request(
    api: Client, cluster: str, file: Path, document: dict[str, Any], *, no_files: bool, user: str
) -> PipelineIn:
    """Returns the request with the digest of the uploaded folder."""
    from headway.schemas.submission.pipelines import PipelineIn

    digest, git = "", None
    if not no_files:
        from headway.sdk.submission import send_files

        digest, git = send_files(api.bundles, cluster, file.resolve().parent, user=user)
    return PipelineIn(document=document, bundle=digest, git=git, user=user)


def _show_schedules(found: list[PipelineScheduleOut], output: Format) -> None:
    if output is Format.json:
        print_json(found)
        return
    columns = [
        tables.Column("ID"), tables.Column("NAME"), tables.Column("USER"),
        tables.Column("SCHEDULE"), tables.Column("NEXT"), tables.Column("ON"),
        tables.Column("LAST"), tables.Column("WHY", shrink=True, min_width=20),
    ]  # fmt: skip
    rows: list[list[tables.Cell]] = [
        [
            one.id,
            one.name,
            one.user,
            one.schedule,
            formatting.local_time(one.next_at) if one.next_at else "",
            f"dataset {one.dataset}" if one.dataset else "",
            one.last,
            one.why,
        ]
        for one in found
    ]
    tables.print_table(columns, rows)


def _show(found: PipelineOut, output: Format) -> None:
    if output is Format.json:
        print_json(found)
        return
    common.print_line(
        f"{found.name} ({found.id}) on {found.cluster} as {found.user}: {found.state}, in {found.workdir}"
    )
    columns = [
        tables.Column("STEP"), tables.Column("JOB", right=True), tables.Column("STATE"), tables.Column("RUNS", right=True),
        tables.Column("AFTER", drop_order=1), tables.Column("OUTPUTS", shrink=True, min_width=16, drop_order=2),
        tables.Column("WHY", shrink=True, min_width=20),
    ]  # fmt: skip
    rows: list[list[tables.Cell]] = [
        [
            s.name,
            str(s.job_id or ""),
            [(s.state, formatting.job_style(s.state))],
            str(s.runs),
            ", ".join(s.needs),
            ", ".join(f"{name}={output.shown}" for name, output in s.outputs.items()),
            s.why,
        ]
        for s in found.steps
    ]
    tables.print_table(columns, rows)
