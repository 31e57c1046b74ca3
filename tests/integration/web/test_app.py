"""The page routes admit the right people, send the required headers with every answer, and end their streams."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI
from starlette.requests import Request

from headway.errors import NotFound, NotSignedIn, Refused
from headway.schemas.clusters import ClusterOut, StatusOut
from headway.web import app as web
from headway.web import event_stream, rendering
from headway.web.live_data import Snapshot
from tests.support import builders


def cluster(name: str) -> ClusterOut:
    return builders.cluster_out(name=name, provider="ssh", plan="cpu-64", gpu_type="", gpus=0, simulated_gpus=False)


@dataclass
class Person:
    person: str = "alice"
    role: str = "member"


class FakeLive:
    """Knows the clusters it was given; a subscription wakes once for each item of `wakes`, then ends."""

    def __init__(self, *names: str, wakes: int = 0) -> None:
        self.names = list(names)
        self.wakes = wakes
        self.open = 0
        self.subscribed: list[str] = []
        self.reading: Snapshot | None = None
        self.streams = asyncio.Semaphore(2)

    async def clusters(self) -> list[ClusterOut]:
        return [cluster(name) for name in self.names]

    async def snapshot(self, name: str) -> Snapshot:
        if name not in self.names:
            raise NotFound(f"there is no cluster {name}", hint="headway ls shows those there are")
        return self.reading or Snapshot(StatusOut(cluster=cluster(name), checks=[], nodes=[]))

    async def subscribe(self, name: str) -> AsyncIterator[None]:
        self.open += 1
        self.subscribed.append(name)
        try:
            for _ in range(self.wakes):
                yield
        finally:
            self.open -= 1


@pytest.fixture(autouse=True)
def vendor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The static files with stand-ins for the browser libraries: these tests need no npm."""
    folder = tmp_path / "static"
    shutil.copytree(rendering.STATIC, folder, ignore=shutil.ignore_patterns("vendor"))
    (folder / "vendor").mkdir()
    for name in rendering.VENDOR:
        (folder / "vendor" / name).write_text("")
    monkeypatch.setattr(rendering, "STATIC", folder)
    rendering.asset_url.cache_clear()
    return folder / "vendor"


def client(live: FakeLive, viewer: Person | None = Person()) -> httpx.AsyncClient:  # noqa: B008
    async def principal(request: Request) -> Person | None:
        return viewer

    app = FastAPI()
    web.mount(app, live, principal)
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://page")


@pytest.mark.parametrize("path", ["/clusters/zebra", "/clusters/none"])
async def test_anonymous_request_gets_only_the_sign_in_page(path: str) -> None:
    async with client(FakeLive("zebra"), viewer=None) as page:
        answer = await page.get(path)
    assert answer.status_code == 401
    assert "headway token link" in answer.text
    assert "zebra" not in answer.text


async def test_not_signed_in_error_gives_the_sign_in_page() -> None:
    async def principal(request: Request) -> Person | None:
        raise NotSignedIn("unknown session")

    app = FastAPI()
    web.mount(app, FakeLive("lab"), principal)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://page") as page:
        assert (await page.get("/clusters/lab")).status_code == 401


@pytest.mark.parametrize("path", ["/clusters/lab", "/clusters/none"])
async def test_every_page_has_a_strict_content_security_policy(path: str) -> None:
    async with client(FakeLive("lab")) as page:
        answer = await page.get(path)
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'self';")
    assert "unsafe" not in policy
    assert answer.headers["cache-control"] == "no-store"
    assert " style=" not in answer.text
    assert "onclick" not in answer.text


async def test_unknown_cluster_page_suggests_headway_ls() -> None:
    async with client(FakeLive("lab")) as page:
        answer = await page.get("/clusters/none")
    assert answer.status_code == 404
    assert "there is no cluster none" in answer.text
    assert "headway ls" in answer.text


@pytest.mark.parametrize("asked", ["", "7", "x", "-1", "9" * 40, "\u0667"])
async def test_cluster_page_accepts_any_job_parameter(asked: str) -> None:
    async with client(FakeLive("lab")) as page:
        assert (await page.get("/clusters/lab", params={"job": asked})).status_code == 200


