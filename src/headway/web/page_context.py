"""What every page carries besides its own content: the cluster it is about, and what was just said to the person."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from urllib.parse import quote, unquote

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from headway.schemas.clusters import ClusterOut
from headway.services.context import AppState
from headway.services.mappers import cluster_out

COOKIE = "headway_said"
_LIFE_S = 20  # the time between a form's answer and the page it leads to
_MOST = 400


@dataclass(frozen=True, slots=True)
class Said:
    """One message to the person, shown once."""

    text: str
    bad: bool = False
    hint: str = ""


place: ContextVar[ClusterOut | None] = ContextVar("place", default=None)
said: ContextVar[Said | None] = ContextVar("said", default=None)


async def arrive(request: Request) -> None:
    """Sets both for the request's page."""
    place.set(await _place(request))
    said.set(_said(request))


async def _place(request: Request) -> ClusterOut | None:
    """The cluster in the address, from memory; None on a page of no cluster."""
    name = request.path_params.get("name")
    state: AppState | None = getattr(request.app.state, "headway", None)
    if not isinstance(name, str) or state is None:
        return None
    row = await state.store.clusters.get(name)
    return cluster_out(row, state.live.snapshot(name)) if row else None


def _said(request: Request) -> Said | None:
    text = unquote(request.cookies.get(COOKIE, ""))[:_MOST]
    return Said(text[1:], text.startswith("!")) if text else None


def see_other(path: str, told: str = "", *, bad: bool = False) -> Response:
    """After a form: sends the browser to a page, which says `told` once."""
    answer = RedirectResponse(path, status_code=303, headers={"Cache-Control": "no-store"})
    if told:
        text = quote(("!" if bad else " ") + told[: _MOST - 1])
        answer.set_cookie(COOKIE, text, max_age=_LIFE_S, httponly=True, samesite="strict")
    return answer


def forget_said(request: Request, answer: Response) -> None:
    """What was shown is not shown again."""
    if request.cookies.get(COOKIE) and answer.status_code != 303:
        answer.delete_cookie(COOKIE)
