"""The overview admits the right people, sends the required headers, and renders its parts once for all viewers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from decimal import Decimal

import httpx
import pytest

from headway.domain.cluster import Plan
from headway.services.read_model.snapshot import Snapshot
from headway.web import page_stream
from headway.web.views import overview as view
from tests.support.clusters import builders
from tests.support.servers.server_fakes import Server

PARTS = [
    "down_banners", "summary", "nodes_panel", "training_panel", "chart", "queue_panel", "readiness_panel",
    "groups_panel", "incidents_panel", "events_panel",
]  # fmt: skip


@pytest.fixture
def end_after(server: Server, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Returns a function that lets each stream end after this many pulses."""
    render = page_stream.render_pulse
    left = [0]

    def pulse(*values: object) -> str:
        left[0] -= 1
        if not left[0]:
            server.state.live.stopping.set()
        return render(*values)  # type: ignore[arg-type]

    def begin(pulses: int) -> None:
        left[0] = pulses
        server.state.live.stopping.clear()

    monkeypatch.setattr(page_stream, "PULSE_S", 0.01)
    monkeypatch.setattr(page_stream, "COALESCE_S", 0)
    monkeypatch.setattr(page_stream, "render_pulse", pulse)
    return begin


def events(answer: httpx.Response) -> list[str]:
    return [line.removeprefix("event: ") for line in answer.text.splitlines() if line.startswith("event: ")]


@pytest.mark.parametrize("path", ["/clusters/zebra", "/clusters/none"])
async def test_anonymous_request_gets_only_the_sign_in_page(server: Server, path: str) -> None:
    await server.apply("zebra")
    answer = await server.anonymous().get(path)
    assert answer.status_code == 401
    assert "headway token link" in answer.text
    assert "zebra" not in answer.text


async def test_unknown_token_gives_the_sign_in_page(server: Server) -> None:
    assert (await server.anonymous(authorization="Bearer hw_x").get("/clusters/lab")).status_code == 401


@pytest.mark.parametrize("path", ["/clusters/lab", "/clusters/none"])
async def test_every_page_has_a_strict_content_security_policy(server: Server, path: str) -> None:
    await server.apply()
    answer = await (await server.client()).get(path)
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'self';")
    assert "unsafe" not in policy
    assert answer.headers["cache-control"] == "no-store"
    assert " style=" not in answer.text
    assert "onclick" not in answer.text


async def test_unknown_cluster_page_names_the_clusters_that_exist(server: Server) -> None:
    await server.apply()
    answer = await (await server.client()).get("/clusters/none")
    assert answer.status_code == 404
    assert "no cluster &#39;none&#39;" in answer.text
    assert "there is lab" in answer.text


@pytest.mark.parametrize("asked", ["", "7", "x", "-1", "9" * 40, "\u0667"])
async def test_overview_accepts_any_job_parameter(server: Server, asked: str) -> None:
    await server.apply()
    assert (await (await server.client()).get("/clusters/lab", params={"job": asked})).status_code == 200


async def test_overview_of_a_cpu_cluster_mentions_no_gpus(server: Server) -> None:
    server.backend.clusters["lab"] = {"plan": Plan("cpu-64", "", 0, 0, 64, 256000, Decimal(3), "")}
    await server.apply()
    text = (await (await server.client()).get("/clusters/lab")).text
    assert "GPUs in use" not in text
    assert "simulated" not in text


async def test_stream_sends_all_parts_once_then_only_pulses(server: Server, end_after: Callable[[int], None]) -> None:
    await server.apply()
    client = await server.client()
    end_after(3)
    answer = await client.get("/clusters/lab/live")
    assert events(answer) == ["state", "cluster_banners", *PARTS, "pulse", "pulse", "pulse"]
    assert not server.state.live.is_watched("lab")


async def test_parts_are_rendered_once_per_reading_for_all_viewers(
    server: Server, end_after: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int | None] = []
    rendered: list[str] = []
    parts, part = view.overview_parts, page_stream.render_part
    monkeypatch.setattr(view, "overview_parts", lambda of, keys, job: made.append(job) or parts(of, keys, job))
    monkeypatch.setattr(page_stream, "render_part", lambda name, value: rendered.append(name) or part(name, value))
    await server.apply()
    client = await server.client()
    server.state.live.store_snapshot(Snapshot("lab", jobs=(builders.job(7),), as_of=1000.0))
    for query in ("", "", "?job=99", "?job=7"):
        end_after(2)
        answer = await client.get(f"/clusters/lab/live{query}")
        assert answer.text.count("event: summary") == 1
    assert made == [None, 7]
    assert rendered.count("overview/summary") == 2, "once for those without a job, once for the other"
    assert all(rendered.count(f"overview/{name}") <= 2 for name in PARTS)


async def test_stream_without_sign_in_sends_only_leave(server: Server) -> None:
    await server.apply()
    answer = await server.anonymous(accept="text/event-stream").get("/clusters/lab/live")
    assert events(answer) == ["leave"]


async def test_stream_of_an_unknown_cluster_sends_only_leave(server: Server) -> None:
    seen = server.state.live.hub.version("watchers")
    assert events(await (await server.client()).get("/clusters/none/live")) == ["leave"]
    assert server.state.live.hub.version("watchers") == seen, "an unknown cluster is not watched"
    assert server.state.clusters._shared_rows._reads == {}


async def test_stream_ends_when_the_cluster_is_deleted(server: Server) -> None:
    await server.apply()
    client, hub = await server.client(), server.state.live.hub
    seen = hub.version("watchers")
    looking = asyncio.create_task(client.get("/clusters/lab/live"))
    await hub.wait_for_change("watchers", seen, 60)
    await server.store.clusters.delete("lab")
    await server.state.forget("lab")
    assert events(await asyncio.wait_for(looking, 60))[-1] == "leave"
