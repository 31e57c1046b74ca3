"""The notebook proxy admits the right people and forwards the right requests, in front of a Jupyter stand-in that
records them."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import h11
import pytest

from headway.domain.machines.machine import Machine
from headway.errors import Unreachable
from headway.jobs.remote import tunnel as tunnels
from headway.jobs.remote.tunnel import Tunnel
from headway.server import notebook_proxy
from headway.server.main import bind_socket
from headway.server.notebook_proxy import NotebookProxy, origin_of
from headway.services.jobs.notebooks import notebooks
from headway.store import NotebookRow
from tests.support.clusters import builders
from tests.support.servers import server_fakes
from tests.support.servers.server_fakes import Server, reading

ROOT = Path(__file__).resolve().parents[3]
ID, OTHER = "0123456789abcdef", "fedcba9876543210"  # ann's, mallory's
SECRET = "jupyter-secret"
FAR_SIDE = """
import asyncio, sys, types
sys.path.insert(0, sys.argv[1])
import user_helper
sys.modules["user_helper.identity"] = types.ModuleType("user_helper.identity")
user_helper.identity = sys.modules["user_helper.identity"]
from user_helper.tunnel import SocketTunnel
asyncio.run(SocketTunnel(sys.argv[2]).run())
"""


class Local:
    """The far half as a process here, with a pipe as SSH gives one."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    @classmethod
    async def start(cls, path: str) -> Local:
        pipe = asyncio.subprocess.PIPE
        argv = (sys.executable, "-c", FAR_SIDE, str(ROOT / "node"), path)
        return cls(await asyncio.create_subprocess_exec(*argv, stdin=pipe, stdout=pipe))

    @property
    def over(self) -> bool:
        return self.process.returncode is not None

    async def write(self, data: bytes) -> None:
        assert self.process.stdin
        try:
            self.process.stdin.write(data)
            await self.process.stdin.drain()
        except OSError as error:
            raise Unreachable(str(error)) from None

    async def read(self) -> bytes:
        assert self.process.stdout
        return await self.process.stdout.read(65536)

    async def close(self) -> None:
        if not self.over:
            self.process.kill()
        await self.process.wait()


@dataclass
class Jupyter:
    """Answers every request with what it heard; echoes what comes through a WebSocket."""

    path: str
    heard: list[h11.Request] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    big: int = 0

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        http = h11.Connection(h11.SERVER)
        body = b""
        while True:
            event = http.next_event()
            if event is h11.NEED_DATA:
                http.receive_data(await reader.read(65536))
            elif isinstance(event, h11.Request):
                self.heard.append(event)
            elif isinstance(event, h11.Data):
                body += bytes(event.data)
            else:
                break
        self.bodies.append(body)
        if http.their_state is h11.MIGHT_SWITCH_PROTOCOL:
            kept = [(b"connection", b"upgrade"), (b"upgrade", b"websocket"), (b"set-cookie", b"a=b")]
            writer.write(http.send(h11.InformationalResponse(status_code=101, headers=kept)) or b"")
            while data := await reader.read(65536):
                writer.write(b"<" + data + b">")
            writer.close()
            return
        answer = b"x" * self.big or b"hello"
        headers = [
            (b"set-cookie", b"_xsrf=1"),
            (b"access-control-allow-origin", b"*"),
            (b"content-type", b"text/plain"),
            (b"service-worker-allowed", b"/"),
            (b"clear-site-data", b'"*"'),
        ]
        head = h11.Response(status_code=200, headers=[*headers, (b"content-length", str(len(answer)).encode())])
        for event in (head, h11.Data(data=answer), h11.EndOfMessage()):
            writer.write(http.send(event) or b"")
            await writer.drain()
        writer.close()


