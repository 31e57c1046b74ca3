"""The store works on a real PostgreSQL over a Unix socket, where mainly locking differs from SQLite. Skipped where
no PostgreSQL is installed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import create_async_engine

from headway.domain.access.role import Role
from headway.domain.incident import FaultAction
from headway.errors import Conflict
from headway.store import Store, StoreUnavailable, open_store
from headway.store.access.scim import GroupAsk, UserAsk
from headway.store.clusters.cluster_records import Row
from headway.store.db import engine as opening
from headway.store.db.engine import database_url, run_migrations
from headway.store.db.errors import CommitUnknown
from headway.store.db.metadata import metadata
from headway.store.db.sealing import KEY_FILE
from headway.store.jobs.trainings import MetricCondition, MetricKey, TrainingQuery, TrainingRow
from tests.support.servers.postgres import BIN, postgres

pytestmark = pytest.mark.skipif(BIN is None, reason="no PostgreSQL here")
IDLE_S = 2  # longest time that a transaction of an impatient server may be idle


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with postgres() as found:
        yield found


@pytest.fixture(scope="module")
def key_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the folder with the key of the secrets in the module's database."""
    return tmp_path_factory.mktemp("data")


async def test_several_stores_share_one_postgres_database(url: str, key_dir: Path) -> None:
    """All use one database, as several servers do."""
    stores = await asyncio.gather(*(open_store(key_dir, url) for _ in range(4)))
    try:
        await _events(stores)
        await _claims(stores)
        await _backups(stores[0])
        await _uids_and_secrets(stores)
        await _people(stores[0])
        await _provisioned_people(*stores[:2])
        await _rotations(stores)
        await _trainings(stores[0])
        await _migrations_make_the_same_tables(url)
    finally:
        for store in stores:
            await store.close()
    assert [file.name for file in key_dir.iterdir()] == [KEY_FILE]


async def _trainings(store: Store) -> None:
    """Values of metrics are compared and sorted as numbers."""
    told = {
        "cluster": "lab",
        "name": "gpt",
        "user": "alice",
        "team": "red",
        "state": "RUNNING",
        "submitted_at": 1.0,
        "reported_at": 2.0,
    }
    for job, value in ((7, 10.0), (8, 9.5), (9, None)):
        await store.trainings.save(
            [TrainingRow(**told, job_id=job, label="", metrics={"val/top.1 acc": (3, value, value, 20.0)})]
        )  # type: ignore[arg-type]
    key = MetricKey("val/top.1 acc")
    found = await store.trainings.search("lab", TrainingQuery(sort=key, text="GPT"))
    assert [row.job_id for row in found] == [8, 7, 9]
    below = TrainingQuery(
        conditions=(MetricCondition(key, "<", 10.0), MetricCondition(MetricKey(key.metric, "highest"), "=", 20.0))
    )
    assert [row.job_id for row in await store.trainings.search("lab", below)] == [8]
    await store.trainings.annotate("lab", 8, "note", ["a"])
    assert await store.trainings.count("lab", TrainingQuery(tags=frozenset({"a"}))) == 1


async def _rotations(stores: Sequence[Store]) -> None:
    """Two servers rotate the key of the secrets while others write: each secret opens on each server."""

    async def write(store: Store, name: str) -> None:
        for number in range(10):
            await store.secrets.set("rotated", f"{name}-{number}", f"{name}{number}")

    await asyncio.gather(
        write(stores[0], "a"), stores[1].key_rotation.rotate(), write(stores[2], "b"), stores[3].key_rotation.rotate()
    )
    expected = {f"{name}-{number}": f"{name}{number}" for name in "ab" for number in range(10)}
    assert [await store.secrets.of_cluster("rotated") for store in stores] == [expected] * len(stores)


async def _claims(stores: Sequence[Store]) -> None:
    for number in range(8):
        for _ in range(3):
            await stores[0].operations.enqueue(f"c{number}", "apply", "ann", document={"a": [1]})

    async def drain(index: int) -> list[str]:
        """Claims and finishes operations one after the other until none is left."""
        done = []
        while True:
            operation = await stores[index].operations.claim(f"s{index}", 1000, 30)
            if operation is None:
                unfinished = [o for o in await stores[index].operations.recent() if not o.finished]
                if not unfinished:
                    return done
                continue
            running = [o.id for o in await stores[index].operations.recent(operation.cluster) if o.state == "running"]
            assert running == [operation.id]
            await stores[index].operations.add_event(operation.id, "s", "x")
            assert await stores[index].operations.finish(operation.id, f"s{index}", "done", kept=["/a"])
            done.append(operation.id)

    done = [one for part in await asyncio.gather(*(drain(i) for i in range(4))) for one in part]
    assert len(done) == len(set(done)) == 24
    for number in range(8):  # those of a cluster in the order of their requests
        operations = await stores[0].operations.recent(f"c{number}")
        finished = [o.finished_at for o in reversed(operations)]
        assert finished == sorted(finished, key=lambda at: at or 0)
    operation = await stores[0].operations.enqueue("late", "apply", "ann")
    await stores[0].operations.claim("old:1", 1000, 30)
    assert await stores[1].operations.claim("new:1", 1029, 30) is None
    assert await stores[1].operations.expire_leases("old:") == 1
    again = await stores[1].operations.claim("new:1", 1029, 30)
    assert again is not None
    assert (again.id, again.attempts) == (operation.id, 2)
    assert not await stores[0].operations.finish(operation.id, "old:1", "done")
    assert await stores[1].operations.claim("new:1", 9999, 30, [operation.id]) is None  # it holds that itself
    assert await stores[1].operations.release_leases("new:1") == 1
    again = await stores[0].operations.claim("old:1", 1030, 30)
    assert again is not None
    assert again.attempts == 2  # a worker that stopped in order does not count as killed


