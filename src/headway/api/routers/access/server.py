"""The server itself, and the signed-in person."""

from __future__ import annotations

from fastapi import APIRouter

from headway import __version__
from headway.api.auth.dependencies import Admin, AnyoneAllClusters, State
from headway.schemas.base import API_PREFIX
from headway.schemas.server import KeyRotatedOut, MeOut, ServerOut
from headway.services.access.people import describe_server
from headway.services.access.server_key import rotate_server_key

router = APIRouter(prefix=API_PREFIX, tags=["people"])


@router.get("/me")
async def get_me(who: AnyoneAllClusters) -> MeOut:
    """Returns the person of the token or session."""
    return MeOut(person=who.person, role=who.role, version=__version__)


@router.get("/server")
async def get_server(state: State, who: AnyoneAllClusters) -> ServerOut:
    """Returns the server's address and version. Only admins also get its process, folder and database."""
    return await describe_server(state, who)


@router.post("/server/key/rotate")
async def rotate_key(state: State, who: Admin) -> KeyRotatedOut:
    """Encrypts all secrets in the server's database with a new key."""
    return await rotate_server_key(state, who)