@dataclass
class World:
    server: Server
    jupyter: Jupyter
    port: int
    origin: str
    clock: builders.Clock

    async def ask(
        self, target: str, method: str = "GET", body: bytes = b"", host: str = "", **headers: str
    ) -> tuple[int, dict[str, str], bytes]:
        """One request, as a browser sends it."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        http = h11.Connection(h11.CLIENT)
        every = {"host": host or self.origin.removeprefix("http://"), **headers}
        if body:
            every["content-length"] = str(len(body))
        pairs = [(name.replace("_", "-").encode(), value.encode("latin-1")) for name, value in every.items()]
        writer.write(http.send(h11.Request(method=method, target=target, headers=pairs)) or b"")
        if body:
            writer.write(http.send(h11.Data(data=body)) or b"")
        writer.write(http.send(h11.EndOfMessage()) or b"")
        head, content = None, b""
        async with asyncio.timeout(60):
            while True:
                event = http.next_event()
                if event is h11.NEED_DATA:
                    http.receive_data(await reader.read(65536))
                elif isinstance(event, h11.Response):
                    head = event
                elif isinstance(event, h11.Data):
                    content += bytes(event.data)
                else:
                    break
        writer.close()
        assert head is not None
        got: dict[str, str] = {}
        for name, value in head.headers:  # several of a name as lines of it
            got[name.decode()] = "\n".join(filter(None, [got.get(name.decode()), value.decode()]))
        return head.status_code, got, content

    async def open(self, notebook: str, person: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
        """By a fresh link."""
        code, _ = self.server.state.notebooks.create_code(notebook, person, self.clock())
        return await self.ask(f"/open?code={code}", host=self.host(notebook), **headers)

    async def let_in(self, notebook: str = ID, person: str = "ann", **headers: str) -> str:
        """The cookies of a browser that came by a fresh link."""
        status, got, _ = await self.open(notebook, person, **headers)
        assert (status, got["location"]) == (303, f"/n/{notebook}/lab")
        return "; ".join(line.partition(";")[0] for line in got["set-cookie"].splitlines())

    def host(self, notebook: str) -> str:
        return notebooks.notebook_origin(self.server.state, notebook).removeprefix("http://")


async def led(tmp_path: Path, names: bool) -> AsyncIterator[World]:
    """A door; `names`: each notebook has a name of its own."""
    clock = builders.Clock()
    running = reading(builders.job(7, user="ann", nodes=("lab-1-1",)))
    server = await server_fakes.start(tmp_path, clock, machines=(builders.machine("lab-1-1"),), read=running)
    jupyter = Jupyter(str(tmp_path / "socket"))
    listening = await asyncio.start_unix_server(jupyter.talk, jupyter.path)
    sock = bind_socket("127.0.0.1", 0)
    port = sock.getsockname()[1]
    shown = origin_of("127.0.0.1", port, "") if names else f"http://127.0.0.1:{port}"
    object.__setattr__(server.state.settings, "notebooks", shown)
    await server.apply()
    await server.store.people.set_role("ann", "member")
    await server.store.people.set_role("mallory", "member")
    await server.store.notebooks.save(NotebookRow(ID, "lab", 7, "ann", "ann", "/f", SECRET, 60, clock()))
    theirs = NotebookRow(OTHER, "lab", 9, "mallory", "mallory", "/m", "theirs", 60, clock())
    await server.store.notebooks.save(theirs)

    async def open_tunnel(_cluster: Any, node: str, user: str, path: str) -> Tunnel:
        assert (node, user, path) == ("lab-1-1", "ann", "/f/socket")
        return Tunnel(await Local.start(jupyter.path), node)

    server.backend.answers["open_tunnel"] = open_tunnel
    made = NotebookProxy(server.state)
    await made.listen(sock)
    yield World(server, jupyter, port, notebooks.notebook_origin(server.state, ID), clock)
    await made.close()
    listening.close()
    await server.close()


@pytest.fixture(params=["each its name", "all one name"])
async def world(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[World]:
    async for made in led(tmp_path, request.param == "each its name"):
        yield made


@pytest.fixture
async def apart(tmp_path: Path) -> AsyncIterator[World]:
    async for made in led(tmp_path, names=True):
        yield made


@pytest.fixture
async def shared(tmp_path: Path) -> AsyncIterator[World]:
    async for made in led(tmp_path, names=False):
        yield made


async def test_notebook_link_works_once_and_expires(world: World) -> None:
    code, _ = world.server.state.notebooks.create_code(ID, "ann", world.clock())
    status, headers, _ = await world.ask(f"/open?code={code}")
    assert status == 303
    cookie = headers["set-cookie"].splitlines()[0]
    assert "HttpOnly" in cookie
    assert f"Path=/n/{ID}/;" in cookie
    status, headers, text = await world.ask(f"/open?code={code}")
    assert status == 403
    assert "set-cookie" not in headers
    assert b"used already" in text
    late, _ = world.server.state.notebooks.create_code(ID, "ann", world.clock() - 61)
    assert (await world.ask(f"/open?code={late}"))[0] == 403
    assert (await world.ask("/open"))[0] == 403


async def test_proxy_sends_jupyter_only_its_own_token_and_strips_cookies(world: World) -> None:
    cookie = await world.let_in()
    status, headers, text = await world.ask(
        f"/n/{ID}/lab?a=1", cookie=f"headway_session=ours; {cookie}", authorization="Bearer t"
    )
    assert (status, text) == (200, b"hello")
    heard = world.jupyter.heard[-1]
    sent = {name.decode(): value.decode() for name, value in heard.headers}
    assert (heard.target, sent["authorization"]) == (f"/n/{ID}/lab?a=1".encode(), f"token {SECRET}")
    assert "cookie" not in sent
    for_all = {"service-worker-allowed", "clear-site-data"}  # notebooks of the origin
    assert not {"set-cookie", "access-control-allow-origin", *for_all} & headers.keys()
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["content-security-policy"] == "frame-ancestors 'self'"
    assert SECRET not in str(headers)


async def test_reads_do_not_count_as_notebook_activity(world: World) -> None:
    cookie = await world.let_in()
    await world.ask(f"/n/{ID}/api/contents?content=1", cookie=cookie)
    await world.ask(f"/n/{ID}/api/sessions", method="POST", body=b"{}", cookie=cookie, origin=world.origin)
    assert world.jupyter.heard[0].target.endswith(b"/api/contents?content=1&no_track_activity=1")
    assert world.jupyter.bodies[1] == b"{}"


STRANGERS: list[tuple[dict[str, Any], int]] = [
    ({}, 401),
    ({"cookie": f"headway_notebook_{ID}=guess"}, 401),
    ({"own": True, "target": f"/n/{OTHER}/lab", "at": OTHER}, 401),
    ({"own": True, "target": "/clusters"}, 404),
    ({"own": True, "host": "127.0.0.1:7878"}, 400),
    ({"own": True, "host": "notebooks.localhost"}, 400),
    ({"own": True, "target": "/open?code=guess"}, 403),
    ({"own": True, "host": "evil.example"}, 400),
    ({"own": True, "host": "\xff"}, 400),
    ({"own": True, "origin": "\xff"}, 403),
    ({"own": True, "origin": "http://127.0.0.1:7878"}, 403),
    ({"own": True, "method": "POST", "body": b"{}"}, 403),
    ({"own": True, "method": "DELETE", "origin": "null"}, 403),
    ({"own": True, "upgrade": "websocket", "connection": "upgrade", "origin": "http://evil.example"}, 403),
    ({"own": True, "sec_fetch_site": "same-site", "sec_fetch_mode": "no-cors"}, 403),
    ({"own": True, "sec_fetch_site": "cross-site", "sec_fetch_mode": "cors"}, 403),
]


async def test_proxy_refuses_missing_sessions_and_foreign_hosts_or_origins(world: World) -> None:
    cookie = await world.let_in()
    for what, status in STRANGERS:
        ask = {"target": f"/n/{ID}/lab", **what}
        if ask.pop("own", False):
            ask["cookie"] = cookie
        if "at" in ask:
            ask["host"] = world.host(ask.pop("at"))
        assert (await world.ask(**ask))[0] == status, what
    assert world.jupyter.heard == []


@pytest.mark.parametrize("host", ["", OTHER])
async def test_page_of_another_notebook_cannot_use_my_cookies(apart: World, host: str) -> None:
    """The browser has both notebooks open, and sends whatever cookies fit where mallory's page asks."""
    cookie = f"{await apart.let_in()}; {await apart.let_in(OTHER, 'mallory')}"
    theirs = f"http://{apart.host(OTHER)}"
    here: dict[str, Any] = {"cookie": cookie, "host": apart.host(OTHER) if host else ""}
    refused = 400 if host else 403
    for target in (f"/n/{ID}/api/terminals", f"/n/{ID}/lab"):
        assert (await apart.ask(target, method="POST", body=b"{}", origin=theirs, **here))[0] == refused
    socket = {"upgrade": "websocket", "connection": "upgrade"}
    assert (await apart.ask(f"/n/{ID}/terminals/websocket/1", origin=theirs, **socket, **here))[0] == refused
    look = {"sec_fetch_site": "same-origin" if host else "same-site", "sec_fetch_mode": "cors"}
    assert (await apart.ask(f"/n/{ID}/api/contents", **look, **here))[0] == refused
    assert apart.jupyter.heard == []
    assert (await apart.ask(f"/n/{ID}/lab", cookie=cookie, sec_fetch_site="same-site", sec_fetch_mode="navigate"))[
        0
    ] == 200


