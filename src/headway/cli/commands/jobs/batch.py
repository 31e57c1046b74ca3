"""batch run|show|ls|stop|retry: a program or a model computes a result for each row of a dataset."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headway.cli import common
from headway.cli.common import ClusterOption
from headway.cli.options.options_from_schema import run_fields, with_job_options
from headway.cli.output import formatting, tables
from headway.cli.output.output_formats import Format, Output, print_json
from headway.schemas.submission.run_request import JobFields

if TYPE_CHECKING:
    from headway.schemas.submission.batches import BatchOut

app = typer.Typer(
    help="Compute a result for each row of a dataset.",
    no_args_is_help=True,
    rich_markup_mode=None,
    add_completion=False,
)
Which = Annotated[str, typer.Argument(metavar="BATCH", help="Batch id, or name of its output for the latest one.")]
_STYLES = {"done": "good", "running": "good", "adding": "good", "submitting": "warn", "failed": "bad", "stopped": "dim"}


@app.command("run")
@partial(with_job_options, model=JobFields)
def run(
    cluster: ClusterOption = None,
    input_rows: Annotated[
        str,
        typer.Option(
            "--input", metavar="DATASET|PATH", help="Dataset, or absolute path on the cluster, of JSON lines."
        ),
    ] = "",
    output: Annotated[
        str, typer.Option("--output", metavar="NAME", help="Dataset that the results become; all users can read it.")
    ] = "",
    model: Annotated[
        str, typer.Option("--model", metavar="MODEL", help="Model; without --program and --server, vLLM serves it.")
    ] = "",
    program: Annotated[
        str,
        typer.Option("--program", metavar="FILE.py[:FUNCTION]", help="Function that gets rows and returns results."),
    ] = "",
    server: Annotated[
        str, typer.Option("--server", metavar="COMMAND", help="OpenAI-compatible server, with {port} and {model}.")
    ] = "",
    workers: Annotated[int, typer.Option("--workers", metavar="NUMBER", help="Number of workers.")] = 1,
    shard_rows: Annotated[int, typer.Option("--shard-rows", metavar="NUMBER", help="Rows of a shard.")] = 1000,
    call_rows: Annotated[int, typer.Option("--call-rows", metavar="NUMBER", help="Rows of a call.")] = 100,
    tries: Annotated[int, typer.Option("--tries", metavar="NUMBER", help="Number of tries of a row.")] = 3,
    folder: Annotated[
        Path, typer.Option("--folder", help="Folder to upload, without what its .gitignore excludes.")
    ] = Path(),
    no_files: Annotated[bool, typer.Option("--no-files", help="Do not upload the folder.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the batch script; submit nothing.")] = False,
    user: Annotated[str, typer.Option("--as", help="Submit as this user (admins only).")] = "",
    show: Annotated[
        Format, typer.Option("-o", "--format", help="Output format: table or json.", show_default=False)
    ] = Format.table,
    **options: Any,
) -> None:
    """Compute a result for each row of a dataset, on several workers. The results become a dataset version.

    headway batch run --program predict.py --input questions --output answers --workers 4 --gpus 1"""
    from headway.schemas.submission.batches import BatchIn
    from headway.sdk.submission import build_request, send_files

    if not input_rows or not output:
        raise typer.BadParameter("give --input and --output: headway batch run --input questions --output answers ...")
    job = {name: value for name, value in run_fields(options).items() if value is not None}
    fields = {
        "input": input_rows, "output": output, "model": model, "program": program, "server": server, "workers": workers,
        "shard_rows": shard_rows, "call_rows": call_rows, "tries": tries, "job": job, "user": user, "dry_run": dry_run,
    }  # fmt: skip
    request = build_request(BatchIn, **fields)
    api = common.connect()
    name = common.choose_cluster(api, cluster)
    if not no_files and not dry_run:
        digest, git = send_files(api.bundles, name, folder.resolve(), user=user)
        request = request.model_copy(update={"bundle": digest, "git": git})
    begun = api.batches.start(name, request)
    if begun.warning:
        common.print_note(f"warning: {begun.warning}")
    if dry_run and show is not Format.json:
        for line in begun.script:
            common.print_line(f"{line.text:<48} # {line.origin}" if line.origin else line.text)
        return
    _show(begun, show)
    if not dry_run and show is not Format.json:
        common.print_note(f"follow it: headway batch show {begun.id}")


@app.command("show")
def show_one(batch: Which, cluster: ClusterOption = None, output: Output = Format.table) -> None:
    """Show a batch's progress, cost, workers and rows without a result."""
    api = common.connect()
    _show(api.batches.get(common.choose_cluster(api, cluster), batch), output)


