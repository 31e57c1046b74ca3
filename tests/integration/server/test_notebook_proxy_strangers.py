"""A stranger gets the same answer whether or not a cluster or notebook exists, and a page whose session has ended is
redirected to sign-in."""

from __future__ import annotations

import pytest

from tests.support.server_fakes import Server


@pytest.fixture
async def server(server: Server) -> Server:
    """With a cluster."""
    await server.apply()
    return server


@pytest.mark.parametrize("path", ["", "/queue", "/nodes", "/jobs/1"])
async def test_the_door_is_the_same_before_any_cluster_and_before_none(server: Server, path: str) -> None:
    there, none = [await server.anonymous().get(f"/clusters/{name}{path}") for name in ("lab", "sea")]
    assert there.status_code == none.status_code == 401
    assert there.text == none.text


async def test_a_token_for_another_cluster_does_not_tell_which_there_are(server: Server) -> None:
    await server.store.people.set_role("eve", "admin")
    _, token = await server.store.tokens.create("eve", cluster="other")
    eve = server.anonymous(authorization=f"Bearer {token}")
    there, none = [await eve.get(f"/clusters/{name}/queue") for name in ("lab", "sea")]
    assert there.status_code == none.status_code == 403
    assert there.text == none.text.replace("sea", "lab")


@pytest.mark.parametrize("path", ["/clusters/lab/live", "/clusters/lab/queue/live", "/clusters/lab/jobs/1/live"])
async def test_a_page_whose_stream_begins_after_the_session_ended_is_sent_away(server: Server, path: str) -> None:
    answer = await server.anonymous(accept="text/event-stream").get(path)
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.text.replace("\r", "") == "event: leave\ndata: now\n\n"
