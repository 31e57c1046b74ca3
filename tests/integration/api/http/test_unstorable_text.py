"""NUL bytes and lone surrogates are refused in URLs, forms and JSON, and removed from audit entries."""

from __future__ import annotations

import pytest

from headway.schemas.base import PROBLEM_JSON
from tests.support.servers.server_fakes import URL, Server

API = "/api/v1"


@pytest.mark.parametrize("path", ["/clusters/a%00b", "/clusters/lab/jobs?q=%00", "/operations/%00", "/tokens?x=a%00"])
async def test_refuses_nul_bytes_in_urls(server: Server, path: str) -> None:
    ann = await server.client()
    answer = await ann.get(f"{API}{path}")
    assert (answer.status_code, answer.headers["content-type"]) == (400, PROBLEM_JSON)
    page = await ann.get(path)
    assert (page.status_code, page.headers["content-type"]) == (400, "text/plain; charset=utf-8")
    assert page.headers["x-frame-options"] == "DENY"
    assert (await ann.get(f"{API}/people?q=%2500")).status_code == 200  # it is the text %00


async def test_refuses_nul_bytes_in_forms_even_across_chunks(server: Server) -> None:
    await server.client("ann")
    browser = server.anonymous(origin=URL, **{"content-type": "application/x-www-form-urlencoded"})

    async def pieces(*parts: bytes):  # type: ignore[no-untyped-def]
        for part in parts:
            yield part

    for parts in ((b"code=a%00b",), (b"code=a%", b"00b"), (b"code=a%0", b"0b"), (b"code=a\0",)):
        answer = await browser.post("/signin", content=pieces(*parts))
        assert (answer.status_code, "NUL" in answer.text) == (422, True), parts
    assert "NUL" not in (await browser.post("/signin", content=pieces(b"code=a%", b"25", b"00b"))).text


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/tokens", b'{"label": "a\\u0000b"}', "label contains a NUL byte"),
        ("/clusters/lab/jobs", b'{"script": "#!/bin/sh\\u0000"}', "script contains a NUL byte"),
        ("/clusters/lab/run", b'{"argv": ["x"], "env": {"A": "\\ud800"}}', "env.A contains invalid Unicode"),
        (
            "/clusters/lab/pipelines",
            b'{"document": {"steps": {"\\ud800": 1}}}',
            "a name in document.steps contains invalid",
        ),
        ("/plan", b'{"text": "x", "spec": {"name": "\\ud800"}}', "spec.name contains invalid Unicode"),
    ],
)
async def test_refuses_nul_bytes_and_lone_surrogates_in_json(
    server: Server, path: str, body: bytes, field: str
) -> None:
    ann = await server.client()
    answer = await ann.post(f"{API}{path}", content=body, headers={"content-type": "application/json"})
    assert (answer.status_code, field in answer.json()["detail"]) == (422, True), answer.text


async def test_audit_entries_drop_nul_bytes(server: Server) -> None:
    await server.store.audit.record("a\0nn", "x", "lab\0", {"why": "no\0", "number": 1})
    (line,) = await server.store.audit.search()
    assert (line.person, line.target, dict(line.detail)) == ("ann", "lab", {"why": "no", "number": 1})