@app.command("ls")
def ls(cluster: ClusterOption = None, output: Output = Format.table) -> None:
    """List batches, latest first."""
    api = common.connect()
    found = api.batches.list(common.choose_cluster(api, cluster))
    if output is Format.json:
        print_json(found)
        return
    columns = [
        tables.Column("ID"), tables.Column("OUTPUT"), tables.Column("USER"), tables.Column("STATE"),
        tables.Column("ROWS", right=True), tables.Column("ERRORS", right=True), tables.Column("USD", right=True),
    ]  # fmt: skip
    rows: list[list[tables.Cell]] = [
        [one.id, one.dataset or one.name, one.user, _state(one.state), _rows(one), f"{one.errors:,}", _usd(one)]
        for one in found
    ]
    tables.print_table(columns, rows)


@app.command("stop")
def stop(batch: Which, cluster: ClusterOption = None, output: Output = Format.table) -> None:
    """End a batch. What is computed remains, for a retry."""
    api = common.connect()
    _show(api.batches.stop(common.choose_cluster(api, cluster), batch), output)


@app.command("retry")
def retry(batch: Which, cluster: ClusterOption = None, output: Output = Format.table) -> None:
    """Continue a batch that has failed or was stopped. Rows that are computed stay."""
    api = common.connect()
    _show(api.batches.retry(common.choose_cluster(api, cluster), batch), output)


def _show(found: BatchOut, output: Format) -> None:
    if output is Format.json:
        print_json(found)
        return
    why = f" ({found.why})" if found.why else ""
    named = f"{found.name} ({found.id})" if found.id else found.name
    common.print_line(f"{named} on {found.cluster} as {found.user}: {found.state}{why}")
    common.print_line(f"input    {found.input}")
    common.print_line(f"rows     {_rows(found)}, {found.errors:,} without a result")
    cost = f", {_usd(found)} USD" if found.usd is not None else ""
    common.print_line(f"shards   {_of(found.done_shards, found.shards)}; {found.seconds:,.0f} s of workers{cost}")
    if found.job_id:
        common.print_line(f"job      {found.job_id}, {found.workers} workers; state in {found.folder}")
    if found.dataset:
        common.print_line(f"output   {found.dataset}")
    for line in found.some_errors:
        common.print_line(f"error    {line}")
    if found.worker_runs:
        columns = [
            tables.Column("TASK"), tables.Column("NODE"), tables.Column("SHARD", right=True),
            tables.Column("SHARDS", right=True), tables.Column("ROWS", right=True), tables.Column("ERRORS", right=True),
            tables.Column("SECONDS", right=True), tables.Column("ENDED", shrink=True, min_width=20),
        ]  # fmt: skip
        rows: list[list[tables.Cell]] = [
            [
                one.task,
                one.node,
                "" if one.shard is None else str(one.shard),
                f"{one.shards:,}",
                f"{one.rows:,}",
                f"{one.errors:,}",
                f"{one.seconds:,.0f}",
                one.error,
            ]
            for one in found.worker_runs
        ]
        tables.print_table(columns, rows)


def _state(state: str) -> tables.Cell:
    return [(state, _STYLES.get(state, ""))]


def _rows(found: BatchOut) -> str:
    return _of(found.done_rows, found.rows)


def _of(done: int, every: int | None) -> str:
    return f"{done:,}" if every is None else f"{done:,} of {every:,}"


def _usd(found: BatchOut) -> str:
    return "" if found.usd is None else formatting.usd(found.usd)
