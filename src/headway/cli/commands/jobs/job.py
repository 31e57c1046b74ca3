"""job show|metrics|stacks|retry|rerun|resume: one job. `compare` and `note` are in `trainings`."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from headway.cli import common
from headway.cli.commands.jobs.trainings import compare, note
from headway.cli.options.env_option import EnvOption, parse_env_options
from headway.cli.options.job_arguments import JobArgument, parse_job_words
from headway.cli.output import formatting, tables
from headway.cli.output.output_formats import Format, Output, print_json
from headway.cli.output.rank_stacks import print_rank_stacks
from headway.cli.output.terminal import Span, Terminal, detect_terminal, without_control_characters
from headway.domain.slurm.job_label import job_label
from headway.domain.slurm.job_states import ENDED, WAITING

if TYPE_CHECKING:
    from headway.schemas.jobs import ArrayOut, JobOut
    from headway.schemas.lineage.lineage import LineageOut
    from headway.schemas.submission.submit_request import SubmitOut

_PASSING = "/tmp/headway-"  # the temporary path of a submitted script, which no longer exists


def show_job(
    words: JobArgument,
    lineage: Annotated[
        bool, typer.Option("--lineage", help="Show the script, files, image and datasets of the job.")
    ] = False,
    output: Output = Format.table,
) -> None:
    """Show one job; for an array, the number of its tasks by state.

    headway job show 12 --lineage"""
    cluster, word = parse_job_words(words)
    api = common.connect()
    name = common.choose_cluster(api, cluster)
    if lineage:
        number, task = common.split_job_id(word)
        _show_lineage(api.jobs.lineage(name, common.get_job(api, name, word).id if task else number), output)
        return
    found = common.get_job(api, name, word)
    if found.array_job_id and word == str(found.array_job_id):
        found.tasks = api.jobs.tasks(name, found.array_job_id)
    if output is Format.json:
        print_json(found)
        return
    simulated = bool(found.gpus) and api.clusters.get(name).simulated_gpus
    terminal = detect_terminal()
    tables.print_facts(_facts(found, name, simulated, terminal))


def stacks(words: JobArgument, output: Output = Format.table) -> None:
    """Show where each rank of a running job is (its Python stack), and which ranks the others wait for.

    headway job stacks 12"""
    cluster, word = parse_job_words(words)
    api = common.connect()
    name = common.choose_cluster(api, cluster)
    number, task = common.split_job_id(word)
    found = api.jobs.stacks(name, number, task=task)
    if output is Format.json:
        print_json(found)
        return
    print_rank_stacks(found)


def metrics(
    words: JobArgument,
    metric: Annotated[
        list[str] | None, typer.Option("--metric", "-m", help="Show this metric only. May be repeated.")
    ] = None,
    csv: Annotated[bool, typer.Option("--csv", help="Print all points as CSV.")] = False,
    output: Output = Format.table,
) -> None:
    """Show the metrics that a training reports, with their range and curve.

    headway job metrics 12 -m loss -m lr --csv > curves.csv"""
    from headway.cli.output.training_metrics import print_training_metrics
    from headway.schemas.training_metrics import MAX_SERIES

    cluster, word = parse_job_words(words)
    api = common.connect()
    name = common.choose_cluster(api, cluster)
    number, task = common.split_job_id(word)
    if csv:
        for piece in api.jobs.metrics_csv(name, number, metric or (), task=task):
            typer.echo(piece.decode(), nl=False)
        return
    found = api.jobs.metrics(name, number, task=task)
    if output is Format.json and not metric:
        print_json(found)
        return
    names = metric or [one.name for one in found.metrics[:MAX_SERIES]]
    charts = api.jobs.metric_series(name, number, names, task=task) if names else None
    if output is Format.json:
        print_json(charts)
        return
    print_training_metrics(found, charts)


def retry(
    words: JobArgument,
    failed: Annotated[bool, typer.Option("--failed", help="Retry only failed tasks (the default).")] = True,
    env: EnvOption = None,
    output: Output = Format.table,
) -> None:
    """Submit the failed tasks of an array again, or one of them (12_5), in the same folder.

    headway job retry 12 --failed"""
    if not failed:
        raise typer.BadParameter("use headway job rerun to submit the whole array again")
    _once_more(words, env, output, "retry")


def rerun(
    words: JobArgument,
    env: EnvOption = None,
    output: Output = Format.table,
) -> None:
    """Submit the same job again, or one task of an array (12_5), in a new folder.

    Script, arguments, environment and files are those of the original submission.

    headway job rerun 12"""
    _once_more(words, env, output, "rerun")


def resume(
    words: JobArgument,
    checkpoint: Annotated[
        str, typer.Option("--from", metavar="step:N", help="Kept checkpoint from which the new job continues.")
    ],
    env: EnvOption = None,
    output: Output = Format.table,
) -> None:
    """Submit the same job again, in a new folder, and continue from a checkpoint that it has kept.

    The first job and its checkpoints stay as they are.

    headway job resume 12 --from step:4000"""
    from headway.schemas.submission.reruns import ResumeIn

    kind, _, step = checkpoint.partition(":")
    if kind != "step" or not (step.isascii() and step.isdecimal()) or len(step) > 15:
        raise typer.BadParameter("give the step of a checkpoint, such as --from step:4000")
    cluster, word = parse_job_words(words)
    api = common.connect()
    name = common.choose_cluster(api, cluster)
    number, task = common.split_job_id(word)
    request = ResumeIn(env=parse_env_options(env or []), task=task, step=int(step))
    _print_submitted(api.jobs.resume(name, number, request), output)


def _once_more(words: list[str], env: list[str] | None, output: Format, how: str) -> None:
    from headway.schemas.submission.reruns import RetryIn

    cluster, word = parse_job_words(words)
    api = common.connect()
    name = common.choose_cluster(api, cluster)
    number, task = common.split_job_id(word)
    request = RetryIn(env=parse_env_options(env or []), task=task)
    done = api.jobs.retry(name, number, request) if how == "retry" else api.jobs.rerun(name, number, request)
    _print_submitted(done, output)


def _print_submitted(done: SubmitOut, output: Format) -> None:
    if output is Format.json:
        print_json(done)
    else:
        common.print_line(f"Submitted batch job {done.job_id} on {done.cluster} as {done.user} in {done.workdir}")


def _dataset(row: dict[str, str]) -> str:
    if "sha256" not in row:
        return f"{row.get('name')} ({row.get('version')})"
    gone = (
        f", removed {formatting.local_time(int(row.get('removed_at', 0)))} {row['removed']}" if "removed" in row else ""
    )
    return f"{row.get('name')}@{row.get('version')} (sha256 {row['sha256'][:12]}{gone})"


def _show_lineage(found: LineageOut, output: Format) -> None:
    if output is Format.json:
        print_json(found)
        return
    git = found.git
    commit = f"{git.commit[:12]} ({git.branch}){', with uncommitted changes' if git.dirty else ''}" if git else ""
    rows: list[tuple[str, tables.Cell]] = [
        ("job", f"{found.job_id} on {found.cluster}, a {found.kind}{f' of {found.parent}' if found.parent else ''}"),
        ("submitted", f"{formatting.local_time(int(found.submitted_at))} by {found.person} as {found.user}"),
        ("pipeline", f"{found.pipeline}, step {found.step}" if found.pipeline else ""),
        ("sweep", f"{found.sweep}, trial {found.trial}" if found.sweep else ""),
        ("commit", commit),
        ("files", found.bundle),
        ("folder", found.workdir),
        ("launcher", found.launcher),
        *(("environment", _dataset(one)) for one in found.environments),
        ("container", " ".join(part for part in (found.container_image, found.container_digest) if part)),
        ("datasets", ", ".join(map(_dataset, found.datasets))),
        ("sbatch", " ".join(found.sbatch_args)),
        ("arguments", " ".join(found.script_args)),
        ("environment", " ".join(f"{name}={value}" for name, value in sorted(found.env.items()))),
        ("allocation", f"{found.nodes} ({found.gpus} GPUs), {found.partition}, {found.account}" if found.nodes else ""),
        ("state", found.state),
        ("checkpoints", f"{found.checkpoint_dir}: {', '.join(found.checkpoints) or 'none'}" if found.checkpoint_dir else ""),
    ]  # fmt: skip
    tables.print_facts(rows)
    common.print_line(f"script {found.script_name}:")
    for line in found.script.rstrip("\n").split("\n"):
        common.print_line(f"  {without_control_characters(line)}")


def _facts(j: JobOut, cluster: str, simulated: bool, terminal: Terminal) -> list[tuple[str, tables.Cell]]:
    gpus: list[Span] = [(str(j.gpus), ""), (" SIMULATED" if simulated else "", "warn")] if j.gpus else []
    loss = (
        f"{j.progress.loss_word(4) or 'none reported'} at step {j.progress.step}"
        if j.progress and j.progress.reported
        else ""
    )
    if j.progress and j.progress.tokens_per_s is not None:
        loss += f", {j.progress.tokens_per_s:,.0f} tokens/s"
    curve = formatting.sparkline([v for _, v in j.progress.series], terminal) if j.progress else ""
    why = f"({j.reason})" if j.reason not in {"", "None"} and j.state != "RUNNING" else ""
    place = j.nodelist or ",".join(j.nodes)
    if j.tasks:
        return _array_facts(j, j.tasks, cluster, gpus)
    return [
        ("job", f"{job_label(j.id, j.array_job_id, j.array_task)} {j.name}"),
        ("state", [(j.state, formatting.job_style(j.state)), (f" {why}" if why else "", "")]),
        ("why", j.why),
        ("last error", j.error),
        ("reports", _reports(j)),
        ("warning", j.progress.warning if j.progress else ""),
        ("needs", j.needs),
        ("restarts", str(j.restarts or "")),
        ("cluster", cluster),
        ("user", f"{j.user} ({j.account})" if j.account else j.user),
        ("partition", f"{j.partition}, QOS {j.qos}" if j.qos else j.partition),
        ("nodes", f"{j.node_count or len(j.nodes) or ''}{f': {place}' if place else ''}"),
        ("gpus", gpus),
        ("submitted", formatting.local_time(j.submit_time)),
        ("started", formatting.local_time(j.start_time) if j.state not in WAITING else ""),
        ("expected", _expected(j)),
        ("ended", formatting.local_time(j.end_time) if j.state in ENDED else ""),
        ("elapsed", f"{formatting.duration(j.elapsed_s)} of {formatting.duration(j.time_limit_s)}"),
        ("loss", loss),
        ("", (curve, "busy")),
        ("ETTR", _effective_time(j)),
        ("exit code", str(j.exit_code) if j.exit_code else ""),
        ("command", PurePosixPath(j.command).name if j.command.startswith(_PASSING) else j.command),
        ("folder", j.workdir),
        ("output", j.stdout),
        ("errors", j.stderr if j.stderr != j.stdout else ""),
    ]  # fmt: skip


def _reports(j: JobOut) -> str:
    """Returns the newest value of each metric of the training; those of its last report if the server has no others."""
    if j.metrics:
        return ", ".join(f"{one.name} {one.text}" for one in j.metrics)
    return ", ".join(f"{name} {value:.6g}" for name, value in j.progress.more.items()) if j.progress else ""


def _expected(j: JobOut) -> str:
    """Returns when and where Slurm plans to start the job."""
    if j.state not in WAITING or not j.start_time:
        return ""
    return formatting.local_time(j.start_time) + (f" on {j.expected_nodes}" if j.expected_nodes else "")


def _effective_time(j: JobOut) -> str:
    """The effective training time ratio, and where the rest went."""
    time = j.progress.effective_time if j.progress else None
    if time is None:
        return ""
    return f"{time.ettr:.3f}: {time.lost_s:.0f} s of repeated work, {time.down_s:.0f} s between its runs"


def _array_facts(j: JobOut, array: ArrayOut, cluster: str, gpus: list[Span]) -> list[tuple[str, tables.Cell]]:
    """Returns facts of all tasks: Slurm's record under the array's number is only one of them."""
    waits = j.state in WAITING and bool(array.pending)
    ended = "FAILED" if array.failed else "CANCELLED" if array.cancelled else "COMPLETED"
    state = "RUNNING" if array.running else "PENDING" if array.pending else ended
    each: list[Span] = [*gpus, (" for each task", "")] if gpus else []
    return [
        ("array", f"{j.array_job_id} {j.name}"),
        ("state", [(state, formatting.job_style(state))]),
        ("why", j.why if waits else ""),
        ("tasks", _tasks(array)),
        ("cluster", cluster),
        ("user", f"{j.user} ({j.account})" if j.account else j.user),
        ("partition", f"{j.partition}, QOS {j.qos}" if j.qos else j.partition),
        ("gpus", each),
        ("submitted", formatting.local_time(j.submit_time)),
        ("command", PurePosixPath(j.command).name if j.command.startswith(_PASSING) else j.command),
        ("folder", j.workdir),
        ("one task", f"headway job {cluster} {j.array_job_id}_NUMBER"),
    ]


def _tasks(array: ArrayOut) -> str:
    text = (
        f"{array.done} of {array.total} done, {array.failed} failed, {array.running} running, {array.pending} waiting"
        + (f", {array.cancelled} cancelled" if array.cancelled else "")
    )
    return f"{text}; failed: {array.failed_tasks}" if array.failed_tasks else text


class _ShowsByDefault(TyperGroup):
    """`headway job 12` is `headway job show 12`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        completes = ctx.resilient_parsing and not args  # of these commands, which are still to be typed
        if not completes and (not args or args[0] not in (*self.commands, "-h", "--help")):
            args = ["show", *args]
        return super().parse_args(ctx, args)


job = typer.Typer(
    cls=_ShowsByDefault, help="Show, retry, rerun or resume one job.", rich_markup_mode=None,
    add_completion=False,
)  # fmt: skip
job.command("show")(show_job)
job.command("stacks")(stacks)
job.command("metrics")(metrics)
job.command("compare")(compare)
job.command("note")(note)
job.command("retry")(retry)
job.command("rerun")(rerun)
job.command("resume")(resume)
