"""cancel: ends jobs."""

from __future__ import annotations

import typer

from headway.cli import common
from headway.cli.options.job_arguments import JobsArgument
from headway.errors import HeadwayError


def cancel(words: JobsArgument) -> None:
    """Cancel jobs.

    headway cancel 12 13"""
    cluster, rest = common.split_cluster(words)
    common.check_job_ids(rest)
    if not rest:
        raise typer.BadParameter("give a job id")
    api = common.connect()
    name = common.choose_cluster(api, cluster)
    failed: HeadwayError | None = None
    for word in rest:
        try:
            number, task = common.split_job_id(word)
            api.jobs.cancel(name, number, task=task)
        except HeadwayError as error:
            if failed is not None:
                common.print_note(failed.message)
            failed = error
        else:
            common.print_line(f"cancelled {word} on {name}")
    if failed is not None:
        raise failed
