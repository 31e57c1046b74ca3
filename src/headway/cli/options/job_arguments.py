"""The words of a command that name a cluster and jobs."""

from __future__ import annotations

from typing import Annotated

import typer

from headway.cli import common

_HELP = "Job id (12), or a task of an array (12_3)."
JobArgument = Annotated[
    list[str], typer.Argument(metavar="[CLUSTER] JOB", help=_HELP, autocompletion=common.complete_cluster)
]
JobsArgument = Annotated[
    list[str], typer.Argument(metavar="[CLUSTER] JOB...", help=_HELP, autocompletion=common.complete_cluster)
]


def parse_job_words(words: list[str]) -> tuple[str | None, str]:
    """Returns (cluster or None, job) of the words of a command about one job. Raises BadParameter."""
    cluster, rest = common.split_cluster(words)
    if len(rest) != 1:
        raise typer.BadParameter("give one job id" if not rest else f"give one job id, not {len(rest)}")
    common.check_job_ids(rest)
    return cluster, rest[0]
