"""`Idempotency-Key`: a POST with this header is carried out once. If it is resent within a day with the same key, it
gets the stored response; with another body it is refused. The period is IDEMPOTENCY_KEPT_S of store/access/idempotency_keys.py.

If the server was stopped during a request, the resent one is continued where its progress is known
(`RESUMABLE_PATHS`): an operation is found by the key, and the head stores the key of each submission. At other paths
it is refused.

A key belongs to the token or session that sent it. Responses may hold secrets that are shown once (a new token), so
they are stored encrypted with a key made from that token and the header; the server keeps only hashes of both."""

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
from headway.errors import HeadwayError, TooManySubmits
from headway.schemas.base import API_PREFIX, IDEMPOTENCY_KEY, PROBLEM_JSON, ErrorOut
from headway.services.access.audit import write_audit_line
from headway.services.access.role_rights import Principal
from headway.services.app_state import AppState
from headway.services.cluster.operation_to_schema import operation_out
from headway.store import AuditAsk, Operation, StoreUnavailable
from headway.store.access.idempotency_keys import Answer

AUDITED_WITHIN_S = 60.0  # seconds; an operation's audit line is written this soon after it is queued
REPLAYED = "idempotency-replayed"
_KEEP_HEADERS = ("content-type", "location")
_QUEUES = (
    r"apply|scale|down|backup|restore|roll|fabric-test|whatif|keys/rotate|datasets|datasets/.+/(verify|remove)"
    r"|environments|environments/.+/remove"
)
_SUBMITS = (
    r"jobs|run|jobs/\d+/(retry|rerun)|pipelines|pipelines/[^/]+/retry|sweeps|sweeps/[^/]+/best|batches|promotions"
)
RESUMABLE_PATHS = re.compile(rf"{API_PREFIX}/clusters/[^/]+/({_QUEUES}|{_SUBMITS})")


class IdempotentPosts:
    """ASGI middleware that carries out each keyed POST of the API once."""

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
        if who is None:  # the app answers with the reason, which `authenticate` has stored with the request
            await self._app(scope, receive, send)
            return
        if not (key.isascii() and key.isprintable() and len(key) <= 255):
            await _conflict(f"{IDEMPOTENCY_KEY} is at most 255 printable ASCII characters", "")(scope, receive, send)
            return
        secret = headers.get("authorization", "") or headers.get("cookie", "")
        await self._once(app_state(Request(scope)), who, _SealedKey(secret, key), scope, receive, send)

    async def _once(
        self, state: AppState, who: Principal, sealed_key: _SealedKey, scope: Scope, receive: Receive, send: Send
    ) -> None:
        store = state.store
        try:
            body = await _read_body(receive)
        except HTTPException as error:  # the body is too large, or the person sends too many
            out = error_handlers.http_error_out(Request(scope), error)
            await error_handlers.problem_response(error.status_code, out, dict(error.headers or {}))(
                scope, receive, send
            )
            return
        content = b"\n".join((scope["path"].encode(), scope.get("query_string", b""), body))
        request = hashlib.sha256(content).hexdigest()
        before = await store.idempotency_keys.begin(sealed_key.name, request)
        at = state.clock()
        if before is not None:
            if not await _take_over(state, who, sealed_key, before, request, scope["path"]):
                before = await store.idempotency_keys.get(sealed_key.name) or before
                await _replayed_response(sealed_key, request, before)(scope, receive, send)
                return
            at = before.at
        scope.setdefault("state", {})["idempotency"] = (sealed_key.name, at)
        recorder = _RecordingSend(send)
        try:
            await self._app(scope, _replay(body, receive), recorder)
        except BaseException:
            await store.idempotency_keys.delete(sealed_key.name)
            raise
        failed = (recorder.status >= 500 or recorder.status == TooManySubmits.http_status) and not scope.get(
            "state", {}
        ).get("settled")
        # The response has been sent. If this fails, a resent request is answered that the first is still under way.
        with contextlib.suppress(StoreUnavailable):
            if failed or not recorder.whole:
                await store.idempotency_keys.delete(sealed_key.name)
            else:
                await store.idempotency_keys.finish(
                    sealed_key.name, recorder.status, sealed_key.seal(recorder.headers, recorder.body)
                )


async def _take_over(
    state: AppState, who: Principal, sealed_key: _SealedKey, before: Answer, request: str, path: str
) -> bool:
    """Returns whether the earlier request was interrupted because its server ended, so that this server must carry it
    out. If it had queued an operation, stores that as the response and returns False."""
    store = state.store
    if before.status or before.request != request or not RESUMABLE_PATHS.fullmatch(path):
        return False
    if await store.server_locks.is_alive(before.server) or not await store.idempotency_keys.take_over(
        sealed_key.name, before.server
    ):
        return False
    queued = await store.operations.by_key(sealed_key.name)
    if queued is None:
        return True
    await _audit_queued(state, who, queued)
    body = operation_out(queued).model_dump_json().encode()
    await store.idempotency_keys.finish(
        sealed_key.name, 202, sealed_key.seal({"content-type": "application/json"}, body)
    )
    return False


async def _audit_queued(state: AppState, who: Principal, queued: Operation) -> None:
    """Writes the operation's audit line, unless the earlier server wrote it before it ended."""
    since = AuditAsk(target=queued.cluster, since=queued.created_at, until=queued.created_at + AUDITED_WITHIN_S)
    if any(line.detail.get("operation") == queued.id for line in await state.store.audit.search(since, limit=500)):
        return
    action = queued.kind.audit_action(queued.params)
    await write_audit_line(state, who, action, queued.cluster, operation=queued.id)


class _SealedKey:
    """The name under which a key of a token or session is stored, and the cipher for its response."""

    def __init__(self, secret: str, key: str) -> None:
        self.name = hashlib.sha256(f"name\n{secret}\n{key}".encode()).hexdigest()
        self._key = hashlib.sha256(f"answer\n{secret}\n{key}".encode()).digest()

    def seal(self, headers: Mapping[str, Any], body: bytes) -> str:
        """Returns the response, encrypted, as text."""
        from cryptography.fernet import Fernet

        text = json.dumps([dict(headers), base64.b64encode(body).decode()]).encode()
        return Fernet(base64.urlsafe_b64encode(self._key)).encrypt(text).decode()

    def open(self, answer: str) -> tuple[dict[str, str], bytes]:
        """Returns (headers, body) of a stored response."""
        from cryptography.fernet import Fernet

        headers, body = json.loads(Fernet(base64.urlsafe_b64encode(self._key)).decrypt(answer.encode()))
        return headers, base64.b64decode(body)


class _RecordingSend:
    """Passes the response on and records it."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.status = 500
        self.headers: dict[str, str] = {}
        self.body = b""
        self.whole = True  # False for streams, which are not stored

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


def _replayed_response(sealed_key: _SealedKey, request: str, before: Answer) -> ASGIApp:
    from starlette.responses import Response

    if before.request != request:
        return _conflict("this key was used for another request", "make a new key for each request")
    if not before.status:
        return _conflict(
            "the request with this key is running, or the server stopped during it",
            "send it again in a moment; if this error stays, check the result before you send it with a new key",
        )
    headers, body = sealed_key.open(before.answer)
    return Response(body, before.status, {**headers, REPLAYED: "true"})


def _conflict(message: str, hint: str) -> ASGIApp:
    return error_handlers.problem_response(409, ErrorOut(kind="conflict", message=message, hint=hint))


async def _read_body(receive: Receive) -> bytes:
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
