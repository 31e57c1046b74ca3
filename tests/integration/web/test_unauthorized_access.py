"""Anonymous requests and tokens of another cluster get the same answer whether or not a cluster exists; live streams
without a session send `leave`."""

from __future__ import annotations

import pytest

from tests.support.servers.server_fakes import Server


@pytest.fixture
async def server(server: Server) -> Server:
    """With a cluster."""
    await server.apply()
    return server


@pytest.mark.parametrize("path", ["", "/queue", "/nodes", "/jobs/1"])
async def test_anonymous_gets_the_same_401_for_known_and_unknown_clusters(server: Server, path: str) -> None:
    there, none = [await server.anonymous().get(f"/clusters/{name}{path}") for name in ("lab", "oak")]
    assert there.status_code == none.status_code == 401
    assert there.text == none.text


async def test_cluster_token_gets_the_same_403_for_other_and_unknown_clusters(server: Server) -> None:
    await server.store.people.set_role("eve", "admin")
    _, token = await server.store.tokens.create("eve", cluster="other")
    eve = server.anonymous(authorization=f"Bearer {token}")
    there, none = [await eve.get(f"/clusters/{name}/queue") for name in ("lab", "oak")]
    assert there.status_code == none.status_code == 403
    assert there.text == none.text.replace("oak", "lab")


async def test_the_search_finds_nothing_of_clusters_of_other_tokens(server: Server) -> None:
    await server.store.people.set_role("eve", "admin")
    _, token = await server.store.tokens.create("eve", cluster="other")
    eve, ann = server.anonymous(authorization=f"Bearer {token}"), await server.client()
    for path in ("/search?q=lab&cluster=lab", "/search/clusters"):
        answer = await eve.get(path)
        assert answer.status_code == 200
        assert "/clusters/lab" not in answer.text
        assert "/clusters/lab" in (await ann.get(path)).text


@pytest.mark.parametrize("path", ["/clusters/lab/live", "/clusters/lab/queue/live", "/clusters/lab/jobs/1/live"])
async def test_live_stream_without_a_session_sends_a_leave_event(server: Server, path: str) -> None:
    answer = await server.anonymous(accept="text/event-stream").get(path)
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.text.replace("\r", "") == "event: leave\ndata: now\n\n"