async def _backups(store: Store) -> None:
    for params in ({"keep": 0}, {"keep": 3, "ref": "a"}, {"ref": "b"}):
        await store.operations.enqueue("kept", "backup", "ann", params=params)
    found = await store.operations.latest_scheduled_backup("kept")
    assert found is not None
    assert found.params["ref"] == "a"
    assert await store.operations.latest_scheduled_backup("kept", "done") is None


async def _events(stores: Sequence[Store]) -> None:
    """Adds events of many machines at the same time, as an apply does."""
    operation = await stores[0].operations.enqueue("told", "apply", "ann")
    await asyncio.gather(*(stores[n % 2].operations.add_event(operation.id, f"m{n}", "is made") for n in range(20)))
    assert [event.seq for event in await stores[1].operations.events_after(operation.id)] == list(range(1, 21))
    assert (await stores[0].operations.add_event(operation.id, "m1", "a program's \0 word")).text == "a program's  word"
    await stores[0].operations.claim("told:1", 1000, 30)
    await stores[0].operations.finish(operation.id, "told:1", "done")


async def _uids_and_secrets(stores: Sequence[Store]) -> None:
    given = await asyncio.gather(*(store.linux_uids.assign_uids([f"u{n}", "shared"]) for n, store in enumerate(stores)))
    assert len({one["shared"] for one in given}) == 1
    assert len({uid for one in given for uid in one.values()}) == 5
    values = await asyncio.gather(*(store.secrets.put_if_absent("lab", "k", f"v{n}") for n, store in enumerate(stores)))
    assert len(set(values)) == 1
    await asyncio.gather(*(store.linux_uids.add_to_cluster("lab", ["ann", "bob"]) for store in stores))
    assert await stores[0].linux_uids.of_cluster("lab") == {"ann", "bob"}


async def test_other_servers_see_held_turn_locks(url: str, key_dir: Path) -> None:
    one, two = await open_store(key_dir, url), await open_store(key_dir, url)
    names = [f"reboot/lab/lab-1-{number}" for number in range(8)]  # their lock keys have either sign
    try:
        for store in (one, two):
            await store.server_locks.register()
        for name in names:
            async with one.server_locks.lock(name):
                assert [await two.server_locks.is_locked(other) for other in names] == [
                    other == name for other in names
                ]
            assert not await two.server_locks.is_locked(name)
    finally:
        await asyncio.gather(one.close(), two.close())


