"""The log on a job's page resumes after interruptions, shows whole lines of the right task, and finds lines by
search."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import httpx
import pytest
from playwright.sync_api import Page, Request, Route, expect

from headway import Client
from tests.support.clusters import builders
from tests.support.site import demo_state
from tests.support.site.job_log import Log
from tests.support.site.server import Site

pytestmark = pytest.mark.browser
BROKE = "the connection broke; trying again"


def shows(page: Page, text: str) -> None:
    """Waits until the pane shows exactly this text; it is drawn a frame after the data arrived."""
    page.wait_for_function("text => document.getElementById('log-text').textContent === text", arg=text)


def stopping(demo: Site, *, now: bool) -> None:
    event = demo.state.live.stopping
    demo.loop.call_soon_threadsafe(event.set if now else event.clear)


def test_page_log_resumes_at_its_offset_after_a_server_restart(
    demo: Site, page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Log(demo, monkeypatch, b"step 1\n")
    demo.goto(page, "/clusters/demo/jobs/104", role="member")
    state = page.locator("#log-state")
    expect(state).to_have_text("live")
    stopping(demo, now=True)
    expect(state).to_have_text(BROKE)
    stopping(demo, now=False)
    log.write(b"step 2\n")
    expect(page.locator("#log-text")).to_contain_text("step 2")
    expect(state).to_have_text("live")
    log.write(b"step 3\n", end=True)
    expect(state).to_have_text("complete")
    shows(page, "step 1\nstep 2\nstep 3")
    assert log.starts[0] == log.starts[-1] == 7


def test_raw_log_stream_breaks_while_the_client_library_resumes(demo: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log(demo, monkeypatch, b"step 1\n")
    demo.run(demo.state.store.people.set_role("alice", "member"))
    _, token = demo.run(demo.state.store.tokens.create("alice"))
    asked = {"headers": {"authorization": f"Bearer {token}"}, "params": {"follow": "true"}, "timeout": 60}
    with httpx.stream("GET", f"{demo.url}/api/v1/clusters/demo/jobs/104/log", **asked) as raw:
        pieces = raw.iter_raw()
        assert next(pieces) == b"step 1\n"
        with Client(demo.url, token) as client:
            ours = client.jobs.log("demo", 104, follow=True)
            assert next(ours) == b"step 1\n"
            stopping(demo, now=True)
            with pytest.raises(httpx.RemoteProtocolError):
                next(pieces)
            stopping(demo, now=False)
            log.write(b"step 2\n", end=True)
            assert list(ours) == [b"step 2\n"]


@pytest.mark.parametrize("what", ["part", "follow", "unreachable", "too_many_at_once"])
def test_page_log_retries_until_the_server_answers(
    demo: Site, page: Page, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    log, said = Log(demo, monkeypatch, b"step 1\n"), what not in ("part", "follow")
    asked: list[str] = []

    def away(route: Route) -> None:
        asked.append(route.request.url)
        if said:
            body = json.dumps({"kind": what, "detail": "demo-head does not answer"})
            status = 429 if what == "too_many_at_once" else 503
            route.fulfill(status=status, body=body, content_type="application/problem+json")
        else:
            route.abort()

    address = "**/log/part?*" if what in ("part", "too_many_at_once") else "**/log?follow*"
    page.route(address, away)
    demo.goto(page, "/clusters/demo/jobs/104", role="member")
    expect(page.locator("#log-state")).to_have_text("demo-head does not answer" if said else BROKE)
    while len(asked) < 2:  # another attempt, which fails too; the page also sends other requests
        page.wait_for_event("request", predicate=lambda request: "/log" in request.url)
    page.unroute(address)
    expect(page.locator("#log-state")).to_have_text("live")
    log.write(b"step 2\n", end=True)
    expect(page.locator("#log-state")).to_have_text("complete")
    shows(page, "step 1\nstep 2")
    assert len(asked) >= 2


def test_page_log_shows_a_permanent_error_without_retrying(
    demo: Site, page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Log(demo, monkeypatch, b"")
    body = json.dumps({"kind": "not_allowed", "detail": "alice may not read it"})
    page.route("**/log/part?*", lambda route: route.fulfill(status=403, body=body, content_type="application/json"))
    demo.goto(page, "/clusters/demo/jobs/104", role="member")
    expect(page.locator("#log-state")).to_have_text("alice may not read it")
    assert log.starts == []


def test_last_array_task_shows_its_own_log(demo: Site, page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last task has the array's own number, which stands for all tasks' lines."""
    log = Log(demo, monkeypatch, b"of task 9\n")
    last = replace(builders.job(120, user="alice"), array_job_id=120, array_task="9")
    other = replace(last, id=121, array_task="0")
    known = demo.state.live.snapshot("demo")
    demo_state.SHOWN["demo"] = replace(known, jobs=(*known.jobs, last, other))
    demo.loop.call_soon_threadsafe(demo.state.live.store_snapshot, demo_state.SHOWN["demo"])
    demo.backend.answers["task"] = lambda _, __, task: {"9": last}[task]
    asked: list[str] = []
    page.on("request", lambda request: asked.append(_log(request)) if _log(request) else None)
    demo.goto(page, "/clusters/demo/jobs/120", role="member")
    expect(page.locator("#log-state")).to_have_text("live")
    log.write(b"more of it\n", end=True)
    expect(page.locator("#log-state")).to_have_text("complete")
    shows(page, "of task 9\nmore of it")
    page.get_by_label("Search the whole log").fill("more")
    page.get_by_role("button", name="Find").click()
    expect(page.locator("#log-found button")).to_have_count(1)
    assert page.locator("#log-download").get_attribute("href") == "/api/v1/clusters/demo/jobs/120/log?task=9"
    assert len(asked) == 3
    assert all("task=9" in query for query in asked), asked
    page.goto(f"{demo.url}/clusters/demo/jobs/121")
    expect(page.locator("#log-state")).to_have_text("complete")
    assert "task" not in (page.locator("#log-download").get_attribute("href") or "")