async def test_cpu_cluster_page_mentions_no_gpus() -> None:
    async with client(FakeLive("lab")) as page:
        text = (await page.get("/clusters/lab")).text
    assert "GPUs in use" not in text
    assert "simulated" not in text


def test_clock_shows_the_date_unless_it_is_today(monkeypatch: pytest.MonkeyPatch) -> None:
    midnight = 1_700_006_400.0  # 2023-11-15 00:00 UTC
    monkeypatch.setattr(rendering.time, "time", lambda: midnight + 60)
    assert rendering.clock(midnight + 1) == "00:00:01 UTC"
    assert rendering.clock(midnight - 1) == "2023-11-14 23:59 UTC"


async def test_versioned_static_files_are_cached_permanently() -> None:
    async with client(FakeLive("lab")) as page:
        kept = await page.get(rendering.asset_url("app.css"))
        plain = await page.get("/static/app.css")
    assert "immutable" in kept.headers["cache-control"]
    assert plain.headers["cache-control"] == "no-cache"


def test_refuses_to_start_without_the_browser_libraries(vendor: Path) -> None:
    (vendor / "htmx.min.js").unlink()
    with pytest.raises(Refused, match=r"htmx\.min\.js") as caught:
        client(FakeLive("lab"))
    assert "make setup" in caught.value.hint


async def test_page_stream_sends_all_parts_once_then_only_pulses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_stream, "COALESCE_S", 0)
    live = FakeLive("lab", wakes=2)
    async with client(live) as page:
        answer = await page.get("/clusters/lab/live")
    events = [line.removeprefix("event: ") for line in answer.text.splitlines() if line.startswith("event: ")]
    parts = ["state", "summary", "notice", "fabric", "training", "queue", "faults", "checks", "groups", "history"]
    assert events == [*parts, "chart", "pulse", "pulse", "pulse"]
    assert live.open == 0


async def test_page_parts_are_rendered_once_per_snapshot_for_all_viewers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_stream, "COALESCE_S", 0)
    made: list[int | None] = []
    rendered: list[str] = []
    view, part = web.view_of, web.render_part
    monkeypatch.setattr(web, "view_of", lambda of, keys, job: made.append(job) or view(of, keys, job))
    monkeypatch.setattr(web, "render_part", lambda name, value: rendered.append(name) or part(name, value))
    live = FakeLive("lab", wakes=2)
    live.reading = await live.snapshot("lab")
    async with client(live) as page:
        answers = [await page.get("/clusters/lab/live") for _ in range(3)]
        await page.get("/clusters/lab/live?job=7")
    assert made == [None, 7]
    assert len(rendered) == 2 * len(set(rendered)), "each part once for those without a job, once for the other"
    assert all(answer.text.count("event: summary") == 1 for answer in answers)


@pytest.mark.parametrize("viewer", [None, Person()])
async def test_stream_without_sign_in_or_cluster_sends_only_leave(viewer: Person | None) -> None:
    live = FakeLive("lab", wakes=3)
    async with client(live, viewer) as page:
        answer = await page.get("/clusters/lab/live" if viewer is None else "/clusters/none/live")
    assert [line for line in answer.text.splitlines() if line.startswith("event")] == ["event: leave"]
    assert live.subscribed == []


async def test_idle_stream_sends_pulses_and_unsubscribes_when_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_stream, "PULSE_S", 0.01)
    closed = asyncio.Event()

    async def silent() -> AsyncIterator[None]:
        try:
            await asyncio.Event().wait()
            yield
        finally:
            closed.set()

    ticks = event_stream.update_ticks(silent())
    for _ in range(3):
        await asyncio.wait_for(anext(ticks), 60)
    await ticks.aclose()  # type: ignore[attr-defined]
    assert closed.is_set()


async def test_stream_subscribes_before_its_first_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_stream, "PULSE_S", 60)
    monkeypatch.setattr(event_stream, "COALESCE_S", 0)
    news = asyncio.Event()
    listening = []

    async def wakes() -> AsyncIterator[None]:
        listening.append(True)
        await news.wait()
        yield

    ticks = event_stream.update_ticks(wakes())
    await anext(ticks)
    assert listening, "the first reading happened before anybody listened"
    news.set()
    await asyncio.wait_for(anext(ticks), 60)
    await ticks.aclose()  # type: ignore[attr-defined]
