"""The route class of pages: errors become pages, and pages are not in the OpenAPI schema."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from urllib.parse import quote, urlsplit

import structlog
from fastapi import APIRouter, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, Response

from headway.api.http import event_response
from headway.api.http.failure_audit import audit_failure
from headway.api.http.security_headers import PAGE_HEADERS
from headway.domain.access.session_validity import SIGNIN_CODE_S
from headway.errors import HeadwayError, NotSignedIn, Refused, SignInAgain
from headway.services.access.role_rights import RECENT_SIGN_IN_S, Principal
from headway.services.app_state import AppState
from headway.services.error_report import error_out
from headway.services.server_settings import Oidc
from headway.web import page_context, page_stream
from headway.web.rendering import render, render_part

log = structlog.get_logger("headway.web")


class _Bug(HeadwayError):
    """An unexpected error, with a message that may be shown to people."""

    http_status = 500
    kind = "bug"

    @staticmethod
    def of(error: Exception) -> _Bug:
        """Returns the error with a message that may be shown."""
        out = error_out(error)
        return _Bug(out.message, hint=out.hint)


class PageRoute(APIRoute):
    """A route that turns errors into pages, or into a message on the page for htmx requests."""

    def get_route_handler(self) -> Callable[[Request], Awaitable[Response]]:  # type: ignore[override]
        """Returns the handler that loads the page's context and turns errors into pages."""
        handle = super().get_route_handler()

        async def answer(request: Request) -> Response:
            try:
                await page_context.load_page_context(request)
                made = await handle(request)
            except NotSignedIn:
                made = _sign_in_page(request)
            except SignInAgain as error:
                await audit_failure(request, error)
                made = _sign_in_again(request, error)
            except HeadwayError as error:
                await audit_failure(request, error)
                made = _error(request, error)
                if error.retry_after_s:
                    made.headers["retry-after"] = str(error.retry_after_s)
            except RequestValidationError as error:
                made = _error(request, Refused(_words(error)))
            except HTTPException:
                raise
            except Exception as error:
                log.error("bug", path=request.url.path, exc_info=error)
                made = _error(request, _Bug.of(error))
            page_context.clear_flash(request, made)
            return made

        return answer


def _sign_in_page(request: Request) -> Response:
    """Returns the sign-in page. An htmx request gets a message instead, because the page may contain unsaved input.
    A stream gets `leave`, which makes its page reload, because browsers do not give a page the stream's HTTP status."""
    if "text/event-stream" in request.headers.get("accept", ""):
        return Response(page_stream.LEAVE.encode(), media_type="text/event-stream", headers=event_response.HEADERS)
    if request.headers.get("hx-request") == "true":
        return _toast(NotSignedIn("your session has ended", hint="sign in in another tab: the text typed here is kept"))
    return render_sign_in(_provider(request), 401)


def _sign_in_again(request: Request, error: SignInAgain) -> Response:
    """Returns the sign-in page, which leads back to the page with the form that was sent. htmx opens it as a page of its
    own."""
    if request.headers.get("hx-request") == "true":
        back = local_path(_path_of(request.headers.get("hx-current-url", "")))
        return HTMLResponse("", headers={**PAGE_HEADERS, "HX-Redirect": f"/signin/again?next={quote(back)}"})
    back = local_path(_path_of(request.headers.get("referer", "")))
    return render_sign_in(_provider(request), error.http_status, error, again=True, next_path=back)


def render_sign_in(
    provider: Oidc | None,
    status: int = 200,
    fault: HeadwayError | None = None,
    *,
    person: str = "",
    code: str = "",
    again: bool = False,
    next_path: str = "/",
) -> Response:
    """Returns the sign-in page. `again`: for a person who is signed in, and goes on at `next_path`."""
    return render(
        "signin.html",
        status=status,
        provider=provider,
        fault=fault,
        person=person,
        code=code,
        again=again,
        next=next_path,
        recent_minutes=round(RECENT_SIGN_IN_S / 60),
        link_minutes=round(SIGNIN_CODE_S / 60),
    )


def _path_of(address: str) -> str:
    parts = urlsplit(address)
    return f"{parts.path}?{parts.query}" if parts.query else parts.path


def local_path(text: str) -> str:
    """Returns the path if it is one of this server's pages, else "/": a link must not lead to another site."""
    fits = text.startswith("/") and not text.startswith(("//", "/\\")) and text.isascii() and text.isprintable()
    return text if fits and len(text) <= 500 and "\\" not in text else "/"


def _provider(request: Request) -> Oidc | None:
    """Returns the OpenID provider that people may sign in with; None without one."""
    state: AppState | None = getattr(request.app.state, "headway", None)
    return state.settings.oidc if state else None


def _error(request: Request, error: HeadwayError) -> Response:
    """Returns a whole page; for htmx form requests a message in the corner, for htmx GET requests only the status."""
    if request.headers.get("hx-request") != "true":
        viewer: Principal | None = getattr(request.state, "principal", None)
        return render("error.html", status=error.http_status, viewer=viewer, error=error)
    if request.method == "GET":
        return HTMLResponse("", status_code=error.http_status, headers={**PAGE_HEADERS, "HX-Reswap": "none"})
    return _toast(error)


def _toast(error: HeadwayError) -> Response:
    page_context.flash_message.set(page_context.FlashMessage(error.message, is_error=True, hint=error.hint))
    headers = {**PAGE_HEADERS, "HX-Retarget": "#toasts", "HX-Reselect": ".toast", "HX-Reswap": "innerHTML"}
    return HTMLResponse(render_part("toast", None), status_code=error.http_status, headers=headers)


def _words(error: RequestValidationError) -> str:
    found = error.errors()
    where = ".".join(str(word) for word in found[0]["loc"][1:]) if found else ""
    return f"{where}: {found[0]['msg']}" if where else "the request can't be read"


def page_router() -> APIRouter:
    """Returns a router for a module of pages/. Its endpoints take `state: State` and `who: Anyone` like those of the
    API, call the API's services, and return `render(...)`."""
    return APIRouter(route_class=PageRoute, include_in_schema=False)
