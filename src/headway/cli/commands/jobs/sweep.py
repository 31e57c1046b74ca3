"""sweep run|show|ls|stop|best: trials of one command with different parameters."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headway.cli import common
from headway.cli.common import ClusterOption
from headway.cli.output import formatting, tables
from headway.cli.output.output_formats import Format, Output, print_json
from headway.errors import NotFound

if TYPE_CHECKING:
    from headway.schemas.submission.sweeps import SweepOut, TrialOut

app = typer.Typer(
    help="Search for the best parameters of a command.",
    no_args_is_help=True,
    rich_markup_mode=None,
    add_completion=False,
)
Which = Annotated[str, typer.Argument(metavar="SWEEP", help="Sweep id, or name for its latest run.")]
_STYLES = {
    "done": "good",
    "running": "good",
    "pending": "warn",
    "submitting": "warn",
    "waiting": "warn",
    "failed": "bad",
    "stopped": "dim",
    "cancelled": "dim",
}


@app.command("run")
def run(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Sweep file (YAML).")],
    cluster: ClusterOption = None,
    max_cost: Annotated[
        float | None, typer.Option("--max-cost", metavar="USD", help="Stop the sweep when its trials cost this much.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the first trials and the highest cost; submit nothing.")
    ] = False,
    no_files: Annotated[bool, typer.Option("--no-files", help="Do not upload the file's folder.")] = False,
    user: Annotated[str, typer.Option("--as", help="Submit as this user (admins only).")] = "",
    output: Output = Format.table,
) -> None:
    """Run a command many times with different parameters. Each trial is a job with its own copy of the file's folder.

    headway sweep run sweep.yaml --dry-run"""
    from headway.schemas.submission.sweeps import SweepIn
    from headway.sdk.cluster_file import read_text_file
    from headway.validation.yaml_parser import parse_yaml

    if not file.is_file():
        raise NotFound(f"{file}: no such file", hint="headway sweep run FILE.yaml")
    document = parse_yaml(read_text_file(file, "the sweep file"), "the sweep file")
    if max_cost is not None:
        document = {**document, "max_cost": max_cost}
    api = common.connect()
    name = common.choose_cluster(api, cluster)
    digest, git = "", None
    if not no_files and not dry_run:
        from headway.sdk.submission import send_files

        digest, git = send_files(api.bundles, name, file.resolve().parent, user=user)
    begun = api.sweeps.start(name, SweepIn(document=document, bundle=digest, git=git, user=user, dry_run=dry_run))
    if begun.warning:
        common.print_note(f"warning: {begun.warning}")
    _show(begun, output)
    if not dry_run and output is not Format.json:
        common.print_note(f"follow it: headway sweep show {begun.id}")


@app.command("show")
def show_one(sweep: Which, cluster: ClusterOption = None, output: Output = Format.table) -> None:
    """Show a sweep's trials with parameters, state and metric."""
    api = common.connect()
    _show(api.sweeps.get(common.choose_cluster(api, cluster), sweep), output)


@app.command("ls")
def ls(cluster: ClusterOption = None, output: Output = Format.table) -> None:
    """List sweeps, latest first."""
    api = common.connect()
    found = api.sweeps.list(common.choose_cluster(api, cluster))
    if output is Format.json:
        print_json(found)
        return
    columns = [
        tables.Column("ID"), tables.Column("NAME"), tables.Column("USER"), tables.Column("STATE"),
        tables.Column("TRIALS", right=True), tables.Column("BEST", right=True), tables.Column("GPU-HOURS", right=True),
    ]  # fmt: skip
    rows: list[list[tables.Cell]] = [
        [
            s.id,
            s.name,
            s.user,
            _state(s.state),
            f"{s.ended_trials}/{s.trial_count}",
            _number(s.best_value),
            f"{s.gpu_hours:,.2f}",
        ]
        for s in found
    ]
    tables.print_table(columns, rows)


@app.command("stop")
def stop(sweep: Which, cluster: ClusterOption = None, output: Output = Format.table) -> None:
    """Begin no further trial, and cancel those that wait or run.

    headway sweep stop lr-search"""
    api = common.connect()
    _show(api.sweeps.stop(common.choose_cluster(api, cluster), sweep), output)