async def test_notebook_link_works_only_on_its_own_host_name(apart: World) -> None:
    code, _ = apart.server.state.notebooks.create_code(OTHER, "mallory", apart.clock())
    assert (await apart.ask(f"/open?code={code}"))[0] == 400
    status, headers, _ = await apart.ask(f"/open?code={code}", host=apart.host(OTHER))
    assert status == 303
    assert "domain" not in headers["set-cookie"].lower()
    assert "clear-site-data" not in headers


async def test_extra_notebook_cookie_of_another_page_is_ignored(apart: World) -> None:
    cookie = await apart.let_in()
    for every in (f"{cookie}; headway_notebook_{ID}=x", f"headway_notebook_{ID}=x; {cookie}"):
        assert (await apart.ask(f"/n/{ID}/lab", cookie=every))[0] == 200


async def test_shared_origin_holds_notebooks_of_one_person_per_browser(shared: World) -> None:
    mine = await shared.let_in()
    status, headers, text = await shared.open(OTHER, "mallory", cookie=mine, sec_fetch_site="cross-site")
    assert (status, "set-cookie" in headers) == (403, False)
    assert b"notebooks of ann open" in text
    assert b"private window" in text
    status, headers, _ = await shared.open(ID, "ann", cookie=mine)
    assert (status, "clear-site-data" in headers) == (303, False)
    shared.server.state.notebooks.end_sessions_of("ann")
    status, headers, _ = await shared.open(OTHER, "mallory", cookie=mine)
    assert (status, headers["clear-site-data"]) == (303, '"cache", "storage"')
    person = headers["set-cookie"].splitlines()[1]
    assert "Path=/; HttpOnly; SameSite=Lax" in person


