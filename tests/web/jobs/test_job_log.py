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
from headway.schemas.jobs import LogFoundOut, LogLineOut
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
    demo.goto(page, "/clusters/demo/jobs/120_9", role="member")
    expect(page.locator("#log-state")).to_have_text("live")
    log.write(b"more of it\n", end=True)
    expect(page.locator("#log-state")).to_have_text("complete")
    shows(page, "of task 9\nmore of it")
    page.get_by_label("Search the whole log").fill("more")
    page.get_by_role("button", name="Search").click()
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
    page.get_by_role("button", name="Search").click()
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
        const pre = document.getElementById("log-text"), text = pre.children[990].firstChild;
        getSelection().setBaseAndExtent(text, 0, text, 8);
        pre.scrollTop = pre.scrollHeight * 0.8;
    }""")
    first = page.evaluate(AT_TOP)
    assert re.fullmatch("step [78]..", first)
    grows(1000, 1000)
    assert (page.evaluate(CHOSEN), page.evaluate(AT_TOP)) == ("step 990", first)
    grows(1001, 5050)
    assert text.inner_text().startswith("step 551\n"), "its beginning made room"
    assert (page.evaluate(CHOSEN), page.evaluate(AT_TOP)) == ("step 990", first)


def test_log_is_shown_as_a_terminal_shows_it_with_line_numbers(
    demo: Site, page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    bar = b"".join(b"\rEpoch 1: %3d%%" % number for number in range(101))
    log = Log(demo, monkeypatch, b"\x1b[1;32m[INFO]\x1b[0m start\n" + bar + b"\n\x1b]0;title\x07third\r\n")
    demo.goto(page, "/clusters/demo/jobs/104", role="member")
    expect(page.locator("#log-state")).to_have_text("live")
    log.write(b"\x1b[31mError: no GPU\x1b[0m\n", end=True)
    expect(page.locator("#log-state")).to_have_text("complete")
    shows(page, "[INFO] start\nEpoch 1: 100%\nthird\nError: no GPU")
    expect(page.locator(".log-line .log-b.log-c2")).to_have_text("[INFO]")
    expect(page.locator(".log-line .log-c1")).to_have_text("Error: no GPU")
    numbers = page.locator(".log-line").evaluate_all("lines => lines.map((line) => line.dataset.n)")
    assert numbers == ["1", "2", "3", "4"]
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy").click()
    expect(page.locator("#log-state")).to_have_text("copied 4 lines")
    assert page.evaluate("navigator.clipboard.readText()") == "[INFO] start\nEpoch 1: 100%\nthird\nError: no GPU"
    page.get_by_role("button", name="Wrap").click()
    expect(page.locator("#log-text")).to_have_class(re.compile("is-unwrapped"))


def test_enter_and_buttons_go_from_match_to_match(demo: Site, page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [f"step {step} {'warning' if step % 100 == 50 else 'ok'}" for step in range(300)]
    Log(demo, monkeypatch, "".join(f"{line}\n" for line in lines).encode()).ended = True
    demo.goto(page, "/clusters/demo/jobs/104", role="member")
    expect(page.locator("#log-state")).to_have_text("complete")
    field, marked = page.get_by_label("Search the whole log"), page.locator("#log-text .log-line:has(mark)")
    field.fill("warning")
    field.press("Enter")
    expect(page.locator("#log-found button")).to_have_count(3)
    for number in (1, 2, 3, 1):
        field.press("Enter")
        expect(page.locator("#log-match")).to_have_text(f"match {number} of 3")
        expect(marked).to_contain_text(lines[100 * (number - 1) + 50])
        expect(marked).to_have_attribute("data-n", str(100 * (number - 1) + 51))
    page.get_by_role("button", name="Previous").click()
    expect(page.locator("#log-match")).to_have_text("match 3 of 3")


def test_last_error_of_a_failed_job_is_in_its_banner(demo: Site, page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    error = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB."
    Log(demo, monkeypatch, f"step 1\nTraceback (most recent call last):\n{error}\n".encode()).ended = True
    failed = replace(builders.job(120, "FAILED", user="alice", exit_code=3), start_time=900, end_time=990)
    known = demo.state.live.snapshot("demo")
    demo_state.SHOWN["demo"] = replace(known, jobs=(*known.jobs, failed))
    demo.loop.call_soon_threadsafe(demo.state.live.store_snapshot, demo_state.SHOWN["demo"])
    demo.goto(page, "/clusters/demo/jobs/120", role="member")
    expect(page.locator("#head .notice")).to_contain_text("the program ended with exit code 3")
    expect(page.locator("#head .notice")).to_contain_text(error)
    demo.goto(page, "/clusters/demo/jobs/120", role="viewer")
    expect(page.locator("#head .notice")).not_to_contain_text(error)


def test_a_progress_bar_is_drawn_without_reading_all_of_its_line_again(
    demo: Site, page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    page.add_init_script("""
        const split = String.prototype.split;
        window.longest = 0;
        String.prototype.split = function (...by) {
            window.longest = Math.max(window.longest, this.length);
            return split.apply(this, by);
        };
    """)
    bar = "".join(f"\r{step:6} of 999999" for step in range(20_000))
    log = Log(demo, monkeypatch, f"begin\n\r\n{bar}".encode())
    demo.goto(page, "/clusters/demo/jobs/104", role="member")
    text = page.locator("#log-text")
    expect(text).to_contain_text(" 19999 of 999999")
    page.evaluate("window.longest = 0")
    log.write(b"\r 20000 of 999999\r\x1b[K")
    expect(text).to_contain_text(" 20000 of 999999")
    assert page.evaluate("window.longest") < 100_000
    log.write(b"\nend", end=True)
    shows(page, "begin\n\n 20000 of 999999\nend")


def test_repeated_lines_are_folded_and_ranks_are_chosen(
    demo: Site, page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranks = "".join(f"[rank{rank}]: NCCL started\n" for rank in range(8))
    log = Log(demo, monkeypatch, f"{ranks}0: step 1\n1: step 1\n1: retry".encode())
    demo.goto(page, "/clusters/demo/jobs/104", role="member")
    lines = page.locator("#log-text .log-line:visible")
    expect(lines).to_have_text([re.compile("rank0.*started"), re.compile("step 1"), re.compile("retry")])
    expect(lines.first).to_have_attribute("data-repeats", "\N{MULTIPLICATION SIGN}8")
    expect(lines.nth(1)).to_have_attribute("data-repeats", "\N{MULTIPLICATION SIGN}2")
    log.write(b"\n1: retry", end=True)
    expect(lines.nth(2)).to_have_attribute("data-repeats", "\N{MULTIPLICATION SIGN}2")
    page.get_by_role("button", name="Fold").click()
    expect(lines).to_have_count(12)
    page.get_by_label("Lines of rank").select_option("1")
    expect(lines).to_have_text(
        [re.compile("rank1"), re.compile("1: step 1"), re.compile("1: retry"), re.compile("1: retry")]
    )


def test_first_error_of_the_whole_log_is_shown(demo: Site, page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (
        "begin\n0 errors so far\nRuntimeError: NCCL error in lab-1-2\n"
        + "step\n" * 3000
        + "Error: the launcher ended\n"
    )
    monkeypatch.setattr(demo_state, "LOG", text.splitlines())
    demo.goto(page, "/clusters/demo/jobs/104", role="member")
    page.get_by_role("button", name="First error").click()
    expect(page.locator("#log-match")).to_have_text("match 1 of 2")
    expect(page.locator("#log-text mark")).to_be_visible()
    expect(page.locator("#log-text .log-line", has=page.locator("mark"))).to_contain_text(
        "RuntimeError: NCCL error in lab-1-2"
    )


def test_first_error_says_which_part_of_the_log_was_searched(demo: Site, page: Page) -> None:
    def search(_: object, __: object, text: str, err: bool) -> LogFoundOut:
        if text != "error":
            return LogFoundOut(found=[])
        found = [LogLineOut(offset=30 * i, line=i + 1, text=f"epoch {i} done, 0 errors") for i in range(200)]
        return LogFoundOut(found=found, more=True)

    demo.backend.answers["search_log"] = search
    demo.goto(page, "/clusters/demo/jobs/104", role="member")
    page.get_by_role("button", name="First error").click()
    expect(page.locator("#log-found")).to_have_text(
        "No line states an error. The search stopped early: after line 200 there may be more"
    )


def test_rank_of_a_line(demo: Site, page: Page) -> None:
    expected = {
        "3: step 1": "3", " 3: step 1": "3", "[rank12]: step 1": "12", "[default0]:step 1": "0",
        "14:59:58 INFO step 1": "", "[2024] step 1": "", "0:node1": "",
    }  # fmt: skip
    demo.goto(page, "/clusters/demo/jobs/104", role="member")
    assert page.evaluate("lines => lines.map(headwayLogLines.rank)", list(expected)) == list(expected.values())
