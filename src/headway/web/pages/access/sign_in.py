"""Pages for signing in and out.

GET  /signin                 the page, or with ?code= a sign-in link
POST /signin/link            follows a sign-in link that was opened from another site, after the person agreed
POST /signin                 signs in with a name and a token
GET  /signin/again           the page for a person whose sign-in is too old for what can't be undone
GET  /signin/oidc            redirects to the OpenID provider; with ?again=1 it asks for the password again
GET  /signin/oidc/back       the provider redirects here
POST /signin/oidc/logout     the provider says that a session or a person's sign-in has ended
POST /signout
"""

from __future__ import annotations

from typing import Annotated

from fastapi import Form, Query, Request
from starlette.responses import JSONResponse, RedirectResponse, Response

from headway.api.auth import sign_in
from headway.api.auth.dependencies import State
from headway.api.auth.oidc_logout import LOGOUT_PATH, log_out_by_provider
from headway.api.auth.same_origin import require_same_origin
from headway.api.http.security_headers import PAGE_HEADERS
from headway.errors import HeadwayError, NotAllowed, NotFound, NotSignedIn, TooManyTries, Unreachable
from headway.store import StoreUnavailable
from headway.web.page_routes import local_path, page_router, render_sign_in
from headway.web.rendering import render

router = page_router()


@router.get("/signin")
async def sign_in_page(request: Request, state: State, code: str = "") -> Response:
    """Returns the sign-in page, or signs in with a link's code."""
    if not code:
        return _sign_in_page(state)
    if _from_other_site(request):
        return _sign_in_page(state, code=code)  # a link on another site may sign in to another person's account
    return await _by_code(request, state, code)


def _from_other_site(request: Request) -> bool:
    return request.headers.get("sec-fetch-site", "none") not in ("none", "same-origin")


@router.get("/signin/again")
async def again_page(state: State, next_path: Annotated[str, Query(alias="next")] = "/") -> Response:
    """Returns the sign-in page, which leads back to the page `next`."""
    return render_sign_in(state.settings.oidc, again=True, next_path=local_path(next_path))


@router.post("/signin/link")
async def by_code(request: Request, state: State, code: Annotated[str, Form(max_length=200)] = "") -> Response:
    """Signs in with a link's code after the person agreed. Only accepts forms of this origin."""
    require_same_origin(request, state.settings.url)
    return await _by_code(request, state, code)


async def _by_code(request: Request, state: State, code: str) -> Response:
    try:
        person, cookie, expires = await sign_in.sign_in_by_code(state, request, code)
    except (NotSignedIn, NotAllowed, TooManyTries) as error:
        return _sign_in_page(state, error)
    answer = RedirectResponse("/", status_code=303)
    await sign_in.set_session_cookie(state, request, person, answer, "link", cookie, expires)
    return answer


@router.post("/signin")
async def by_token(
    request: Request,
    state: State,
    person: Annotated[str, Form(max_length=64)] = "",
    token: Annotated[str, Form(max_length=200)] = "",
    again: Annotated[bool, Form()] = False,
    next_path: Annotated[str, Form(alias="next", max_length=500)] = "/",
) -> Response:
    """Signs in with a token. Only accepts forms of this origin: another site must not sign a browser in as another person."""
    require_same_origin(request, state.settings.url)
    try:
        known, proof = await sign_in.sign_in_by_token(state, request, person.strip(), token.strip())
    except (NotSignedIn, NotAllowed, TooManyTries) as error:
        return _sign_in_page(state, error, person=person, again=again, next_path=local_path(next_path))
    answer = RedirectResponse(local_path(next_path), status_code=303)
    await sign_in.open_session(state, request, known, proof, answer, "token")
    return answer


@router.get("/signin/oidc")
async def start_oidc_sign_in(
    request: Request, state: State, again: bool = False, next_path: Annotated[str, Query(alias="next")] = "/"
) -> Response:
    """Redirects to the OpenID provider. `again`: it asks for the password also of a person who is signed in there."""
    if _from_other_site(request):  # the provider would sign a person in who has not asked for it
        return render_sign_in(state.settings.oidc, again=again, next_path=local_path(next_path))
    try:
        url, secret = await sign_in.start_provider_flow(state, again=again, next_path=local_path(next_path))
    except HeadwayError as error:
        return _sign_in_page(state, error, again=again, next_path=local_path(next_path))
    answer = RedirectResponse(url, status_code=303, headers={"Cache-Control": "no-store"})
    sign_in.set_flow_cookie(state, answer, secret)
    return answer


@router.get("/signin/oidc/back")
async def finish_oidc_sign_in(request: Request, state: State) -> Response:
    """Signs in with the provider's answer. Returns a page that goes to the home page by itself: after a redirect the
    request would still count as the provider's, and browsers would not send the strict cookie."""
    try:
        person, proof, next_path = await sign_in.sign_in_by_provider(state, request, request.query_params)
    except HeadwayError as error:
        answer = _sign_in_page(state, error)
    else:
        answer = render("signedin.html", person=person.name, next=next_path)
        await sign_in.open_session(state, request, person, proof, answer, "provider")
    sign_in.delete_flow_cookie(state, answer)
    return answer


@router.post(LOGOUT_PATH)
async def provider_logout(
    request: Request, state: State, logout_token: Annotated[str, Form(max_length=20_000)] = ""
) -> Response:
    """Ends what came from the session that the provider's logout token names. The provider itself sends the request."""
    try:
        await log_out_by_provider(state, request, logout_token)
    except (NotSignedIn, NotFound) as error:
        body = {"error": "invalid_request", "error_description": error.message}
        return JSONResponse(body, status_code=400, headers={"Cache-Control": "no-store"})
    except (TooManyTries, Unreachable, StoreUnavailable) as error:
        body = {"error": "temporarily_unavailable", "error_description": error.message}
        return JSONResponse(body, status_code=error.http_status, headers={"Cache-Control": "no-store"})
    return Response(headers={"Cache-Control": "no-store"})


@router.post("/signout")
async def sign_out(request: Request, state: State) -> Response:
    """Ends the session."""
    # What the browser has kept of pages, also to go back to them. Its storage has only the choice of colours.
    headers = {**PAGE_HEADERS, "Clear-Site-Data": '"cache"'}
    answer = RedirectResponse("/", status_code=303, headers=headers)
    await sign_in.close_session(state, request, answer)
    return answer


def _sign_in_page(
    state: State,
    error: HeadwayError | None = None,
    *,
    person: str = "",
    code: str = "",
    again: bool = False,
    next_path: str = "/",
) -> Response:
    status = error.http_status if error else 200
    return render_sign_in(
        state.settings.oidc, status, error, person=person, code=code, again=again, next_path=next_path
    )
