"""The reverse proxy for notebooks: listens on separate origins and forwards admitted requests to the job's Jupyter.

A notebook's page runs its owner's code, which must not be able to act in Headway as the person who views it. Therefore
notebooks have another origin; no Headway cookie is forwarded to Jupyter and no Jupyter cookie is returned; a browser
session here is valid for one notebook only; requests that write or open a WebSocket must carry the notebook's own
origin.

A link works in any browser, so another person's notebook may be opened next to one's own. If host
names allow it, each notebook has its own origin (settings.notebooks contains a *). If all share one origin, a browser
can have notebooks of one person at a time.

Jupyter is called with its own secret, which never reaches a browser. A connection handles one request at a time;
each is forwarded through the tunnel on its own connection."""

from __future__ import annotations

import asyncio
import html
import re
import ssl
from collections.abc import Callable
from socket import socket
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, quote, urlsplit

import h11
import structlog

from headway.errors import HeadwayError, NotFound, Unreachable
from headway.services.app_state import AppState
from headway.services.jobs.notebooks import notebooks
from headway.store import NotebookRow

if TYPE_CHECKING:
    from headway.jobs.remote.tunnel import TunnelConnection

log = structlog.get_logger("headway.server.notebook_proxy")
HEAD_S = 20.0  # seconds until the head of a new connection's first request must be complete
KEPT_S = 75.0  # seconds that a kept-alive connection waits for its next request
LOOK_S = 10.0  # seconds until a WebSocket ends after its person is signed out
CHUNK = 64 * 1024
MOST_CLIENTS = 500
SAFE = frozenset({b"GET", b"HEAD", b"OPTIONS"})
_PATH = re.compile(r"/n/([0-9a-f]{16})(/.*)?")
_HOP = frozenset(
    b"connection keep-alive proxy-authenticate proxy-authorization te trailer transfer-encoding upgrade".split()
)
_NOT_ON = _HOP | {b"host", b"cookie", b"authorization", b"forwarded", b"content-length", b"x-xsrftoken"}
# Also removed: headers that apply to the whole origin, which may have other notebooks of the same person, or to the
# host.
_NOT_BACK = _HOP | frozenset(
    b"set-cookie server date content-length x-content-type-options referrer-policy service-worker-allowed "
    b"clear-site-data strict-transport-security alt-svc".split()
)
_OURS = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    # Next to Jupyter's own policy: a browser keeps to both.
    (b"content-security-policy", b"frame-ancestors 'self'"),
]
_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<meta name="color-scheme" content="light dark"><title>{title} · Headway</title><h1>{title}</h1><p>{text}</p>{link}</html>"""

Pairs = list[tuple[bytes, bytes]]


class _Refused(Exception):
    """An error response of the proxy itself."""

    def __init__(self, status: int, title: str, text: str, link: str = "") -> None:
        super().__init__(title)
        self.status, self.title, self.text, self.link = status, title, text, link


class NotebookProxy:
    """The proxy's listener. Call `listen` to start it and `close` to stop it."""

    def __init__(self, state: AppState) -> None:
        self._state = state
        self._apart = "*" in state.settings.notebooks
        self._secure = state.settings.notebooks.startswith("https://")
        # Derived from the dashboard's cookie name: cookies ignore ports, so two servers of one host must not overwrite
        # each other's.
        name = f"{state.settings.cookie.removeprefix('__Host-')}_notebooks"
        self._person = f"__Host-{name}" if self._secure else name
        self._server: asyncio.Server | None = None
        self._clients: set[asyncio.Task[None]] = set()
        self._waiting: dict[asyncio.Task[None], None] = {}  # those of new connections, the oldest first

    async def listen(self, sock: socket, tls: ssl.SSLContext | None = None) -> None:
        """Starts to accept connections on the socket, with TLS if a context is given."""
        self._server = await asyncio.start_server(self._client, sock=sock, ssl=tls)

    async def close(self) -> None:
        """Stops the listener and ends all connections and tunnels."""
        if self._server is not None:
            self._server.close()
        for task in list(self._clients):
            task.cancel()
        await asyncio.gather(*self._clients, return_exceptions=True)
        await self._state.notebooks.close_all()

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if len(self._clients) >= MOST_CLIENTS and self._waiting:
            # Half-sent requests must not occupy all connections
            oldest = next(iter(self._waiting))
            self._request_came(oldest)
            oldest.cancel()
            self._clients.discard(oldest)
        self._clients.add(task)
        self._waiting[task] = None
        try:
            if len(self._clients) <= MOST_CLIENTS:
                await _ProxiedConnection(self, reader, writer).run(lambda: self._request_came(task))
        except (OSError, TimeoutError, h11.ProtocolError, Unreachable, asyncio.CancelledError):
            pass  # the client or Jupyter closed the connection
        except Exception as error:
            log.error("bug", exc_info=error)
        finally:
            self._clients.discard(task)
            self._request_came(task)
            writer.close()

    def _request_came(self, connection: asyncio.Task[None]) -> None:
        """Notes that the first request of a connection is complete."""
        self._waiting.pop(connection, None)

    async def hand_over(self, request: h11.Request) -> tuple[Pairs, str]:
        """Returns (headers, redirect path) for a one-time code. Raises _Refused if it was used before or is too old."""
        passes, now = self._state.notebooks, self._state.clock()
        code = (parse_qs(urlsplit(_text(request.target)).query).get("code") or [""])[0]
        meant = passes.find_code(code, now)
        if meant is None:
            raise _Refused(
                403, "This link was used already, or is too old",
                "A link works once, within a minute. Open the notebook again from its page, or run headway notebook.",
                self._state.settings.url,
            )  # fmt: skip
        notebook, person = meant
        self._at_home(request, notebook)
        before = self._apart or self._of_one(request, person)
        passes.use_code(code)
        given = [self._cookie(self._name(notebook), passes.create_session(notebook, person, now), f"/n/{notebook}/")]
        if not self._apart:
            given.append(self._cookie(self._person, passes.create_session("", person, now), "/"))
        if not before:  # nothing that another person's page stored in this browser may stay
            given.append((b"clear-site-data", b'"cache", "storage"'))
        return given, f"/n/{notebook}/lab"

    async def admit(self, request: h11.Request) -> NotebookRow:
        """Returns the notebook that a request may be forwarded to. Raises _Refused."""
        found = _PATH.fullmatch(urlsplit(_text(request.target)).path)
        if found is None:
            raise _Refused(404, "There is nothing here", "Notebooks are opened from Headway.", self._state.settings.url)
        origin = self._at_home(request, found[1])
        if _foreign(request, origin):
            raise _Refused(403, "Not from here", "This request comes from another site's page.")
        if not self._apart and _header(request, b"service-worker"):
            raise _Refused(403, "Not here", "Service workers are not allowed: they could reach other notebooks.")
        known = self._known(request, self._name(found[1]), found[1])
        if not known:
            raise _Refused(
                401, "Open this notebook from Headway",
                "This browser has no access to the notebook, or the access has expired.", self._state.settings.url,
            )  # fmt: skip
        try:
            row = await self._state.store.notebooks.get(found[1])
        except NotFound:
            raise _Refused(410, "This notebook has ended", "Start another one.", self._state.settings.url) from None
        mine = {again for person, again in known if person == row.person}
        if not mine or (True in mine and not await notebooks.owner_may_still_open(self._state, row)):
            await self._state.notebooks.forget_notebook(row.id)
            raise _Refused(403, "Access removed", f"{row.person} has no access to {row.cluster} any more.")
        if not self._apart and not self._of_one(request, row.person):
            raise _Refused(
                401, "Open this notebook from Headway",
                "This browser no longer sends the cookie of its notebook session.", self._state.settings.url,
            )  # fmt: skip
        return row

    def _at_home(self, request: h11.Request, notebook: str) -> str:
        """Returns the notebook's origin. Raises _Refused if the request is for another host."""
        origin = notebooks.notebook_origin(self._state, notebook)
        if _header(request, b"host") != urlsplit(origin).netloc:
            raise _Refused(400, "This is not the address of this notebook", f"It is {origin}.")
        return origin

    def _of_one(self, request: h11.Request, person: str) -> bool:
        """Returns whether this browser has notebooks of this person open. Raises _Refused if it has notebooks of
        another person open: on a shared origin, pages of one could act as the other."""
        found = {known for known, _ in self._known(request, self._person, "")}
        for other in found - {person}:
            raise _Refused(
                403, f"This browser has notebooks of {other} open",
                f"A browser can show notebooks of one person at a time. Open those of {person} in another browser "
                "profile or in a private window.", self._state.settings.url,
            )  # fmt: skip
        return bool(found)

    def _known(self, request: h11.Request, name: str, notebook: str) -> set[tuple[str, bool]]:
        """Returns (person, whether the permission must be checked again) for each cookie of that name: a page of
        another host below the same domain may have set a cookie of the same name."""
        found = (
            self._state.notebooks.check_session(value, notebook, self._state.clock())
            for cookie in _header(request, b"cookie").split(";")
            for key, _, value in [cookie.strip().partition("=")]
            if key == name
        )
        return set(filter(None, found))

    def _name(self, notebook: str) -> str:
        """Returns the name of a notebook's cookie. Its path is the notebook's, which the prefix __Host- does not allow."""
        return f"__Secure-headway_notebook_{notebook}" if self._secure else f"headway_notebook_{notebook}"

    def _cookie(self, name: str, session: str, path: str) -> tuple[bytes, bytes]:
        # Lax: links are also opened from other sites, and the cookie must then tell whose notebooks are open here.
        text = f"{name}={session}; Path={path}; HttpOnly; SameSite=Lax{'; Secure' if self._secure else ''}"
        return b"set-cookie", text.encode()

    async def wire(self, row: NotebookRow) -> TunnelConnection:
        """Returns a tunnel connection to the notebook's Jupyter. Raises _Refused (503) if it can't be reached."""
        page = f"{self._state.settings.url}/clusters/{quote(row.cluster)}/notebooks"
        try:
            return await (await notebooks.open_tunnel(self._state, row)).connect()
        except HeadwayError as error:
            raise _Refused(503, "The notebook does not answer", error.message, page) from None