@app.command("best")
def best(
    sweep: Which,
    cluster: ClusterOption = None,
    trial: Annotated[
        int | None, typer.Option("--trial", metavar="NUMBER", help="Take this trial instead of the best one.")
    ] = None,
    nodes: Annotated[int | None, typer.Option("-N", "--nodes", metavar="NUMBER", help="Number of nodes.")] = None,
    gpus: Annotated[int | None, typer.Option("--gpus", metavar="NUMBER", help="Number of GPUs per node.")] = None,
    time: Annotated[str | None, typer.Option("--time", metavar="TIME", help="Time limit.")] = None,
    partition: Annotated[str | None, typer.Option("-p", "--partition", metavar="PARTITION", help="Partition.")] = None,
    submit: Annotated[bool, typer.Option("--submit", help="Submit the job; without it, print its script.")] = False,
    output: Output = Format.table,
) -> None:
    """Run the best trial's command again, on more nodes or for longer.

    headway sweep best lr-search --nodes 4 --gpus 8 --submit"""
    from headway.schemas.submission.sweeps import SweepBestIn

    api = common.connect()
    request = SweepBestIn(trial=trial, nodes=nodes, gpus=gpus, time=time, partition=partition, dry_run=not submit)
    done = api.sweeps.run_best(common.choose_cluster(api, cluster), sweep, request)
    from headway.cli.commands.jobs.run import print_run

    print_run(done, output, dry_run=not submit)


def _show(found: SweepOut, output: Format) -> None:
    if output is Format.json:
        print_json(found)
        return
    why = f" ({found.why})" if found.why else ""
    named = f"{found.name} ({found.id})" if found.id else found.name
    common.print_line(f"{named} on {found.cluster} as {found.user}: {found.state}{why}")
    if found.trials:
        _print_trials(found)
    if not found.id and found.trial_count > len(found.trials):
        common.print_line(f"... {found.trial_count:,} trials in all, {found.parallel} at once")
    for line in _sums(found):
        common.print_line(line)


def _print_trials(found: SweepOut) -> None:
    columns = [
        tables.Column("TRIAL", right=True), tables.Column("JOB", right=True), tables.Column("STATE"),
        *(tables.Column(name, right=True) for name in found.parameters), tables.Column("STEP", right=True),
        tables.Column(found.metric, right=True), tables.Column("GPU-HOURS", right=True, drop_order=2),
        tables.Column("WHY", shrink=True, min_width=20, drop_order=1),
    ]  # fmt: skip
    tables.print_table(columns, [_row(found, trial) for trial in found.trials])


def _row(found: SweepOut, trial: TrialOut) -> list[tables.Cell]:
    best_one = trial.number == found.best
    value = _number(trial.value)
    return [
        f"{trial.number}",
        str(trial.job_id or ""),
        _state(trial.state),
        *(str(trial.parameters.get(name, "")) for name in found.parameters),
        "" if trial.step is None else str(trial.step),
        [(f"{value} best", "good")] if best_one else value,
        f"{trial.gpu_hours:,.4f}" if trial.run_s else "",
        trial.why,
    ]


def _state(state: str) -> tables.Cell:
    return [(state, _STYLES.get(state, ""))]


def _sums(found: SweepOut) -> list[str]:
    """Returns what the trials have cost, or what they can cost."""
    if not found.id or not found.trials:
        hours = "" if found.most_gpu_hours is None else f"{found.most_gpu_hours:,.2f} GPU-hours"
        cost = "" if found.most_usd is None else f"{formatting.usd(found.most_usd)} USD"
        most = ", ".join(filter(None, (hours, cost)))
        limit = f"; it stops at {found.max_cost:,.2f} USD" if found.max_cost is not None else ""
        return (
            [f"at most {most} for {found.trial_count:,} trials{limit}"]
            if most
            else [f"{found.trial_count:,} trials without a time limit: their cost is unknown{limit}"]
        )
    cost = "" if found.usd is None else f", {formatting.usd(found.usd)} USD"
    return [f"{found.ended_trials} of {found.trial_count:,} trials have ended; {found.gpu_hours:,.2f} GPU-hours{cost}"]


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"
