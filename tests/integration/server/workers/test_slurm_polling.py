"""The snapshot worker passes readings to the health loop and page viewers; unwatched topics are dropped."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable
from decimal import Decimal

import pytest

from headway.domain.cluster import Cluster
from headway.domain.readiness import ReadinessCheck
from headway.domain.slurm.nodes_and_jobs import JobState, NodeState
from headway.errors import NotFound, Unreachable
from headway.schemas.jobs import ProgressOut
from headway.server.logging_config import BLANK, blank_secrets
from headway.server.workers.event_listener import EventListener
from headway.server.workers.slurm_polling import MANY, SnapshotWorker
from headway.services.cluster_backend import SlurmReading
from headway.services.read_model.live_state import ALL_JOBS, LiveState
from headway.services.read_model.overview import read_overview
from headway.services.read_model.snapshot import Snapshot
from headway.services.read_model.topic_hub import TopicHub, cluster_topic
from tests.support.clusters import builders
from tests.support.servers.server_fakes import Server, reading


class Watcher:
    def __init__(self) -> None:
        self.seen: list[tuple[str, ...]] = []

    async def step(
        self, cluster: Cluster, nodes: Iterable[NodeState], jobs: Iterable[JobState]
    ) -> list[tuple[str, str]]:
        self.seen.append(tuple(node.name for node in nodes))
        return [("lab-1-1", "the spare takes over")]

    async def handle_urgent(self, cluster: Cluster) -> list[tuple[str, str]]:
        return [("lab-1-2", "the provider takes its machine back in 60 s")]


async def test_hub_loses_no_change_between_two_waits() -> None:
    hub = TopicHub()
    seen = hub.version("a")
    hub.publish("a")
    assert await hub.wait_for_change("a", seen, 10) == 1
    waiting = asyncio.create_task(hub.wait_for_change("a", 1))
    await asyncio.sleep(0)
    hub.publish("b")
    hub.publish("a")
    assert await waiting == 2
    assert await hub.wait_for_change("a", 2, 0.001) == 2


async def test_hub_forgets_unwatched_topics_and_unknown_clusters(server: Server) -> None:
    hub = TopicHub()
    with hub.count_watcher("a"), hub.count_watcher("a"):
        assert await hub.wait_for_change("a", 0, 0.001) == 0
        assert hub.is_watched("a")
    assert (hub._watchers, hub._waiting) == ({}, {})
    for name in ("x", "y"):
        with pytest.raises(NotFound):
            await server.state.clusters.cached(name)
    assert len(server.state.readings._reading) == 0


async def test_slurm_polling_notifies_reconciler_and_page_viewers(server: Server) -> None:
    await server.apply()
    server.backend.answers |= {
        "read": reading(builders.job(7)),
        "machines": (),
        "readiness_checks": (ReadinessCheck("slurmctld", True, "runs"),),
        "progress": {7: ProgressOut(step=3, loss=1.5, series=[(3, 1.5)])},
    }
    watcher = Watcher()
    woken: list[tuple[int, int]] = []

    async def look() -> None:
        async for _ in server.state.live.watch_changes("lab"):
            overview = await read_overview(server.state, "lab")
            woken.append((len(overview.status.checks), overview.progress[7].step if 7 in overview.progress else 0))
            if woken[-1] == (1, 3):
                assert "the spare takes over" in [event.text for event in overview.recent_events]
                return

    looking = asyncio.create_task(look())
    polling = asyncio.create_task(SnapshotWorker(server.state, watcher).run())
    await asyncio.wait_for(looking, 60)
    polling.cancel()
    await asyncio.gather(polling, return_exceptions=True)
    assert watcher.seen[0] == ("lab-1-1", "lab-1-2")
    assert (await read_overview(server.state, "lab")).status.cluster.jobs_running == 1


async def test_single_job_refresh_is_kept_over_an_older_full_reading(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was read meanwhile is newer than the reading that began before, and older than the one that begins after."""
    await server.apply()
    queue = [builders.job(number, "PENDING") for number in range(1, MANY + 1)]
    begun, goes_on, seen, asked, rounds = asyncio.Event(), asyncio.Event(), asyncio.Event(), [], 0
    for name in ("WATCHED_S", "BUSY_S", "TICK_S"):
        monkeypatch.setattr(f"headway.server.workers.slurm_polling.{name}", 0.05)
    server.state.clock = server.state.readings._clock = time.time  # what was read grows old

    async def read(_: Cluster) -> SlurmReading:
        nonlocal rounds
        rounds += 1
        if rounds == 2:
            begun.set()
            await goes_on.wait()
        elif rounds == 3:
            await seen.wait()
        return reading(*queue)

    async def jobs_now(_: Cluster, numbers: tuple[int, ...]) -> tuple[JobState, ...]:
        asked.append(numbers)
        return (builders.job(7), builders.job(5000, "PENDING"))

    server.backend.answers |= {
        "read": read,
        "machines": (),
        "readiness_checks": (),
        "progress": {},
        "jobs_by_id": jobs_now,
    }
    live, at = server.state.live, cluster_topic("lab")

    async def until(reached: Callable[[], bool]) -> None:
        number = live.hub.version(at)
        while not reached():
            number = await live.hub.wait_for_change(at, number)

    def states() -> tuple[str, bool]:
        by_id = live.snapshot("lab").by_id
        return by_id[7].state, 5000 in by_id

    with live.hub.count_watcher(at):
        polling = asyncio.create_task(SnapshotWorker(server.state, Watcher()).run())
        try:
            async with asyncio.timeout(60):
                await begun.wait()
                row = live.snapshot("lab").job_rows.setdefault(7, b"{}")
                live.request_refresh("lab", (7, 5000))
                await until(lambda: states() == ("RUNNING", True))
                assert 7 not in live.snapshot("lab").job_rows, row
                goes_on.set()
                first = live.snapshot("lab").as_of
                await until(lambda: live.snapshot("lab").as_of != first)
                assert states() == ("RUNNING", True)
                seen.set()
                await until(lambda: rounds > 2 and states() == ("PENDING", False))
        finally:
            polling.cancel()
            await asyncio.gather(polling, return_exceptions=True)
    assert [sorted(numbers) for numbers in asked] == [[7, 5000]]


