"""The table of trainings, and what differs between two of them. All filters are in the address."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlencode

from fastapi import Query
from starlette.responses import Response

from headway.api.auth.dependencies import Anyone, Member, State
from headway.api.http.pagination import Cursor
from headway.domain.slurm.job_states import ENDED, RUNNING
from headway.errors import Refused
from headway.schemas.trainings import TrainingsOut
from headway.services.access.role_rights import Right
from headway.services.jobs.trainings.training_comparison import compare_trainings
from headway.services.jobs.trainings.training_list import list_trainings
from headway.services.jobs.trainings.training_query import parse_conditions, parse_sort
from headway.store.jobs.trainings import TrainingQuery
from headway.web.page_context import redirect_with_message
from headway.web.page_routes import page_router
from headway.web.rendering import render

router = page_router()
_ROWS = 50
_FIRST = 3  # metrics that are shown if none is chosen
_STATES = ("RUNNING", "PENDING", *sorted(ENDED))
_Word = Annotated[str, Query(max_length=200)]


@router.get("/clusters/{name}/trainings", response_model=None)
async def trainings_page(
    name: str,
    state: State,
    who: Anyone,
    q: _Word = "",
    user: _Word = "",
    team: _Word = "",
    tag: _Word = "",
    job_state: Annotated[str, Query(alias="state", max_length=40)] = "",
    where: _Word = "",
    metrics: Annotated[str, Query(max_length=1000)] = "",
    sort: _Word = "",
    cursor: Cursor = "",
) -> Response:
    """Returns jobs that reported metrics. `where`: conditions, separated by commas; `metrics`: columns, separated by commas."""
    ask = {
        "q": q, "user": user, "team": team, "tag": tag, "state": job_state, "where": where, "metrics": metrics, "sort": sort,
    }  # fmt: skip
    _, cluster = await state.clusters.get(name)
    problem, found = "", TrainingsOut(cluster=name, total=0)
    try:
        key, descending = parse_sort(sort)
        conditions = parse_conditions(filter(None, map(str.strip, where.split(","))))
        only = [frozenset({value} - {""}) for value in (user, team, job_state, tag)]
        query = TrainingQuery(only[0], only[1], only[2], only[3], q, conditions, key, descending)
        found = await list_trainings(state, who, name, query, cursor=cursor, limit=_ROWS)
    except Refused as error:
        problem = f"{error.message}; {error.hint}" if error.hint else error.message
    given = {key: value for key, value in ask.items() if value}
    chosen = [word.strip() for word in metrics.split(",") if word.strip()]
    columns = [(word, *_split(word)) for word in (chosen or found.names[:_FIRST])]

    def href(order: str) -> str:
        return f"/clusters/{name}/trainings?{urlencode({**given, 'sort': order})}"

    api = {key: value for key, value in given.items() if key not in ("where", "metrics")}
    export = [
        *api.items(),
        *(("where", word) for word in where.split(",") if word),
        *(("metric", c[0]) for c in columns),
    ]
    return render(
        "trainings.html",
        viewer=who,
        name=name,
        tab="trainings",
        found=found,
        ask=ask,
        narrowed=bool(set(given) - {"sort", "metrics"}),
        columns=columns,
        href=href,
        problem=problem,
        may_compare=who.may(Right.RUN_JOBS),
        export=urlencode(export),
        after=f"?{urlencode({**given, 'cursor': found.next})}" if found.next else "",
        before=f"?{urlencode(given)}" if cursor else "",
        states=_STATES,
        running=RUNNING,
        teams=[one.name for one in cluster.teams],
        tags=await state.store.trainings.tags(name),
    )


@router.get("/clusters/{name}/trainings/compare", response_model=None)
async def compare_page(
    name: str,
    state: State,
    who: Member,
    job: Annotated[list[int], Query(max_length=100)] = [],  # noqa: B006
) -> Response:
    """Returns what differs between two chosen jobs."""
    if len(job) != 2 or min(job) < 1 or max(job) >= 2**31:
        return redirect_with_message(f"/clusters/{name}/trainings", "Choose two trainings to compare them.")
    found = await compare_trainings(state, who, name, *job)
    return render("training_comparison.html", viewer=who, name=name, tab="trainings", found=found)


def _split(word: str) -> tuple[str, str]:
    """Returns (metric, which of its values) for "loss:lowest"."""
    metric, _, value = word.partition(":")
    return metric, value if value in ("lowest", "highest") else "last"
