"""The MLflow server, as people read it: MLflow's own REST API and pages, for one team."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from headway.api.auth.dependencies import Member, State
from headway.errors import NotAllowed
from headway.schemas.base import API_PREFIX
from headway.services.mlflow.reading import SERVER_INFO, check_team, read_mlflow

# MLflow's own addresses and answers, which MLflow documents
router = APIRouter(prefix=f"{API_PREFIX}/clusters/{{name}}/mlflow", tags=["jobs"], include_in_schema=False)


@router.get("/{team}/{path:path}")
async def read(name: str, team: str, path: str, request: Request, state: State, who: Member) -> Response:
    """Returns an answer of MLflow."""
    return await _answer(name, team, path, request, state, who)


@router.post("/{team}/{path:path}")
async def search(name: str, team: str, path: str, request: Request, state: State, who: Member) -> Response:
    """Returns what MLflow finds."""
    return await _answer(name, team, path, request, state, who)


async def _answer(name: str, team: str, path: str, request: Request, state: State, who: Member) -> Response:
    if "authorization" not in request.headers:
        # MLflow shows files of jobs, which must not act in a browser as the person who looks at them.
        raise NotAllowed(
            "MLflow is not read with a browser's session", hint=f"headway mlflow ui {team} --cluster {name}"
        )
    cluster = await check_team(state, who, name, team)
    if SERVER_INFO.fullmatch(path):  # without workspaces: the address names the team
        return JSONResponse({"store_type": "SqlStore", "workspaces_enabled": False})
    answer = await read_mlflow(
        state, cluster, team, request.method, path, request.url.query, request.headers, await request.body()
    )
    return StreamingResponse(answer.pieces, answer.status, answer.headers)