async def test_link_refused_in_one_browser_still_opens_in_another(shared: World) -> None:
    mine = await shared.let_in()
    code, _ = shared.server.state.notebooks.create_code(OTHER, "mallory", shared.clock())
    assert (await shared.ask(f"/open?code={code}", cookie=mine))[0] == 403
    assert (await shared.ask(f"/open?code={code}"))[0] == 303


async def test_shared_origin_refuses_cookies_of_different_persons(shared: World) -> None:
    (mine, ann), (theirs, mallory) = [
        (await shared.let_in(*whose)).split("; ") for whose in ((ID, "ann"), (OTHER, "mallory"))
    ]
    ask = {"target": f"/n/{ID}/api/terminals", "method": "POST", "body": b"{}", "origin": shared.origin}
    for cookies, status in (([mine], 401), ([mine, mallory], 403), ([mine, ann, mallory], 403), ([theirs, ann], 401)):
        assert (await shared.ask(**ask, cookie="; ".join(cookies)))[0] == status, cookies  # type: ignore[arg-type]
    assert shared.jupyter.heard == []
    assert (await shared.ask(**ask, cookie=f"{mine}; {ann}"))[0] == 200  # type: ignore[arg-type]
    worker = {"cookie": f"{mine}; {ann}", "service_worker": "script", "sec_fetch_site": "same-origin"}
    assert (await shared.ask(f"/n/{ID}/files/worker.js", **worker))[0] == 403  # it would know where other pages are


