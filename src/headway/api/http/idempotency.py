"""`Idempotency-Key`: a POST that carries one is done once. Sent again within a day with the same key it gets the answer of
the first time; with another body it is refused.

A request that was cut off with its server is gone on with where it can be told how far it had come (`FOUND_AGAIN`): its
operation is found by the key, and the head knows which key a submission came with. Of the others nobody can say.

A key belongs to the token or session that sent it. Answers may hold what is shown once (a new token), so they are kept
encrypted under that very token and key, of which the server has only hashes."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headway.api.auth.dependencies import app_state, authenticate
from headway.api.http import error_handlers
from headway.errors import HeadwayError, TooManyAtOnce
from headway.schemas.base import API_PREFIX, IDEMPOTENCY_KEY, PROBLEM_JSON, ErrorOut
from headway.services.authorization import write_audit_line
from headway.services.context import AppState
from headway.services.identity import Principal
from headway.services.mappers import operation_out
from headway.store import AuditAsk, Operation, StoreAway
from headway.store.core.idempotency_keys import Answer

NOTED_S = 60.0  # an operation has its line in the audit trail by then
REPLAYED = "idempotency-replayed"
_KEEP_HEADERS = ("content-type", "location")
_QUEUES = r"apply|scale|down|backup|restore|roll|secrets/rotate|datasets|datasets/.+/(verify|remove)"
_SUBMITS = r"jobs|run|jobs/\d+/(retry|rerun)|pipelines|pipelines/[^/]+/retry"
FOUND_AGAIN = re.compile(rf"{API_PREFIX}/clusters/[^/]+/({_QUEUES}|{_SUBMITS})")


class Once:
    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope) if scope["type"] == "http" and scope["method"] == "POST" else Headers({})
        key = headers.get(IDEMPOTENCY_KEY, "")
        if not key or not scope["path"].startswith(API_PREFIX):
            await self._app(scope, receive, send)
            return
        try:
            who = await authenticate(Request(scope))
        except HeadwayError:
            who = None
        if who is None:  # the app says what is wrong with them
            await self._app(scope, receive, send)
            return
        if not (key.isascii() and key.isprintable() and len(key) <= 255):
            await _refuse(f"{IDEMPOTENCY_KEY} is at most 255 printable ASCII characters", "")(scope, receive, send)
            return
        secret = headers.get("authorization", "") or headers.get("cookie", "")
        await self._once(app_state(Request(scope)), who, _Deed(secret, key), scope, receive, send)

    async def _once(
        self, state: AppState, who: Principal, deed: _Deed, scope: Scope, receive: Receive, send: Send
    ) -> None:
        store = state.store
        try:
            body = await _whole(receive)
        except HTTPException as error:  # it is longer than we take
            out = ErrorOut(kind="refused", message=str(error.detail))
            await error_handlers.problem_response(error.status_code, out, dict(error.headers or {}))(
                scope, receive, send
            )
            return
        said = b"\n".join((scope["path"].encode(), scope.get("query_string", b""), body))
        request = hashlib.sha256(said).hexdigest()
        before = await store.idempotency_keys.begin(deed.name, request)
        at = state.clock()
        if before is not None:
            if not await _ours(state, who, deed, before, request, scope["path"]):
                before = await store.idempotency_keys.get(deed.name) or before
                await _again(deed, request, before)(scope, receive, send)
                return
            at = before.at
        scope.setdefault("state", {})["deed"] = (deed.name, at)
        given = _Given(send)
        try:
            await self._app(scope, _replay(body, receive), given)
        except BaseException:
            await store.idempotency_keys.delete(deed.name)
            raise
        undone = (given.status >= 500 or given.status == TooManyAtOnce.http_status) and not scope.get("state", {}).get(
            "settled"
        )
        with contextlib.suppress(StoreAway):  # the answer is out; to who asks again the request is still under way
            if undone or not given.whole:
                await store.idempotency_keys.delete(deed.name)
            else:
                await store.idempotency_keys.finish(deed.name, given.status, deed.seal(given.headers, given.body))


async def _ours(state: AppState, who: Principal, deed: _Deed, before: Answer, request: str, path: str) -> bool:
    """Whether the request before was cut off with its server, and is now this server's to do. An operation that it had queued
    is its answer."""
    store = state.store
    if before.status or before.request != request or not FOUND_AGAIN.fullmatch(path):
        return False
    if await store.presence.lives(before.server) or not await store.idempotency_keys.take_over(
        deed.name, before.server
    ):
        return False
    queued = await store.operations.by_key(deed.name)
    if queued is None:
        return True
    await _note(state, who, queued)
    body = operation_out(queued).model_dump_json().encode()
    await store.idempotency_keys.finish(deed.name, 202, deed.seal({"content-type": "application/json"}, body))
    return False


async def _note(state: AppState, who: Principal, queued: Operation) -> None:
    """The line of the audit trail, which comes after the operation, unless it was written before the server was killed."""
    since = AuditAsk(target=queued.cluster, since=queued.created_at, until=queued.created_at + NOTED_S)
    if any(line.detail.get("operation") == queued.id for line in await state.store.audit.search(since, limit=500)):
        return
    action = {"rotate": "secrets.rotate", "dataset": f"dataset.{queued.params.get('action')}"}.get(
        queued.kind, queued.kind
    )
    await write_audit_line(state, who, action, queued.cluster, operation=queued.id)


class _Deed:
    """A key of somebody's: under which name it is kept, and the cipher for its answer."""

    def __init__(self, secret: str, key: str) -> None:
        self.name = hashlib.sha256(f"name\n{secret}\n{key}".encode()).hexdigest()
        self._key = hashlib.sha256(f"answer\n{secret}\n{key}".encode()).digest()

    def seal(self, headers: Mapping[str, Any], body: bytes) -> str:
        from cryptography.fernet import Fernet

        text = json.dumps([dict(headers), base64.b64encode(body).decode()]).encode()
        return Fernet(base64.urlsafe_b64encode(self._key)).encrypt(text).decode()

    def open(self, answer: str) -> tuple[dict[str, str], bytes]:
        from cryptography.fernet import Fernet

        headers, body = json.loads(Fernet(base64.urlsafe_b64encode(self._key)).decrypt(answer.encode()))
        return headers, base64.b64decode(body)


