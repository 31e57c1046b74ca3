"""A server with PostgreSQL, which is stricter than SQLite, answers hostile requests without a server error: NUL
bytes, and numbers too large for their column. Skipped where no PostgreSQL is installed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from headway.errors import NotFound
from headway.services.app_state import AppState
from headway.services.cursors import encode_cursor
from headway.services.read_model.live_state import LiveState
from headway.services.server_settings import Settings
from headway.store import open_store
from tests.support.clusters.fake_backend import FakeBackend
from tests.support.servers.postgres import BIN, postgres
from tests.support.servers.server_fakes import URL, Server, reading

pytestmark = pytest.mark.skipif(BIN is None, reason="no PostgreSQL here")
LAB = "/api/v1/clusters/lab"
LARGE = (2**31 - 1, 2**31, 2**53, 2**63, 10**30)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    with postgres() as url:
        store = await open_store(tmp_path, url)
        work = FakeBackend(read=reading(), machines=(), history=())
        made = Server(AppState(store, work, LiveState(), Settings(tmp_path, url=URL), lambda: 1000.0), work, store)
        await made.apply()
        yield made
        await made.close()


async def test_oversized_numbers_cause_no_server_errors(server: Server) -> None:
    ann = await server.client()
    operation = (await server.store.operations.recent())[0].id
    cursors = [encode_cursor((large, large, "")) for large in LARGE] + [
        encode_cursor((large, 7, 7, "")) for large in LARGE
    ]
    paths = [
        *(f"{LAB}/jobs/{large}/{what}" for what in ("lineage", "log", "script") for large in LARGE),
        *(f"{LAB}/incidents/{large}" for large in LARGE),
        *(f"{LAB}/datasets/c4/versions/{large}" for large in LARGE),
        *(f"{LAB}/usage/runs?job={large}" for large in LARGE),
        *(f"{LAB}/usage/runs?cursor={cursor}" for cursor in cursors),
        *(f"{LAB}/usage/runs?waited=true&cursor={cursor}" for cursor in cursors),
        *(f"{LAB}/activity?cursor={encode_cursor((1e9, 'operation', large, 0))}" for large in LARGE),
        *(
            f"{LAB}/activity?limit=1&cursor={encode_cursor((1e9, kind, 7, 7))}"
            for kind in ("operation", "incident", "action")
        ),
        *(f"/api/v1/audit?cursor={large}" for large in LARGE),
        *(f"/api/v1/operations/{operation}/events?after={large}" for large in LARGE),
        *(f"/clusters/lab/jobs/{large}" for large in LARGE),
        *(f"/clusters/lab/submit?from={large}" for large in LARGE),
        *(f"/clusters/lab/incidents/{large}" for large in LARGE),
        "/api/v1/operations?limit=1&state=done&kind=apply&person=setup",
        f"/api/v1/operations?cursor={encode_cursor((1e9, 'op'))}",
        "/api/v1/clusters/a%00b",
        "/api/v1/people?q=a%00b",
        "/clusters/a%00b",
    ]
    server.backend.answers["job"] = server.backend.answers["run_command"] = NotFound("no such job")
    for path in paths:
        answer = await ann.get(path)
        assert answer.status_code < 500, (path, answer.text[:300])
    for large in LARGE:
        answer = await ann.get(f"/api/v1/operations/{operation}/events", headers={"last-event-id": str(large)})
        assert "event: end" in answer.text
        for verb in ("retry", "rerun", "hold"):
            assert (await ann.post(f"{LAB}/jobs/{large}/{verb}", json={})).status_code < 500
