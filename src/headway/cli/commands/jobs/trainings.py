"""trainings: the table of jobs that reported metrics. job compare|note: two of them, and what people note."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from headway.cli import common
from headway.cli.common import ClusterName
from headway.cli.options.job_arguments import JobArgument, JobsArgument, parse_job_words
from headway.cli.options.option_conflicts import require_unset
from headway.cli.output.output_formats import Format, Output, print_json

if TYPE_CHECKING:
    from headway.sdk.resources.jobs import TrainingFilters

_Words = list[str] | None


def trainings(
    cluster: ClusterName = None,
    metric: Annotated[
        _Words,
        typer.Option("--metric", "-m", help="Show this metric; METRIC:lowest or METRIC:highest for its best value."),
    ] = None,
    where: Annotated[
        _Words, typer.Option("--where", help="Only where this holds, such as 'loss<2'. May be repeated.")
    ] = None,
    sort: Annotated[str, typer.Option("--sort", help="Sort by this metric; with - in front the highest first.")] = "",
    user: Annotated[_Words, typer.Option("--user", help="Only this user. May be repeated.")] = None,
    team: Annotated[_Words, typer.Option("--team", help="Only this team. May be repeated.")] = None,
    state: Annotated[
        _Words, typer.Option("--state", help="Only this state, such as COMPLETED. May be repeated.")
    ] = None,
    tag: Annotated[_Words, typer.Option("--tag", help="Only with this tag; if repeated, with all of them.")] = None,
    name: Annotated[str, typer.Option("--name", help="Only with this text in the name or note.")] = "",
    by: Annotated[
        str, typer.Option("--by", metavar="FIELD", help="Group by user, team, name, state, tag or commit.")
    ] = "",
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=1000, help="Number of rows.")] = 50,
    csv: Annotated[bool, typer.Option("--csv", help="Print all of them as CSV.")] = False,
    output: Output = Format.table,
) -> None:
    """List jobs that reported metrics, with values, cost, commit and tags.

    headway trainings --where 'val/loss<2' --sort val/loss:lowest -m val/loss:lowest
    headway trainings --by user -m loss"""
    from headway.cli.output.trainings import print_groups, print_trainings

    filters: TrainingFilters = {
        "user": user or [], "team": team or [], "state": [word.upper() for word in state or ()], "tag": tag or [], "q": name,
        "where": where or [], "sort": sort,
    }  # fmt: skip
    api = common.connect()
    place = common.choose_cluster(api, cluster)
    if csv:
        require_unset({"by": bool(by)}, "--csv", "it lists every training")
        for piece in api.jobs.trainings_csv(place, metric or (), **filters):
            typer.echo(piece.decode(), nl=False)
        return
    if by:
        groups = api.jobs.training_groups(place, by, metric=(metric or [""])[0].partition(":")[0], **filters)
        print_json(groups) if output is Format.json else print_groups(groups)
        return
    found = api.jobs.trainings(place, limit=limit, **filters)
    print_json(found) if output is Format.json else print_trainings(found, metric or [])


def compare(words: JobsArgument, output: Output = Format.table) -> None:
    """Show what differs between two jobs: script, arguments, variables, commit, environment, data, metrics.

    headway job compare 12 15"""
    from headway.cli.output.trainings import print_comparison

    cluster, rest = common.split_cluster(words)
    if len(rest) != 2 or not all(word.isdigit() for word in rest):
        raise typer.BadParameter("give two job ids, for example headway job compare 12 15")
    api = common.connect()
    found = api.jobs.compare(common.choose_cluster(api, cluster), int(rest[0]), int(rest[1]))
    print_json(found) if output is Format.json else print_comparison(found)


def note(
    words: JobArgument,
    text: Annotated[str | None, typer.Option("--text", "-t", help="Replace the note; '' removes it.")] = None,
    tag: Annotated[_Words, typer.Option("--tag", help="Add this tag. May be repeated.")] = None,
    untag: Annotated[_Words, typer.Option("--untag", help="Remove this tag. May be repeated.")] = None,
    output: Output = Format.table,
) -> None:
    """Change the note and the tags of a training.

    headway job note 12 --text "rate halved" --tag baseline"""
    from headway.schemas.trainings import TrainingNoteIn
    from headway.sdk.submission import build_request

    cluster, word = parse_job_words(words)
    api = common.connect()
    place = common.choose_cluster(api, cluster)
    number, task = common.split_job_id(word)
    job = common.get_job(api, place, word).id if task else number
    request = build_request(TrainingNoteIn, note=text, add_tags=tag or [], remove_tags=untag or [])
    found = api.jobs.annotate(place, job, request)
    if output is Format.json:
        print_json(found)
        return
    common.print_line(f"job {found.label}: {', '.join(found.tags) or 'no tags'}; {found.note or 'no note'}")