async def test_refresh_of_an_array_reads_all_jobs_and_drops_late_answers(server: Server) -> None:
    await server.apply()
    tasks = [builders.job(number, "PENDING", array_job_id=100) for number in range(100, 120)]
    late = asyncio.Event()

    async def jobs_now(_: Cluster, numbers: tuple[int, ...]) -> tuple[JobState, ...]:
        assert 100 not in numbers
        await late.wait()
        return (builders.job(7),)

    server.backend.answers |= {
        "read": reading(builders.job(7, "COMPLETED"), *tasks),
        "machines": (),
        "jobs_by_id": jobs_now,
    }
    cluster = (await server.state.clusters.get("lab"))[1]
    await server.state.readings.refresh(cluster, max_age_s=0)
    glance = asyncio.create_task(server.state.readings.refresh_jobs(cluster, (7, 100)))
    await asyncio.sleep(0)
    assert server.state.live.refresh_requests == {"lab": {ALL_JOBS}}, "all of it is read instead"
    await server.state.readings.refresh(cluster, max_age_s=-1)
    late.set()
    await glance
    assert server.state.live.snapshot("lab").by_id[7].state == "COMPLETED"


async def test_reconciler_gets_no_stale_snapshot(server: Server) -> None:
    await server.apply()
    down = Unreachable("no answer")
    server.backend.answers |= {"read": down, "machines": (), "readiness_checks": down}
    watcher = Watcher()
    polling = asyncio.create_task(SnapshotWorker(server.state, watcher).run())
    await asyncio.wait_for(
        server.state.live.hub.wait_for_change(
            cluster_topic("lab"), server.state.live.hub.version(cluster_topic("lab"))
        ),
        60,
    )
    polling.cancel()
    await asyncio.gather(polling, return_exceptions=True)
    assert server.state.live.snapshot("lab").stale == "no answer"
    assert watcher.seen == []