def _log(request: Request) -> str:
    return request.url.partition("/log")[2] if "/api/" in request.url else ""


def test_clicked_search_result_is_marked_in_the_log(demo: Site, page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [f"é step {step} loss 1.5" for step in range(300)]
    Log(demo, monkeypatch, "".join(f"{line}\n" for line in lines).encode()).ended = True
    demo.goto(page, "/clusters/demo/jobs/104", role="member")
    expect(page.locator("#log-state")).to_have_text("complete")
    page.get_by_label("Search the whole log").fill("loss")
    page.get_by_role("button", name="Find").click()
    hits = page.locator("#log-found button")
    for number in (120, 7):
        hits.nth(number).click()
        expect(page.locator("#log-text mark")).to_have_text("loss")
        page.wait_for_function(
            """line => {
                const mark = document.querySelector("#log-text mark");
                return mark && mark.previousSibling.data.split("\\n").at(-1) + mark.textContent === line;
            }""",
            arg=f"é step {number} loss",
        )
        expect(page.locator("#log-text mark")).to_be_in_viewport()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.route("**/log/part?*", lambda route: route.abort())
    hits.nth(1).click()
    expect(page.locator("#log-state")).to_have_text("Failed to fetch")
    assert errors == []


def test_incomplete_log_line_is_continued(demo: Site, page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = "step 1\nstep 2 café 3\nstep 4\n".encode()
    cut = whole.index("é".encode()) + 1  # in the middle of a character
    log = Log(demo, monkeypatch, whole[:cut])
    demo.goto(page, "/clusters/demo/jobs/104", role="member")
    expect(page.locator("#log-state")).to_have_text("live")
    shows(page, "step 1\nstep 2 caf")
    log.write(whole[cut:], end=True)
    expect(page.locator("#log-state")).to_have_text("complete")
    shows(page, whole.decode().rstrip())


CHOSEN = "() => getSelection().toString()"
AT_TOP = """() => {
    const pre = document.getElementById("log-text");
    return pre.textContent.split("\\n")[Math.round(pre.scrollTop / parseFloat(getComputedStyle(pre).lineHeight))];
}"""


def test_scroll_position_and_selection_stay_while_the_log_grows(
    demo: Site, page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Log(demo, monkeypatch, b"step 0\n")
    text = page.locator("#log-text")

    def grows(first: int, last: int) -> None:
        log.write("".join(f"step {i}\n" for i in range(first, last + 1)).encode())
        expect(text).to_contain_text(f"step {last}")

    demo.goto(page, "/clusters/demo/jobs/104", role="member")
    expect(page.locator("#log-state")).to_have_text("live")
    grows(1, 999)
    page.evaluate("""() => {
        const pre = document.getElementById("log-text"), text = pre.firstChild, at = text.data.indexOf("step 990");
        getSelection().setBaseAndExtent(text, at, text, at + 8);
        pre.scrollTop = pre.scrollHeight * 0.8;
    }""")
    first = page.evaluate(AT_TOP)
    assert re.fullmatch("step [78]..", first)
    grows(1000, 1000)
    assert (page.evaluate(CHOSEN), page.evaluate(AT_TOP)) == ("step 990", first)
    grows(1001, 5050)
    assert text.inner_text().startswith("step 551\n"), "its beginning made room"
    assert (page.evaluate(CHOSEN), page.evaluate(AT_TOP)) == ("step 990", first)
