"""A form that makes something is carried out once, however often a page sends it.

The page gives it a random `deed` (`new()`, a hidden field). With all that was filled in and whose session it is, that names
the request, as an Idempotency-Key does for the API (api/http/idempotency.py): the head runs sbatch once for it, and
who comes again is led
where the first one was. Filled in otherwise it is another request."""

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

from headway.services.context import AppState
from headway.services.identity import Principal
from headway.store import StoreAway
from headway.web.page_context import see_other

FIELD = "deed"
_DONE = 303


@dataclass(frozen=True, slots=True)
class Done:
    """Where the browser goes now, and what it says there."""

    path: str
    told: str = ""


def new() -> str:
    return secrets.token_hex(16)


async def once(
    request: Request,
    form: FormData,
    state: AppState,
    who: Principal,
    work: Callable[[Principal], Awaitable[Done | Response]],
) -> Response:
    """What `work` of this person leads to, or led to before. What was not done may be sent again."""
    if not re.fullmatch("[0-9a-f]{32}", str(form.get(FIELD, ""))):
        made = await work(who)
        return _led(made) if isinstance(made, Done) else made
    name = _name(request, form, state)
    async with state.forms.setdefault(name, asyncio.Lock()):
        before = await state.store.idempotency_keys.begin(name, name)
        if before is not None and before.status == _DONE:
            return _led(Done(*json.loads(before.answer)))
        made = await work(replace(who, idempotency_key=name, first_sent_at=before.at if before else state.clock()))
        if not isinstance(made, Done):
            return made
        with contextlib.suppress(StoreAway):  # it was done all the same; the head knows it too
            await state.store.idempotency_keys.finish(name, _DONE, json.dumps([made.path, made.told]))
        return _led(made)


def _led(done: Done) -> Response:
    return see_other(done.path, done.told)


def _name(request: Request, form: FormData, state: AppState) -> str:
    session = request.cookies.get(state.settings.cookie, "") or request.headers.get("authorization", "")
    sent = json.dumps([session, request.url.path, sorted((key, str(value)) for key, value in form.multi_items())])
    return hashlib.sha256(f"form\n{sent}".encode()).hexdigest()