class _Given:
    """Hands the answer on, and keeps it."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.status = 500
        self.headers: dict[str, str] = {}
        self.body = b""
        self.whole = True  # a stream has no answer to keep

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            found = Headers(raw=message["headers"])
            kind = found.get("content-type", "application/json")
            self.whole = kind in ("application/json", PROBLEM_JSON)
            self.headers = {name: found[name] for name in _KEEP_HEADERS if name in found}
        elif message["type"] == "http.response.body":
            self.body += message.get("body", b"") if self.whole else b""
        await self._send(message)


def _again(deed: _Deed, request: str, before: Answer) -> ASGIApp:
    from starlette.responses import Response

    if before.request != request:
        return _refuse("this key was used for another request", "make a new key for each request")
    if not before.status:
        return _refuse(
            "the request of this key is under way, or was cut off with the server",
            "send it again in a moment; if this stays, look whether it was done before you send it under a new key",
        )
    headers, body = deed.open(before.answer)
    return Response(body, before.status, {**headers, REPLAYED: "true"})


def _refuse(message: str, hint: str) -> ASGIApp:
    return error_handlers.problem_response(409, ErrorOut(kind="conflict", message=message, hint=hint))


async def _whole(receive: Receive) -> bytes:
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if message["type"] == "http.disconnect" or not message.get("more_body", False):
            return bytes(body)


def _replay(body: bytes, receive: Receive) -> Receive:
    given = False

    async def again() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again
