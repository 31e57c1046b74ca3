"""Makes sure that a submitted form is carried out once, however often the browser sends it.

The page puts a random key (`new_form_key()`) in a hidden field. Key, session, path and field values together
identify the request, like an Idempotency-Key of the API (api/http/idempotency.py): the head runs sbatch once for it,
and a resent form redirects to the same page. A form with other values is another request."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import re
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from fastapi import Request
from starlette.datastructures import FormData
from starlette.responses import Response

from headway.services.access.role_rights import Principal
from headway.services.app_state import AppState
from headway.store import StoreUnavailable
from headway.web.page_context import redirect_with_message

KEY_FIELD = "form_key"
_DONE = 303


@dataclass(frozen=True, slots=True)
class FormDone:
    """A form that succeeded: the path to redirect to, and the message to show there."""

    path: str
    message: str = ""


def new_form_key() -> str:
    """Returns a random value for the hidden field."""
    return secrets.token_hex(16)


async def submit_once(
    request: Request,
    form: FormData,
    state: AppState,
    who: Principal,
    submit: Callable[[Principal], Awaitable[FormDone | Response]],
) -> Response:
    """Returns the response to the form: what `submit` returns, or the stored redirect if it succeeded before. A form
    that failed may be sent again. `submit` gets the principal with the form's idempotency key."""
    if not re.fullmatch("[0-9a-f]{32}", str(form.get(KEY_FIELD, ""))):
        made = await submit(who)
        return _redirect(made) if isinstance(made, FormDone) else made
    name = _name(request, form, state)
    async with state.form_locks.setdefault(name, asyncio.Lock()):
        before = await state.store.idempotency_keys.begin(name, name)
        if before is not None and before.status == _DONE:
            return _redirect(FormDone(*json.loads(before.answer)))
        made = await submit(replace(who, idempotency_key=name, first_sent_at=before.at if before else state.clock()))
        if not isinstance(made, FormDone):
            return made
        with contextlib.suppress(StoreUnavailable):  # the form is done; if it is resent, the head recognises its key
            await state.store.idempotency_keys.finish(name, _DONE, json.dumps([made.path, made.message]))
        return _redirect(made)


def _redirect(done: FormDone) -> Response:
    return redirect_with_message(done.path, done.message)


def _name(request: Request, form: FormData, state: AppState) -> str:
    session = request.cookies.get(state.settings.cookie, "") or request.headers.get("authorization", "")
    sent = json.dumps([session, request.url.path, sorted((key, str(value)) for key, value in form.multi_items())])
    return hashlib.sha256(f"form\n{sent}".encode()).hexdigest()
