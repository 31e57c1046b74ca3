"""Of several servers on one PostgreSQL exactly one leads, another follows when it ends, and the others report its
work."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from headway.server.workers import leader_election
from headway.server.workers.leader_election import Follower, LeaderElection
from headway.services.app_state import AppState
from headway.services.read_model.live_state import LiveState
from headway.services.server_settings import Settings
from headway.store import Store, StoreUnavailable, open_store
from headway.store.db import server_locks
from tests.support.clusters.fake_backend import FakeBackend
from tests.support.servers.postgres import BIN, postgres
from tests.support.servers.server_fakes import Server
from tests.support.waiting import eventually

needs_postgres = pytest.mark.skipif(BIN is None, reason="no PostgreSQL here")


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with postgres() as found:
        yield found


@pytest.fixture(scope="module")
def key_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the folder with the key of the secrets in the module's database."""
    return tmp_path_factory.mktemp("data")


@pytest.fixture
async def stores(url: str, key_dir: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[Store, Store]]:
    monkeypatch.setattr(leader_election, "GRACE_S", 0.1)
    monkeypatch.setattr(leader_election, "LOOK_S", 0.02)
    # no database is lost in these tests, however busy the machine is
    monkeypatch.setattr(server_locks, "ANSWER_S", 60.0)
    one, two = await open_store(key_dir, url), await open_store(key_dir, url)
    yield one, two
    await one.close()
    await two.close()


class One:
    """A server with one loop, which records that it runs."""

    def __init__(self, store: Store, folder: Path) -> None:
        self.store = store
        self.state = AppState(store, FakeBackend(), LiveState(), Settings(folder))
        self.runs = False
        self.let_go = 0
        self.task = asyncio.create_task(LeaderElection(self.state, {"loop": self.loop}, self.rest).run())

    async def loop(self) -> None:
        self.runs = True
        try:
            await asyncio.Event().wait()
        finally:
            self.runs = False

    async def rest(self) -> None:
        self.let_go += 1

    async def die(self) -> None:
        """Ends the server as a kill does: the connection is lost and no message is sent."""
        await self.store.server_locks.close()
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


@needs_postgres
async def test_follower_takes_over_when_leader_dies(stores: tuple[Store, Store], tmp_path: Path) -> None:
    one = One(stores[0], tmp_path)
    await eventually(lambda: one.runs)
    two = One(stores[1], tmp_path)
    operation = await stores[0].operations.enqueue("led", "apply", "ann")
    assert await stores[0].operations.claim("one:1", 1000, 1e9) is not None
    await eventually(lambda: two.store.server_locks.number and two.store.server_locks._db is not None)
    assert (two.runs, stores[1].server_locks.leads) == (False, False)
    await one.die()
    await eventually(lambda: two.runs)
    assert stores[1].server_locks.leads
    again = await stores[1].operations.claim("two:1", 1001, 30)  # it need not wait for the lease of the previous server
    assert again is not None
    assert (again.id, again.attempts) == (operation.id, 2)
    await stores[1].operations.finish(operation.id, "two:1", "done")
    await two.die()


@needs_postgres
async def test_leader_steps_down_on_lost_connection_and_leads_again(
    stores: tuple[Store, Store], tmp_path: Path
) -> None:
    one = One(stores[0], tmp_path)
    await eventually(lambda: one.runs)
    assert stores[0].server_locks._db is not None
    await stores[0].server_locks._db.invalidate()
    await eventually(lambda: one.let_go == 1)
    await eventually(lambda: one.runs)
    assert stores[0].server_locks.leads
    await one.die()


class Stuck(One):
    """A server whose loop waits for something that does not answer when it is cancelled, and whose first `rest`
    fails."""

    def __init__(self, store: Store, folder: Path) -> None:
        self.begun = 0
        self.runs_at_rest: list[bool] = []
        super().__init__(store, folder)

    async def loop(self) -> None:
        assert not self.runs
        self.runs, self.begun = True, self.begun + 1
        try:
            await asyncio.Event().wait()
        finally:
            try:
                if self.begun == 1:
                    await asyncio.Event().wait()
            finally:
                self.runs = False

    async def rest(self) -> None:
        await super().rest()
        self.runs_at_rest.append(self.runs)
        if self.let_go == 1:
            raise RuntimeError("it does not let go")


