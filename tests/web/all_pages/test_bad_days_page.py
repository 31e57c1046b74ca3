"""When the server or a cluster has faults, every page still loads and says what is wrong. Without a browser."""

from __future__ import annotations

import contextlib
import re
import sqlite3
import time
from collections.abc import Iterator

import httpx
import pytest
from structlog.testing import capture_logs

from headway.errors import Unreachable
from headway.store.db import engine
from tests.support.site.server import PEOPLE, Site

TABS = ("", "/queue", "/submit", "/nodes", "/incidents", "/events", "/notebooks", "/teams")


@contextlib.contextmanager
def signed_in(site: Site, role: str = "admin") -> Iterator[httpx.Client]:
    cookie = site.run(site._sign_in(PEOPLE[role], role))
    with httpx.Client(base_url=site.url, cookies={site.state.settings.cookie: cookie}, timeout=60) as client:
        yield client


def words(page: httpx.Response) -> str:
    """Returns the text of the page's main part."""
    return re.sub(r"\s+", " ", re.sub("<[^>]+>", " ", page.text[page.text.find("<main") :]))


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shortens the wait for the database's lock to a fifth of a second."""
    monkeypatch.setattr(engine, "BUSY_TIMEOUT_MS", 200)


def test_locked_database_allows_reading_and_explains_failed_writes(impatient: None, demo: Site) -> None:
    row, token = demo.run(demo.state.store.tokens.create("ann"))
    file = demo.state.settings.state_dir / "headway.db"
    with signed_in(demo) as client, contextlib.closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        pages = ["/", "/new", "/tokens", "/clusters/demo/jobs/104", *(f"/clusters/demo{tab}" for tab in TABS)]
        assert {path: client.get(path).status_code for path in pages} == dict.fromkeys(pages, 200)
        headers = {"authorization": f"Bearer {token}"}
        assert httpx.get(f"{demo.url}/api/v1/clusters", headers=headers).status_code == 200
        said = client.post(f"/tokens/{row.id}/revoke", headers={"origin": demo.url})
        assert said.status_code == 503
        assert "database is locked by another program" in words(said)
        other.execute("ROLLBACK")
        assert client.get("/tokens").status_code == 200


def line_with(lines: Iterator[str], text: str) -> str:
    """Returns the first line of a stream with this text. The stream goes on with empty comments while nothing happens."""
    ends = time.monotonic() + 120
    for line in lines:
        if text in line:
            return line
        assert time.monotonic() < ends, f"no line with {text!r}"
    raise AssertionError(f"the stream ended without {text!r}")


def test_unresponsive_slurm_is_named_on_all_pages_and_open_streams(demo: Site) -> None:
    why = "slurmctld on demo-head does not answer"
    with signed_in(demo) as client, client.stream("GET", "/clusters/demo/queue/live") as open_page:
        lines = open_page.iter_lines()
        assert line_with(lines, "event: foot").startswith("event: foot")
        demo.loop.call_soon_threadsafe(demo.state.live.mark_stale, "demo", why)
        assert line_with(lines, why).startswith("data: ")
        for call in (
            "read",
            "history",
            "shares",
            "job_runs",
            "job",
            "run_command",
            "step_result_files",
            "log_part",
            "submit",
        ):
            demo.backend.answers[call] = Unreachable(why)
        for tab in (*TABS, "/jobs/104", "/nodes/demo-1-1", "/submit?from=104", "/queue?show=ended"):
            page = client.get(f"/clusters/demo{tab}")
            assert (page.status_code, why in words(page)) in ((200, True), (503, True)), tab
            assert page.status_code == 200 or "from=" in tab
        assert why in words(client.get("/"))
    form = {"how": "script", "script": "#!/bin/bash\nsrun train\n"}
    with signed_in(demo, "member") as client:
        sent = client.post("/clusters/demo/submit", data=form, headers={"origin": demo.url})
    assert "was not submitted" in words(sent)
    assert "srun train" in sent.text, "what was written is still there"
    assert demo.backend.named("submit") == []


def test_cluster_being_created_is_explained_on_every_page(demo: Site) -> None:
    with signed_in(demo) as client:
        for tab in TABS:
            page = client.get(f"/clusters/half{tab}")
            assert (page.status_code, "The cluster is being created" in words(page)) == (200, True), tab
        assert "was not read yet" in words(client.get("/clusters/half/queue"))
        assert client.get("/clusters/half/jobs/104").status_code == 404


def test_unexpected_error_page_hides_its_details(demo: Site) -> None:
    demo.backend.answers["shares"] = ValueError("munge key 123")
    with signed_in(demo) as client, capture_logs() as logged:
        page = client.get("/clusters/demo/teams")
    assert page.status_code == 500
    assert [(one["event"], one["path"]) for one in logged] == [("bug", "/clusters/demo/teams")]
    assert "internal error of Headway (ValueError)" in words(page)
    assert "123" not in page.text


def test_unknown_address_is_a_page_in_a_browser_and_json_for_programs(demo: Site) -> None:
    with signed_in(demo) as client:
        page = client.get("/nothing/here", headers={"accept": "text/html"})
        assert (page.status_code, page.headers["content-type"]) == (404, "text/html; charset=utf-8")
        assert "This address does not exist" in words(page)
        for path, accepted in (("/nothing/here", "*/*"), ("/api/v1/nothing", "text/html")):
            answer = client.get(path, headers={"accept": accepted})
            assert (answer.status_code, answer.headers["content-type"]) == (404, "application/problem+json")
