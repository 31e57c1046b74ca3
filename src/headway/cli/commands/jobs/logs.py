"""logs: prints and follows the output of a job."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from headway.cli import common
from headway.cli.options.job_arguments import JobArgument, parse_job_words
from headway.cli.output.terminal_filter import TerminalFilter


def logs(
    words: JobArgument,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Follow the output until the job ends.")] = False,
    err: Annotated[
        bool, typer.Option("--err", help="Print standard error, if the job writes it to its own file.")
    ] = False,
    task: Annotated[str, typer.Option("--task", metavar="NUMBER", help="Print only this task of an array.")] = "",
    raw: Annotated[
        bool, typer.Option("--raw", help="On a terminal, print all control characters and escape sequences.")
    ] = False,
) -> None:
    """Print a job's output; for an array every task's, each line with the task's number.

    On a terminal, control characters other than colours and line feeds are shown as ^X.

    headway logs -f 12"""
    cluster, word = parse_job_words(words)
    api = common.connect()
    name = common.choose_cluster(api, cluster)
    number, of_array = common.split_job_id(word)
    if task and not task.isdigit():
        raise typer.BadParameter(f"--task {task!r} is not a task number")
    one_task = task or of_array
    shown = TerminalFilter() if sys.stdout.isatty() and not raw else None
    try:
        for piece in api.jobs.log(name, number, follow=follow, err=err, task=one_task):
            _write(shown.feed(piece) if shown else piece)
    except KeyboardInterrupt:
        common.print_note(f"\njob {number} continues; follow it again: headway logs {name} -f {number}")
        raise typer.Exit(130) from None
    finally:
        if shown:
            _write(shown.end())


def _write(piece: str | bytes) -> None:
    """Writes to standard output at once, in UTF-8 as the log is."""
    sys.stdout.buffer.write(piece.encode() if isinstance(piece, str) else piece)
    sys.stdout.buffer.flush()
