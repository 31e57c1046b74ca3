"""Data that every page needs besides its own content: the cluster in its address, and a flash message."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from urllib.parse import quote, unquote

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from headway.schemas.clusters import ClusterOut
from headway.services.app_state import AppState
from headway.services.cluster.cluster_to_schema import cluster_out

_COOKIE = "headway_flash"
_MAX_AGE_S = 20  # seconds; the cookie lives from a form's redirect to the page that follows
_MAX_CHARS = 400


@dataclass(frozen=True, slots=True)
class FlashMessage:
    """A message that the next page shows once."""

    text: str
    is_error: bool = False
    hint: str = ""


current_cluster: ContextVar[ClusterOut | None] = ContextVar("current_cluster", default=None)
flash_message: ContextVar[FlashMessage | None] = ContextVar("flash_message", default=None)
_https: ContextVar[bool] = ContextVar("https", default=False)  # whether people use the server over TLS


async def load_page_context(request: Request) -> None:
    """Sets `current_cluster` and `flash_message` for the request."""
    state: AppState | None = getattr(request.app.state, "headway", None)
    _https.set(state is not None and state.settings.https)
    current_cluster.set(await _cluster_of(request))
    flash_message.set(_read_flash(request))


async def _cluster_of(request: Request) -> ClusterOut | None:
    """Returns the cluster in the address with its last reading; None on other pages."""
    name = request.path_params.get("name")
    state: AppState | None = getattr(request.app.state, "headway", None)
    if not isinstance(name, str) or state is None:
        return None
    row = await state.store.clusters.get(name)
    return cluster_out(row, state.live.snapshot(name)) if row else None


def _read_flash(request: Request) -> FlashMessage | None:
    text = unquote(request.cookies.get(_cookie(), ""))[:_MAX_CHARS]
    return FlashMessage(text[1:], text.startswith("!")) if text else None


def redirect_with_message(path: str, message: str = "", *, is_error: bool = False) -> Response:
    """Returns a redirect (303) after a form, to a page that shows `message` once."""
    answer = RedirectResponse(path, status_code=303, headers={"Cache-Control": "no-store"})
    if message:
        text = quote(("!" if is_error else " ") + message[: _MAX_CHARS - 1])
        answer.set_cookie(_cookie(), text, max_age=_MAX_AGE_S, httponly=True, samesite="strict", secure=_https.get())
    return answer


def clear_flash(request: Request, answer: Response) -> None:
    """Deletes the flash cookie once a page has shown it."""
    if request.cookies.get(_cookie()) and answer.status_code != 303:
        answer.delete_cookie(_cookie(), secure=_https.get(), httponly=True, samesite="strict")


def _cookie() -> str:
    """Returns the name of the flash cookie. Over TLS no page on another port can override it."""
    return f"__Host-{_COOKIE}" if _https.get() else _COOKIE