@needs_postgres
async def test_stuck_loop_does_not_block_failover_or_run_twice(
    stores: tuple[Store, Store], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leader_election, "END_S", 0.5)
    one = Stuck(stores[0], tmp_path)
    await eventually(lambda: one.runs)
    two = One(stores[1], tmp_path)
    await eventually(lambda: two.store.server_locks._db is not None)
    assert stores[0].server_locks._db is not None
    await stores[0].server_locks._db.invalidate()
    await eventually(lambda: one.let_go == 1)
    assert (one.runs_at_rest, stores[0].server_locks.leads) == ([True], False)
    await eventually(lambda: two.runs)
    await eventually(lambda: not one.runs)  # it was cancelled again
    assert not one.task.done()
    await two.die()
    await eventually(lambda: one.begun == 2)
    assert stores[0].server_locks.leads
    await one.die()
    assert one.let_go == 2


@needs_postgres
async def test_named_locks_are_exclusive_and_live_servers_are_visible(stores: tuple[Store, Store]) -> None:
    one, two = stores[0].server_locks, stores[1].server_locks
    await one.register()
    await two.register()
    assert (await two.is_alive(one.number), await two.is_alive(17)) == (True, False)
    order: list[str] = []

    async def second() -> None:
        async with two.lock("lab"):
            order.append("second")

    async with one.lock("lab"):
        waiting = asyncio.create_task(second())
        async with two.lock("another"):
            order.append("another")
        order.append("first ends")
    await waiting
    assert order == ["another", "first ends", "second"]
    gone = asyncio.create_task(second())
    async with one.lock("lab"):
        await asyncio.sleep(0)
        gone.cancel()
        await asyncio.gather(gone, return_exceptions=True)
    async with one.lock("lab"):
        pass  # the cancelled waiter has not kept its turn
    await one.close()
    with pytest.raises(StoreUnavailable):
        await one.is_alive(two.number)

    async def is_gone() -> bool:
        return not await two.is_alive(one.number)

    await eventually(is_gone)  # PostgreSQL frees the locks of a closed connection a moment later


async def test_follower_reports_leader_operations_and_forgets_clusters_taken_down(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    await server.apply()
    forgotten: list[str] = []

    async def forget(name: str) -> None:
        forgotten.append(name)

    monkeypatch.setattr(server.state, "forget", forget)
    follower = Follower(server.state)
    await follower.publish_changes(silent=True)
    seen = server.state.live.last_event_number
    operation = await server.store.operations.enqueue("lab", "down", "ann")
    await follower.publish_changes()
    assert server.state.live.last_event_number == seen
    await server.store.operations.claim("far:1", 1000, 30)
    await follower.publish_changes()
    await server.store.operations.finish(operation.id, "far:1", "failed", error={"message": "no disk\nmore"})
    await follower.publish_changes()
    await follower.publish_changes()
    said = [one.text for one in server.state.live.events_after(seen) or []]
    assert ['"state":"running"' in said[0], '"state":"failed"' in said[1], len(said)] == [True, True, 2]
    assert forgotten == ["lab"]
    assert "down failed: no disk" in [event.text for event in server.state.live.recent_events("lab")]


async def test_single_sqlite_server_leads_at_once_and_gets_every_lock(server: Server) -> None:
    led = asyncio.Event()
    locks = server.store.server_locks

    async def loop() -> None:
        led.set()
        await asyncio.Event().wait()

    rest: Callable[[], Awaitable[None]] = lambda: asyncio.sleep(0)  # noqa: E731
    task = asyncio.create_task(LeaderElection(server.state, {"loop": loop}, rest).run())
    await asyncio.wait_for(led.wait(), 60)
    async with locks.lock("lab"), locks.lock("other"):
        assert locks.leads
    assert (await locks.is_alive(locks.number), await locks.is_alive(locks.number - 1)) == (
        True,
        False,
    )
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
