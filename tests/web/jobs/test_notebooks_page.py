"""The notebooks page works, and a notebook's page can affect neither the API nor another person's notebook."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from headway.schemas.submission.submit_request import SubmitOut
from headway.server.main import bind_socket
from headway.server.notebook_proxy import NotebookProxy, origin_of
from headway.services.jobs.notebooks import notebooks
from headway.store import NotebookRow
from tests.support.site.browser import evaluate
from tests.support.site.notebooks import RUNNING
from tests.support.site.server import Site

pytestmark = pytest.mark.browser
FETCH = """async ([url, how]) => {
  try { const answer = await fetch(url, how); return [answer.type, await answer.text()]; }
  catch (error) { return ["refused", ""]; }
}"""


def test_notebook_can_be_started_and_shows_its_state(demo: Site, page: Page) -> None:
    object.__setattr__(demo.state.settings, "notebooks", "http://*.notebooks.localhost:7879")
    demo.backend.answers["submit"] = SubmitOut(job_id=105, cluster="demo", user="alice", workdir="~")
    demo.goto(page, "/clusters/demo/notebooks", role="member")
    books = page.locator("#notebooks")
    expect(books.locator("li.is-running")).to_contain_text("simulated GPUs")
    expect(books.locator("li.is-waiting")).to_contain_text("waiting")
    opens = books.get_by_role("link", name="Open")
    assert (opens.get_attribute("rel"), opens.get_attribute("target")) == ("noopener", "_blank")
    page.fill("#nb-gpus", "99")
    page.click("text=Start >> nth=-1")
    expect(page.get_by_role("alert").or_(page.locator(".field__fault"))).to_be_visible()
    page.fill("#nb-gpus", "2")
    page.get_by_role("button", name="Start").click()
    expect(books.locator("li")).to_have_count(3)
    assert "--gpus-per-node=2" in demo.backend.named("submit")[0][1].args


@pytest.mark.parametrize("origin", ["http://n-a.notebooks.localhost:9", "http://127.0.0.1:9"])
def test_notebook_page_cannot_read_or_write_the_api(demo: Site, page: Page, origin: str) -> None:
    """On the other host name, and on a port of the same name, where browsers do send the session cookie."""
    before = demo.run(demo.state.store.operations.recent("demo"))
    demo.goto(page, "/clusters/demo", role="admin")
    page.route(
        f"{origin}/**",
        lambda route: route.fulfill(body="<!doctype html><title>notebook</title>", content_type="text/html"),
    )
    page.goto(f"{origin}/n/x/lab")
    api = f"{demo.url}/api/v1/clusters"
    for how in ({"credentials": "include"}, {"credentials": "include", "mode": "no-cors"}):
        assert evaluate(page, FETCH, [api, how])[1] == ""
    write = {"credentials": "include", "mode": "no-cors", "method": "POST"}
    for path in ("/signout", "/new/apply", "/api/v1/clusters/demo/down"):
        evaluate(page, FETCH, [f"{demo.url}{path}", write])
    assert evaluate(page, FETCH, [f"{api}/demo/jobs/104", {"credentials": "include", "method": "DELETE"}])[1] == ""
    assert demo.backend.named("cancel") == []
    assert demo.run(demo.state.store.operations.recent("demo")) == before
    page.goto(f"{demo.url}/clusters/demo")
    expect(page.get_by_role("heading", name="Sign in")).to_have_count(0)


HERS, HIS = RUNNING, "c" * 16  # alice's, mallory's
SOCKET = """url => new Promise(done => {
  const socket = new WebSocket(url);
  socket.onopen = () => done("open"); socket.onerror = () => done("refused");
})"""


class _Lab:
    """A tunnel to a program behind a notebook, which answers everything and records its requests."""

    alive = True

    def __init__(self, heard: list[bytes]) -> None:
        self.heard = heard
        self.left = b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 5\r\nconnection: close\r\n\r\nhello"

    async def connect(self) -> Any:
        return _Lab(self.heard)

    async def write(self, data: bytes) -> None:
        self.heard.append(data)

    async def read(self) -> bytes:
        now, self.left = self.left, b""
        return now

    async def close(self) -> None: ...


@dataclass
class _Doors:
    demo: Site
    port: int
    heard: list[bytes]

    def link(self, notebook: str, person: str) -> str:
        code, _ = self.demo.state.notebooks.create_code(notebook, person, self.demo.state.clock())
        return f"{notebooks.notebook_origin(self.demo.state, notebook)}/open?code={code}"


@pytest.fixture(params=["each its name", "all one name"])
def doors(demo: Site, request: pytest.FixtureRequest) -> Iterator[_Doors]:
    """Yields alice's notebook and one of mallory's behind a real notebook proxy."""
    sock = bind_socket("127.0.0.1", 0)
    made = _Doors(demo, sock.getsockname()[1], [])
    url = origin_of("127.0.0.1", made.port, "") if request.param == "each its name" else f"http://127.0.0.1:{made.port}"
    object.__setattr__(demo.state.settings, "notebooks", url)
    hers = demo.run(demo.state.store.notebooks.get(HERS))
    # On her job, because no other one runs: a notebook belongs to its person, whatever its Linux user is.
    row = NotebookRow(HIS, "demo", hers.job_id, "mallory", hers.user, "/m", "secret", 60, hers.at)
    demo.run(demo.state.store.notebooks.save(row))
    demo.backend.answers["open_tunnel"] = _Lab(made.heard)
    door = NotebookProxy(demo.state)
    demo.run(door.listen(sock))
    yield made
    demo.run(door.close())


def test_foreign_notebook_page_cannot_act_in_my_notebook(doors: _Doors, page: Page) -> None:
    hers = notebooks.notebook_origin(doors.demo.state, HERS)
    terminals = f"{hers}/n/{HERS}/api/terminals"
    write = {"method": "POST", "credentials": "include"}
    page.goto(doors.link(HERS, "alice"))
    assert evaluate(page, FETCH, [terminals, write]) == ["basic", "hello"]
    assert len(doors.heard) == 2
    his = page.context.new_page()  # she opens the link that mallory gave her
    his.goto(doors.link(HIS, "mallory"))
    if hers.startswith("http://127"):
        expect(his.get_by_role("heading")).to_have_text("This browser has notebooks of alice open")
        assert len(doors.heard) == 2
        return
    assert his.evaluate("document.body.textContent") == "hello"
    before = len(doors.heard)
    here = f"{notebooks.notebook_origin(doors.demo.state, HIS)}/n/{HERS}/api/terminals"
    for url in (terminals, here):
        for how in (write, {**write, "mode": "no-cors"}, {"credentials": "include", "mode": "no-cors"}):
            assert evaluate(his, FETCH, [url, how])[1] != "hello"
        assert evaluate(his, SOCKET, url.replace("http", "ws")) == "refused"
    assert doors.heard[before:] == []
    assert evaluate(page, FETCH, [terminals, write]) == ["basic", "hello"]
