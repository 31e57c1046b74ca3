"""Browser sessions: which are open, and signing them out. When one stops being valid: domain/access/session_validity.py."""

from __future__ import annotations

from headway.errors import NotFound
from headway.schemas.access.sessions import SessionOut
from headway.services.access.audit import write_audit_line
from headway.services.access.role_rights import Principal, Right
from headway.services.app_state import AppState


async def list_sessions(state: AppState, who: Principal, cookie: str = "") -> list[SessionOut]:
    """Returns the person's own open sessions, for an admin those of all people, the latest used first. `cookie` is that
    of the request, whose session is marked."""
    person = None if who.may(Right.ADMIN) else who.person
    return [SessionOut.model_validate(row) for row in await state.store.sessions.all(person, cookie)]


async def end_session(state: AppState, who: Principal, session_id: str) -> None:
    """Signs a browser out, and ends its person's notebook sessions. Raises NotFound, also for another person's session
    unless the person is an admin, and SignInAgain in a browser whose sign-in is old: a person at an unlocked screen must
    not lock its owner out elsewhere."""
    who.require_recent_sign_in(state.clock(), "end a session")
    found = next((session for session in await list_sessions(state, who) if session.id == session_id), None)
    if found is None:
        raise NotFound(f"no session {session_id!r}", hint="it may have ended already")
    await state.store.sessions.end(session_id)
    state.notebooks.end_sessions_of(found.person)
    await write_audit_line(state, who, "session.end", found.person, id=session_id)