class _ProxiedConnection:
    """One client's connection."""

    def __init__(self, door: NotebookProxy, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.door, self.reader, self.writer = door, reader, writer
        self.http = h11.Connection(h11.SERVER)

    async def run(self, request_came: Callable[[], None]) -> None:
        """Handles requests until the connection is closed. Calls `request_came` after each request's head."""
        wait_s = HEAD_S
        while True:
            async with asyncio.timeout(wait_s):
                event = await self._next()
            request_came()
            wait_s = KEPT_S
            if not isinstance(event, h11.Request):
                return
            try:
                await self._request(event)
            except _Refused as refused:
                if self.http.our_state is not h11.SEND_RESPONSE:
                    return
                await self._page(refused)
            if self.http.our_state is h11.MUST_CLOSE or self.http.their_state is not h11.DONE:
                return
            self.http.start_next_cycle()

    async def _request(self, request: h11.Request) -> None:
        if urlsplit(_text(request.target)).path == "/open" and request.method == b"GET":
            headers, where = await self.door.hand_over(request)
            await self._drain()
            await self._send_response(
                303, [*headers, (b"location", where.encode()), (b"cache-control", b"no-store")], b""
            )
            return
        row = await self.door.admit(request)
        wire = await self.door.wire(row)
        try:
            await self._lead(request, row, wire)
        finally:
            await wire.close()

    async def _lead(self, request: h11.Request, row: NotebookRow, wire: TunnelConnection) -> None:
        """Forwards the request to Jupyter and the response back."""
        far = h11.Connection(h11.CLIENT, max_incomplete_event_size=256 * 1024)
        upgrade = _upgrades(request)
        headers = [(name, value) for name, value in request.headers if name not in _NOT_ON]
        headers += [(b"host", dict(request.headers)[b"host"]), (b"authorization", f"token {row.secret}".encode())]
        headers += [(b"connection", b"upgrade"), (b"upgrade", b"websocket")] if upgrade else [(b"connection", b"close")]
        size = dict(request.headers).get(b"content-length")
        if size is not None:
            headers.append((b"content-length", size))
        elif b"transfer-encoding" in dict(request.headers):
            headers.append((b"transfer-encoding", b"chunked"))
        sent = h11.Request(method=request.method, target=_target(request.target), headers=headers)
        await wire.write(far.send(sent) or b"")
        sending = asyncio.ensure_future(self._body(far, wire)) if not upgrade else None
        try:
            await self._answer(far, wire, upgrade, request)
        finally:
            if sending is not None:
                sending.cancel()
                await asyncio.gather(sending, return_exceptions=True)

    async def _body(self, far: h11.Connection, wire: TunnelConnection) -> None:
        while True:
            event = await self._next()
            if isinstance(event, h11.Data):
                await wire.write(far.send(event) or b"")
            elif isinstance(event, h11.EndOfMessage):
                await wire.write(far.send(h11.EndOfMessage()) or b"")
                return
            else:
                return

    async def _answer(self, far: h11.Connection, wire: TunnelConnection, upgrade: bool, request: h11.Request) -> None:
        while True:
            event = far.next_event()
            if event is h11.NEED_DATA:
                far.receive_data(await wire.read())
                continue
            if isinstance(event, h11.InformationalResponse) and event.status_code == 101 and upgrade:
                await self._switched(far, wire, event, request)
                return
            if isinstance(event, h11.Response):
                kept = [
                    (name, value)
                    for name, value in event.headers
                    if name not in _NOT_BACK and not name.startswith(b"access-control-")
                ]
                size = dict(event.headers).get(b"content-length")
                kept += [(b"content-length", size)] if size is not None else []
                await self._send(
                    h11.Response(status_code=event.status_code, headers=[*kept, *_OURS], reason=event.reason)
                )
            elif isinstance(event, h11.Data):
                await self._send(h11.Data(data=bytes(event.data)))
            elif isinstance(event, h11.EndOfMessage):
                await self._send(h11.EndOfMessage())
                return
            elif isinstance(event, h11.ConnectionClosed) or event is h11.PAUSED:
                return

    async def _switched(
        self, far: h11.Connection, wire: TunnelConnection, event: h11.InformationalResponse, request: h11.Request
    ) -> None:
        """Forwards a WebSocket's bytes in both directions until either end closes it or the person loses access."""
        kept = [(name, value) for name, value in event.headers if name not in _NOT_BACK | {b"sec-websocket-extensions"}]
        kept += [(name, value) for name, value in event.headers if name == b"sec-websocket-extensions"]
        kept += [(b"connection", b"upgrade"), (b"upgrade", b"websocket")]
        await self._next()  # the end of the request's message
        await self._send(h11.InformationalResponse(status_code=101, headers=kept))
        early, late = far.trailing_data[0], self.http.trailing_data[0]
        if early:
            self.writer.write(early)
        if late:
            await wire.write(late)
        ways = [asyncio.ensure_future(way) for way in (self._out(wire), self._in(wire), self._until_out(request))]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)

    async def _until_out(self, request: h11.Request) -> None:
        """Returns when the person no longer has access. Checks every LOOK_S seconds."""
        while True:
            await asyncio.sleep(LOOK_S)
            try:
                await self.door.admit(request)
            except _Refused:
                return

    async def _out(self, wire: TunnelConnection) -> None:
        while data := await wire.read():
            self.writer.write(data)
            await self.writer.drain()

    async def _in(self, wire: TunnelConnection) -> None:
        while data := await self.reader.read(CHUNK):
            await wire.write(data)

    # --- plumbing

    async def _next(self) -> object:
        while True:
            event = self.http.next_event()
            if event is not h11.NEED_DATA:
                return event
            if self.http.they_are_waiting_for_100_continue:
                await self._send(h11.InformationalResponse(status_code=100, headers=[]))
            self.http.receive_data(await self.reader.read(CHUNK))

    async def _drain(self) -> None:
        while isinstance(await self._next(), h11.Data):
            pass

    async def _send(self, event: h11.Event) -> None:
        data = self.http.send(event)
        if data:
            self.writer.write(data)
            await self.writer.drain()

    async def _send_response(self, status: int, headers: Pairs, body: bytes) -> None:
        every = [*headers, *_OURS, (b"content-length", str(len(body)).encode())]
        await self._send(h11.Response(status_code=status, headers=every))
        if body:
            await self._send(h11.Data(data=body))
        await self._send(h11.EndOfMessage())

    async def _page(self, refused: _Refused) -> None:
        link = f'<p><a href="{html.escape(refused.link)}">To Headway</a></p>' if refused.link else ""
        text = _PAGE.format(title=html.escape(refused.title), text=html.escape(refused.text), link=link)
        headers = [
            (b"content-type", b"text/html; charset=utf-8"),
            (b"cache-control", b"no-store"),
            (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'; base-uri 'none'"),
            (b"connection", b"close"),
        ]
        await self._send_response(refused.status, headers, text.encode())


def _upgrades(request: h11.Request) -> bool:
    return dict(request.headers).get(b"upgrade", b"").lower() == b"websocket"


def _target(target: bytes) -> bytes:
    """Returns the request target for Jupyter. API calls other than kernel channels get no_track_activity=1: an open
    page polls every few seconds, and would keep an idle notebook alive forever."""
    path, question, query = target.partition(b"?")
    if not re.fullmatch(rb"/n/[0-9a-f]{16}/api/(?!kernels/[^/]+/channels).*", path):
        return target
    return path + b"?" + (query + b"&" if question and query else b"") + b"no_track_activity=1"


def _foreign(request: h11.Request, origin: str) -> bool:
    """Returns whether a page of another origin sent the request. Other notebooks may be of the same site, so that
    cookies are sent along."""
    writes = request.method not in SAFE or _upgrades(request)
    if _header(request, b"origin", "" if writes else origin) != origin:
        return True
    apart = _header(request, b"sec-fetch-site") in ("same-site", "cross-site")
    return apart and _header(request, b"sec-fetch-mode") != "navigate"


def _header(request: h11.Request, name: bytes, default: str = "") -> str:
    return dict(request.headers).get(name, default.encode()).decode("latin-1")


def _text(target: bytes) -> str:
    return target.decode("ascii", "replace")


def origin_of(host: str, port: int, url: str) -> str:
    """Returns the origin of notebooks. On loopback each notebook has its own host name (*): browsers resolve every
    *.localhost to this computer. Elsewhere all share one origin; another port is still the same site, and cookies
    ignore ports."""
    if host in ("127.0.0.1", "::1", "localhost") and not url.startswith("https://"):
        return f"http://*.notebooks.localhost:{port}"
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname}:{port}"