async def test_urgent_work_runs_while_an_operation_changes_the_cluster(server: Server) -> None:
    await server.apply()
    server.backend.answers |= {"read": Unreachable("no answer"), "machines": (), "readiness_checks": ()}
    await server.store.clusters.save("lab", state="changing")
    told = server.state.live.hub.version(cluster_topic("lab"))
    polling = asyncio.create_task(SnapshotWorker(server.state, Watcher()).run())

    async def until_said() -> None:
        number = told
        while "the provider takes its machine back in 60 s" not in [
            n.text for n in server.state.live.recent_events("lab")
        ]:
            number = await server.state.live.hub.wait_for_change(cluster_topic("lab"), number)

    await asyncio.wait_for(until_said(), 60)
    polling.cancel()
    await asyncio.gather(polling, return_exceptions=True)


def test_each_node_and_job_change_gives_one_recent_event() -> None:
    live = LiveState(builders.Clock())
    idle, down = builders.node("lab-1-1", "IDLE"), builders.node("lab-1-1", "DOWN", reason="killed")
    live.store_snapshot(Snapshot("lab", (idle,), (builders.job(7, "RUNNING"),), as_of=1))
    assert live.recent_events("lab") == ()
    live.store_snapshot(Snapshot("lab", (down,), (builders.job(7, "PENDING", restarts=1),), as_of=2))
    live.store_snapshot(Snapshot("lab", (down,), (builders.job(7, "PENDING", restarts=1),), as_of=3))
    live.store_snapshot(Snapshot("lab", (idle,), (builders.job(7, "COMPLETED", restarts=1),), as_of=4))
    told = [(event.where, event.level) for event in reversed(live.recent_events("lab"))]
    assert told == [("lab-1-1", "error"), ("job 7", "warning"), ("lab-1-1", "info"), ("job 7", "info")]


def test_log_masks_secrets() -> None:
    entry = blank_secrets(
        None,
        "info",
        {
            "token": "x",
            "Password": "y",
            "event": "used hw_AbCdEfGhIjKlMnOpQrStUvWx and postgresql://u:p4ss@h/d",
            "path": "/api/v1/me",
        },
    )
    assert entry["token"] == entry["Password"] == BLANK
    assert "hw_Ab" not in entry["event"]
    assert "p4ss" not in entry["event"]
    assert entry["path"] == "/api/v1/me"


class Ears:
    """Says one thing, then the stream breaks."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, bool]] = []
        self.again = asyncio.Event()

    async def listen(
        self, cluster: Cluster, is_idle: Callable[[], bool], on_jobs: Callable[[tuple[int, ...], bool], None]
    ) -> AsyncIterator[list[tuple[str, str]]]:
        on_jobs((7,), True)
        on_jobs((8,), False)
        self.heard.append((cluster.name, is_idle()))
        if len(self.heard) > 1:
            self.again.set()
        yield [("lab-1-2", "drained: incident 1")]
        raise Unreachable("the connection broke")


async def test_event_listener_reconnects_and_requests_refresh_of_changed_jobs(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headway.server.workers.event_listener.TICK_S", 0.01)
    monkeypatch.setattr("headway.server.workers.event_listener.AGAIN_S", 0.02)
    await server.apply()
    await server.store.clusters.save("lab", state="changing")
    ears = Ears()
    listening = asyncio.create_task(EventListener(server.state, ears).run())
    await asyncio.wait_for(ears.again.wait(), 60)
    listening.cancel()
    await asyncio.gather(listening, return_exceptions=True)
    assert ears.heard[0] == ("lab", False), "an operation is at work"
    event = server.state.live.recent_events("lab")[0]
    assert (event.where, event.text, event.level) == ("lab-1-2", "drained: incident 1", "warning")
    assert server.state.live.refresh_requests == {"lab": {7}}, "a job began or ended on a node: the cluster is read now"


async def test_apply_records_node_prices(server: Server) -> None:
    await server.apply()
    (row,) = await server.store.prices.of_cluster("lab")
    assert (row.group, row.usd_per_hour, row.spot) == ("main", Decimal("31.2"), False)
