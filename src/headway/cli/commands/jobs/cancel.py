"""cancel: ends jobs."""

from __future__ import annotations

import typer

from headway.cli import session
from headway.cli.options.job_arguments import JobsArgument
from headway.errors import HeadwayError


def cancel(words: JobsArgument) -> None:
    """Cancel jobs.

    headway cancel 12 13"""
    cluster, rest = session.split_cluster(words)
    session.check_job_ids(rest)
    if not rest:
        raise typer.BadParameter("give a job id")
    api = session.connect()
    name = session.choose_cluster(api, cluster)
    failed: HeadwayError | None = None
    for word in rest:
        try:
            number, task = session.split_job_id(word)
            api.jobs.cancel(name, number, task=task)
        except HeadwayError as error:
            if failed is not None:
                session.print_note(failed.message)
            failed = error
        else:
            session.print_line(f"cancelled {word} on {name}")
    if failed is not None:
        raise failed
