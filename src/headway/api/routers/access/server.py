"""The server itself, and the signed-in person."""

from __future__ import annotations

from fastapi import APIRouter

from headway import __version__
from headway.api.auth.dependencies import AnyoneAllClusters, State
from headway.schemas.access.people import MeOut
from headway.schemas.server import ServerOut
from headway.services.access.people import describe_server

router = APIRouter(tags=["people"])


@router.get("/me")
async def me(who: AnyoneAllClusters) -> MeOut:
    """Returns the person of the token or session."""
    return MeOut(person=who.person, role=who.role, version=__version__)


@router.get("/server")
async def server(state: State, who: AnyoneAllClusters) -> ServerOut:
    """Returns the server's address and version. Only admins also get its process, folder and database."""
    return await describe_server(state, who)
