"""Browser sessions."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from headway.api.auth.dependencies import State, TokenOwner
from headway.api.http.pagination import ANY, Page, Words, fits
from headway.schemas.access.sessions import SessionOut
from headway.schemas.base import API_PREFIX
from headway.services.access import session_list as service

router = APIRouter(prefix=API_PREFIX, tags=["people"])


@router.get("/sessions")
async def list_sessions(
    state: State, who: TokenOwner, request: Request, page: Page, person: Words = ANY
) -> list[SessionOut]:
    """Returns the person's own browser sessions; for admins those of all people."""
    found = await service.list_sessions(state, who, request.cookies.get(state.settings.cookie, ""))
    wanted = [session for session in found if fits(session.person, person)]
    return page.cut(wanted, lambda session: (session.created_at, session.id))


@router.delete("/sessions/{session_id}", status_code=204)
async def end_session(session_id: str, state: State, who: TokenOwner) -> Response:
    """Signs a browser out. Its person's open notebooks end too."""
    await service.end_session(state, who, session_id)
    return Response(status_code=204)
