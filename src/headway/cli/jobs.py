"""job, logs, cancel: one job at a time."""

from __future__ import annotations

import sys
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Annotated

import typer

from headway.cli import session, show
from headway.cli.queue import job_label
from headway.cli.session import Format, Output
from headway.errors import HeadwayError

if TYPE_CHECKING:
    from headway.wire.schemas import JobOut

_PASSING = "/tmp/headway-"  # where a submitted script lay while sbatch read it; nothing is there now
_HELP = "The cluster may be left out when there is one."
Words = Annotated[
    list[str], typer.Argument(metavar="[CLUSTER] JOB", help=_HELP, autocompletion=session.complete_cluster)
]
ManyWords = Annotated[
    list[str], typer.Argument(metavar="[CLUSTER] JOB...", help=_HELP, autocompletion=session.complete_cluster)
]


def job(words: Words, output: Output = Format.table) -> None:
    """All about one job."""
    cluster, word = _one_job(words)
    api = session.connect()
    name = session.pick(api, cluster)
    found = api.job(name, session.job_id(api, name, word))
    if output is Format.json:
        session.print_json(found)
        return
    simulated = bool(found.gpus) and api.cluster(name).simulated_gpus
    on = show.screen()
    for line in show.facts(_facts(found, name, simulated, on), on):
        session.say(line)


def _facts(j: JobOut, cluster: str, simulated: bool, on: show.Screen) -> list[tuple[str, show.Cell]]:
    gpus: list[show.Span] = [(str(j.gpus), ""), (" SIMULATED" if simulated else "", "warn")] if j.gpus else []
    loss = f"{j.progress.loss:.4f} at step {j.progress.step}" if j.progress else ""
    curve = show.sparkline([v for _, v in j.progress.series], on) if j.progress else ""
    why = f"({j.reason})" if j.reason not in {"", "None"} and j.state != "RUNNING" else ""
    place = j.nodelist or ",".join(j.nodes)
    return [
        ("job", f"{job_label(j)} {j.name}"),
        ("state", [(j.state, show.job_style(j.state)), (f" {why}" if why else "", "")]),
        ("restarts", str(j.restarts or "")),
        ("cluster", cluster),
        ("user", f"{j.user} ({j.account})" if j.account else j.user),
        ("partition", f"{j.partition}, QOS {j.qos}" if j.qos else j.partition),
        ("nodes", f"{j.node_count or len(j.nodes) or ''}{f': {place}' if place else ''}"),
        ("gpus", gpus),
        ("submitted", show.moment(j.submit_time)),
        ("started", show.moment(j.start_time) if j.state != "PENDING" else ""),
        ("expected", show.moment(j.start_time) if j.state == "PENDING" else ""),
        ("ended", show.moment(j.end_time) if j.state not in {"PENDING", "RUNNING", "COMPLETING"} else ""),
        ("elapsed", f"{show.duration(j.elapsed_s)} of {show.duration(j.time_limit_s)}"),
        ("loss", loss),
        ("", (curve, "busy")),
        ("exit code", str(j.exit_code) if j.exit_code else ""),
        ("command", PurePosixPath(j.command).name if j.command.startswith(_PASSING) else j.command),
        ("folder", j.workdir),
        ("output", j.stdout),
        ("errors", j.stderr if j.stderr != j.stdout else ""),
    ]  # fmt: skip


def logs(
    words: Words,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on until the job ends.")] = False,
    err: Annotated[bool, typer.Option("--err", help="Its error output, where the job keeps it apart.")] = False,
) -> None:
    """A job's output.

    headway logs -f 12"""
    cluster, word = _one_job(words)
    api = session.connect()
    name = session.pick(api, cluster)
    number = session.job_id(api, name, word)
    try:
        for piece in api.log(name, number, follow=follow, err=err):
            sys.stdout.buffer.write(piece)
            sys.stdout.buffer.flush()
    except KeyboardInterrupt:
        session.note(f"\njob {number} goes on; follow it again: headway logs {name} -f {number}")
        raise typer.Exit(130) from None


def cancel(words: ManyWords) -> None:
    """Cancel jobs.

    headway cancel 12 13"""
    cluster, rest = session.split_cluster(words)
    session.check_job_ids(rest)
    if not rest:
        raise typer.BadParameter("which job?")
    api = session.connect()
    name = session.pick(api, cluster)
    failed: HeadwayError | None = None
    for word in rest:
        try:
            api.cancel(name, session.job_id(api, name, word))
        except HeadwayError as error:
            if failed is not None:
                session.note(failed.message)
            failed = error
        else:
            session.say(f"cancelled {word} on {name}")
    if failed is not None:
        raise failed


def _one_job(words: list[str]) -> tuple[str, str]:
    cluster, rest = session.split_cluster(words)
    if len(rest) != 1:
        raise typer.BadParameter("one job id is needed" if not rest else f"one job id, not {len(rest)}")
    session.check_job_ids(rest)
    return cluster, rest[0]
