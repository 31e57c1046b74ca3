"""What people may read of the MLflow server: the workspace of one of their teams."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headway.errors import NotAllowed, NotFound, Unreachable
from headway.services.access.ownership_rights import cluster_to_work_on
from headway.services.access.role_rights import Principal, Right
from headway.services.app_state import AppState
from headway.services.mlflow.journals import team_api
from headway.services.mlflow.mlflow_api import WORKSPACE_HEADER, request_path

if TYPE_CHECKING:
    import httpx

# POST requests of MLflow that only read
_SEARCHES = re.compile(
    r"(ajax-)?api/[23]\.0/mlflow/((runs|experiments|logged-models|traces|datasets)/search|traces/search-v[0-9]+"
    r"|experiments/search-datasets|logged-models/search-datasets|runs/search-datasets|metrics/get-history-bulk[a-z-]*)|graphql"
)
# Other teams are named there.
_OTHER_TEAMS = re.compile(r"(ajax-)?api/3\.0/mlflow/workspaces(/.*)?")
SERVER_INFO = re.compile(r"(ajax-)?api/3\.0/mlflow/server-info")
_SENT = ("accept", "content-type", "range", "if-none-match", "if-modified-since")
_RETURNED = (
    "content-type",
    "content-length",
    "content-disposition",
    "content-range",
    "etag",
    "last-modified",
    "cache-control",
)


@dataclass(frozen=True)
class MlflowAnswer:
    """An answer of the MLflow server."""

    status: int
    headers: dict[str, str]
    pieces: AsyncIterator[bytes]


def search_only(method: str, path: str) -> bool:
    """Returns whether a request only reads."""
    return method == "GET" or bool(_SEARCHES.fullmatch(path))


async def check_team(state: AppState, who: Principal, name: str, team: str) -> str:
    """Returns the cluster's name. Raises NotFound for a team that it does not have, and NotAllowed for one whose member the
    person is not."""
    cluster = await cluster_to_work_on(state, name, who)
    found = next((one for one in cluster.teams if one.name == team), None)
    if found is None:
        raise NotFound(f"{name} has no team {team}", hint=f"headway status {name}")
    if not who.may(Right.ADMIN) and who.user not in found.users:
        raise NotAllowed(f"{who.person} is not in team {team} of {name}", hint="ask an admin of the cluster")
    return cluster.name


async def read_mlflow(
    state: AppState,
    cluster: str,
    team: str,
    method: str,
    path: str,
    query: str,
    headers: Mapping[str, str],
    body: bytes,
) -> MlflowAnswer:
    """Returns the MLflow server's answer in the workspace of a team. Raises NotAllowed for a request that changes something, and
    Unreachable if the MLflow server does not run."""
    import httpx

    if not search_only(method, path) or _OTHER_TEAMS.fullmatch(path):
        raise NotAllowed("only reading is allowed here", hint="jobs write to MLflow: docs/howto/mlflow.md")
    sent_path = request_path(f"/{path}")
    api = await team_api(state, cluster, team)
    http = state.mlflow.http
    if http is None:
        raise Unreachable(f"the MLflow server is {state.mlflow.state}", hint="headway mlflow status")
    sent = {name: value for name, value in headers.items() if name in _SENT} | {WORKSPACE_HEADER: api.workspace}
    url = httpx.URL(path=sent_path, query=query.encode() or None)
    try:
        answer = await http.send(http.build_request(method, url, content=body, headers=sent), stream=True)
    except httpx.HTTPError as error:
        raise Unreachable(f"the MLflow server does not answer: {error!r}", hint="headway mlflow status") from None
    returned = {name: answer.headers[name] for name in _RETURNED if name in answer.headers}
    if "content-encoding" in answer.headers:
        returned.pop("content-length", None)
    return MlflowAnswer(answer.status_code, returned, _pieces(answer))


async def _pieces(answer: httpx.Response) -> AsyncIterator[bytes]:
    try:
        async for piece in answer.aiter_bytes():
            yield piece
    finally:
        await answer.aclose()
