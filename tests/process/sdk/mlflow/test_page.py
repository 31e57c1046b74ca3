"""MLflow's pages on a person's computer: only the browser with the link gets them, with the person's token and without Headway's
headers."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import httpx
import pytest

from headway.sdk.client import Client
from headway.sdk.mlflow.page import MlflowPage


@pytest.fixture
def asked() -> list[httpx.Request]:
    return []


@pytest.fixture
def pages(asked: list[httpx.Request]) -> Iterator[MlflowPage]:
    def answer(request: httpx.Request) -> httpx.Response:
        request.read()
        asked.append(request)
        headers = {"Content-Security-Policy": "default-src 'none'", "Content-Type": "text/html", "Set-Cookie": "a=b"}
        return httpx.Response(200 if "missing" not in request.url.path else 404, content=b"<p>runs", headers=headers)

    client = Client("http://headway.example", "token", transport=httpx.MockTransport(answer))
    server = MlflowPage(client, "lab", "vision")
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_the_link_opens_the_pages_in_one_browser(pages: MlflowPage, asked: list[httpx.Request]) -> None:
    with httpx.Client(base_url=f"http://{pages.host}", trust_env=False) as browser:
        assert browser.get("/").status_code == 403
        assert browser.get("/?secret=wrong").status_code == 403
        assert asked == []
        opened = browser.get(pages.link)
        assert (opened.status_code, opened.headers["location"]) == (303, "/")
        assert "HttpOnly; SameSite=Strict" in opened.headers["set-cookie"]
        shown = browser.get("/static-files/a.js?v=1")
        assert (shown.status_code, shown.text) == (200, "<p>runs")
        assert "content-security-policy" not in shown.headers
        assert "set-cookie" not in shown.headers
        assert browser.post("/ajax-api/2.0/mlflow/runs/search", json={"a": 1}).status_code == 200
        assert browser.get("/missing").status_code == 404
    first, second, _ = asked
    assert str(first.url) == "http://headway.example/api/v1/clusters/lab/mlflow/vision/static-files/a.js?v=1"
    assert first.headers["authorization"] == "Bearer token"
    assert "cookie" not in first.headers
    assert (second.method, second.content) == ("POST", b'{"a":1}')


def test_another_name_for_this_computer_is_refused(pages: MlflowPage, asked: list[httpx.Request]) -> None:
    with httpx.Client(base_url=f"http://{pages.host}", trust_env=False, headers={"Host": "evil.example"}) as browser:
        assert browser.get(pages.link).status_code == 403
    assert asked == []