async def test_cluster_records_export_is_a_snapshot_and_restores(
    url: str, key_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when the disk that they are written to pauses for longer than a transaction may be idle."""
    one = await _impatient(key_dir, url, monkeypatch)
    there = await one.incidents.open("kept", "n1", "XID 79", FaultAction.RMA, 1.0, {})
    try:
        rows = []
        async for row in one.cluster_records.export("kept"):
            if not rows:
                await one.incidents.record_requeued_jobs(there.number, [5], 1.0)
                await asyncio.sleep(IDLE_S + 0.5)
            rows.append(row)
        assert [name for name, _ in rows] == ["incidents", "incident_steps"]
        async with one.database.write() as db:
            await db.execute(text("DELETE FROM incidents WHERE cluster = 'kept'"))

        async def again() -> AsyncIterator[Row]:
            for name, values in rows:
                yield name, values | ({"number": 60} if name == "incidents" else {"incident": 60})

        await one.cluster_records.restore("kept", again())
        assert (await one.incidents.open("kept", "n1", "XID 48", FaultAction.RMA, 2.0, {})).number == 61
    finally:
        await one.close()


async def _provisioned_people(one: Store, two: Store) -> None:
    """Two servers of a provider's requests agree on users, groups, and who is locked."""
    person = await one.people.add_from_provider("zoe", "issuer 1", role=Role.MEMBER, user="zoe")
    user = await one.scim.add_user(person.name, "Zoe@example.org", "1", {"active": True})
    with pytest.raises(Conflict):
        await two.scim.check_user("", "zoe@EXAMPLE.org", "2")
    group = await two.scim.save_group("", "staff", "", [user])
    total, found = await one.scim.users(UserAsk(user_name="zoe@example.org"), limit=10)
    assert (total, found[0].disabled) == (1, False)
    assert [row.id for row in (await one.scim.groups_of([user]))[user]] == [group]
    assert (await one.scim.groups(GroupAsk(member=user), limit=10))[0] == 1
    await one.linux_uids.add_to_cluster("lab", ["zoe"])
    await two.people.disable("zoe", by="scim")
    assert (await one.scim.members(group))[0].disabled
    (due,) = await one.user_changes.due()
    assert ((due.cluster, due.user, due.person), await one.user_changes.locked()) == (("lab", "zoe", "scim"), {"zoe"})
    await one.user_changes.record_try(due, error="away")
    await two.people.enable("zoe", by="scim")
    await one.user_changes.finish(due)  # it was done before the person was enabled
    assert [(row.user, row.tries) for row in await one.user_changes.due()] == [("zoe", 0)]
    await one.people.delete("zoe", by="scim")
    assert await two.scim.members(group) == ()


async def _people(store: Store) -> None:
    await store.people.set_role("ann", "admin")
    _, secret = await store.tokens.create("ann", days=1)
    assert (await store.tokens.holder(secret)).person.name == "ann"  # type: ignore[union-attr]
    await store.audit.record("ann", "apply", "lab")
    for statement in ("UPDATE audit SET person = 'bob'", "DELETE FROM audit", "TRUNCATE audit"):
        with pytest.raises(DBAPIError, match="append-only"):
            async with store.database.write() as db:
                await db.execute(text(statement))
    assert [line.person for line in await store.audit.search()] == ["ann"]
    code, _ = await store.sessions.create_signin_code("ann")
    spent = await asyncio.gather(*(store.sessions.redeem_signin_code(code) for _ in range(3)))
    assert sum(one is not None for one in spent) == 1
    await store.clusters.save("lab", {"text": "é"}, owner="ann")
    row = await store.clusters.get("lab")
    assert row is not None
    assert row.document == {"text": "é"}


async def _migrations_make_the_same_tables(url: str) -> None:
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext

    engine = create_async_engine(database_url(Path("/"), url))
    async with engine.connect() as db:
        await (await db.execution_options(isolation_level="AUTOCOMMIT")).execute(text("CREATE DATABASE migrated"))
    await engine.dispose()
    engine = create_async_engine(database_url(Path("/"), url.replace("/postgres", "/migrated")))
    async with engine.begin() as db:
        await db.run_sync(run_migrations)
    async with engine.connect() as db:
        found = await db.run_sync(lambda c: compare_metadata(MigrationContext.configure(c), metadata))
    await engine.dispose()
    assert found == []


async def test_idle_write_transaction_is_rolled_back_after_timeout(
    url: str, key_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Like a server whose machine loses power between two statements, seen from the database."""
    one, two = await open_store(key_dir, url), await _impatient(key_dir, url, monkeypatch)

    async def silent() -> None:
        async with two.database.write() as db:
            await db.execute(text("INSERT INTO people (name, role, created_at) VALUES ('silent', 'viewer', 1)"))
            async with asyncio.timeout(60):
                await one.people.set_role("zoe", "viewer")
            await db.execute(text("SELECT 1"))

    try:
        with pytest.raises(StoreUnavailable):  # its unfinished transaction is rolled back
            await silent()
        names = {person.name for person in await two.people.all()}
        assert ("zoe" in names, "silent" in names) == (True, False)
    finally:
        await asyncio.gather(one.close(), two.close())


async def _impatient(folder: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> Store:
    settings = opening.POOLED["server_settings"] | {"idle_in_transaction_session_timeout": f"{1000 * IDLE_S}"}
    monkeypatch.setattr(opening, "POOLED", {**opening.POOLED, "server_settings": settings})
    return await open_store(folder, url)


async def test_connections_set_postgres_network_timeouts(url: str, key_dir: Path) -> None:
    """Checks the settings requested from PostgreSQL; over a socket, as here, they have no effect."""
    store = await open_store(key_dir, url)
    try:
        await store.server_locks.register()
        asked = text("SELECT name, reset_val FROM pg_settings WHERE source = 'client'")
        async with store.database.read() as db:
            pooled = {row.name: row.reset_val for row in await db.execute(asked)}
        lead = store.server_locks._db
        assert lead is not None
        lasting = {row.name: row.reset_val for row in await lead.execute(asked)}
    finally:
        await store.close()
    assert pooled.items() >= (opening.CUT_OFF | {"idle_in_transaction_session_timeout": "15000"}).items()
    assert lasting.items() >= opening.CUT_OFF.items()
    assert "idle_in_transaction_session_timeout" not in lasting


async def test_statements_time_out_on_locks_but_migrations_do_not(
    url: str, key_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await open_store(key_dir, url)
    monkeypatch.setattr(opening, "POOLED", {**opening.POOLED, "command_timeout": 2.0})
    two = await open_store(key_dir, url)
    try:
        async with one.database.write():
            waiting = asyncio.create_task(two.people.set_role("yan", "viewer"))
            assert (await asyncio.wait({waiting}, timeout=60))[0]
            with pytest.raises(CommitUnknown, match="did not answer in time"):  # its write may have been stored
                await waiting
        await two.people.set_role("yan", "viewer")
        async with opening._patient(two.database.engine, {}) as patient, patient.connect() as db:
            await db.execute(text("SELECT pg_sleep(2.5)"))
    finally:
        await asyncio.gather(one.close(), two.close())