async def test_notebook_session_ends_with_sign_out_role_loss_and_deletion(world: World) -> None:
    cookie, path = await world.let_in(), f"/n/{ID}/lab"
    assert (await world.ask(path, cookie=cookie))[0] == 200
    world.server.state.notebooks.end_sessions_of("ann")
    assert (await world.ask(path, cookie=cookie))[0] == 401
    cookie = await world.let_in()
    await world.server.store.people.set_role("ann", "viewer")
    world.clock.now += 31
    assert (await world.ask(path, cookie=cookie))[0] == 403
    await world.server.store.people.set_role("ann", "admin")
    await world.server.store.people.set_role("mallory", "admin")
    cookie = await world.let_in()
    await world.server.store.people.disable("ann", by="mallory")  # at another server of the database
    world.clock.now += 31
    assert (await world.ask(path, cookie=cookie))[0] == 403
    await world.server.store.people.enable("ann", by="mallory")
    cookie = await world.let_in()
    await world.server.store.notebooks.delete(ID)
    assert (await world.ask(path, cookie=cookie))[0] == 410


async def test_websocket_is_forwarded_both_ways_until_sign_out(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notebook_proxy, "LOOK_S", 0.05)
    cookie = await world.let_in()
    reader, writer = await asyncio.open_connection("127.0.0.1", world.port)
    head = {
        "Host": world.origin.removeprefix("http://"), "Cookie": cookie, "Origin": world.origin, "Connection": "Upgrade",
        "Upgrade": "websocket", "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==", "Sec-WebSocket-Version": "13",
    }  # fmt: skip
    lines = [f"GET /n/{ID}/api/kernels/k/channels HTTP/1.1", *(f"{name}: {value}" for name, value in head.items())]
    writer.write("\r\n".join([*lines, "", ""]).encode())
    async with asyncio.timeout(60):
        answer = await reader.readuntil(b"\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 101")
        assert b"set-cookie" not in answer.lower()
        writer.write(b"ping")
        assert await reader.readexactly(6) == b"<ping>"
        world.server.state.notebooks.end_sessions_of("ann")
        assert await reader.read() == b""
    writer.close()


async def test_large_response_is_transferred_completely(world: World) -> None:
    world.jupyter.big = 5 * tunnels.WINDOW
    cookie = await world.let_in()
    _, _, text = await world.ask(f"/n/{ID}/files/model.bin", cookie=cookie)
    assert len(text) == 5 * tunnels.WINDOW


async def test_tunnel_disconnects_a_peer_that_exceeds_its_window() -> None:
    frame = tunnels.HEAD.pack(1, b"D", tunnels.MAX_FRAME) + b"x" * tunnels.MAX_FRAME

    class Flood:
        over = False
        pieces = [tunnels.HEAD.pack(1, b"K", 0), *[frame] * 64]

        async def write(self, data: bytes) -> None: ...

        async def read(self) -> bytes:
            await asyncio.sleep(0)
            return self.pieces.pop(0) if self.pieces else b""

        async def close(self) -> None: ...

    made = Tunnel(Flood(), "node")
    await made.connect()
    async with asyncio.timeout(60):
        await asyncio.wait([made._reader])
    assert len(Flood.pieces) > 40, "it went on reading"
    assert not made.alive
    await made.close()


async def test_tunnel_reports_when_no_socket_is_listening(tmp_path: Path) -> None:
    made = Tunnel(await Local.start(str(tmp_path / "none")), "lab-1-1")
    with pytest.raises(Unreachable, match=r"lab-1-1 does not answer yet: No such file"):
        await made.connect()
    await made.close()


async def test_tunnel_runs_as_the_user_on_the_notebook_socket(tmp_path: Path) -> None:
    asked: list[list[str]] = []

    class Links:
        async def hold(self, machine: Machine, argv: list[str]) -> Local:
            asked.append(argv)
            return await Local.start(str(tmp_path / "none"))

    made = await tunnels.open_tunnel(Links(), builders.machine("lab-1-1"), "ann", "/f/socket")
    assert '"do": "tunnel", "user": "ann", "path": "/f/socket"' in asked[0][-1]
    await made.close()
