"""The store's leases, queueing, uids, secrets, tokens and migrations work on a real SQLite file."""

from __future__ import annotations

import asyncio
import re
import secrets
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator
from decimal import Decimal
from pathlib import Path

import pytest
from sqlalchemy import create_engine
from sqlalchemy.exc import DBAPIError, OperationalError, ProgrammingError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from headway.domain.billing.ledger import NodePrice
from headway.errors import Conflict, NotFound, Refused, Unreachable
from headway.store import DatabaseLocked, Store, StoreUnavailable, open_store
from headway.store.db.engine import database_url, migrate, open_engine, run_migrations, shown_url
from headway.store.db.errors import CommitUnknown
from headway.store.db.metadata import HEAD
from headway.store.db.transactions import database_errors
from tests.support.clusters import builders
from tests.support.clusters.builders import Clock


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def store(tmp_path: Path, clock: Clock) -> AsyncIterator[Store]:
    opened = await builders.store(tmp_path, clock)
    yield opened
    await opened.close()


async def test_second_operation_of_a_cluster_waits_for_the_first(store: Store) -> None:
    first = await store.operations.enqueue("lab", "apply", "ann")
    second = await store.operations.enqueue("lab", "apply", "bob")
    other = await store.operations.enqueue("sky", "apply", "ann")
    assert (await store.operations.claim("a", 1000, 30)).id == first.id  # type: ignore[union-attr]
    assert (await store.operations.claim("a", 1000, 30)).id == other.id  # type: ignore[union-attr]
    assert await store.operations.claim("b", 1000, 30) is None
    assert await store.operations.finish(first.id, "a", "done")
    assert (await store.operations.claim("b", 1000, 30)).id == second.id  # type: ignore[union-attr]


async def test_operation_starts_after_the_previous_one_finished(store: Store, clock: Clock) -> None:
    """Who claims may have asked for the time before that end was written."""
    asked_at = clock.now
    for _ in range(2):
        await store.operations.enqueue("lab", "apply", "ann")
    first = await store.operations.claim("a", asked_at, 30)
    clock.now += 1
    assert first
    assert await store.operations.finish(first.id, "a", "done")
    second = await store.operations.claim("a", asked_at, 30)
    ended = (await store.operations.get(first.id)).finished_at
    assert second
    assert ended
    assert (second.started_at or 0.0) >= ended


async def test_racing_claims_give_each_operation_to_one_owner(tmp_path: Path) -> None:
    stores = [await open_store(tmp_path) for _ in range(4)]
    for number in range(10):
        await stores[0].operations.enqueue(f"c{number}", "apply", "ann")
        await stores[0].operations.enqueue(f"c{number}", "apply", "ann")

    async def drain(index: int) -> list[str]:
        taken = []
        while operation := await stores[index].operations.claim(f"s{index}", 1000, 30):
            taken.append(operation.id)
        return taken

    claimed = [x for part in await asyncio.gather(*(drain(i) for i in range(4))) for x in part]
    assert len(claimed) == len(set(claimed)) == 10
    running = [o for o in await stores[0].operations.recent() if o.state == "running"]
    assert sorted(o.cluster for o in running) == sorted(f"c{n}" for n in range(10))
    for store in stores:
        await store.close()


async def test_expired_lease_can_be_claimed_and_the_old_owner_loses_it(store: Store) -> None:
    operation = await store.operations.enqueue("lab", "apply", "ann")
    await store.operations.claim("old", 1000, 30)
    assert await store.operations.claim("new", 1029, 30) is None
    assert await store.operations.renew(operation.id, "old", 1050)
    assert await store.operations.claim("new", 1049, 30) is None
    again = await store.operations.claim("new", 1051, 30)
    assert again is not None
    assert again.attempts == 2
    assert again.started_at == 1000
    assert not await store.operations.renew(operation.id, "old", 9999)
    assert not await store.operations.finish(operation.id, "old", "done")
    assert await store.operations.finish(operation.id, "new", "failed", error={"kind": "refused", "message": "x"})
    ended = await store.operations.get(operation.id)
    assert ended.state == "failed"
    assert ended.error == {"kind": "refused", "message": "x"}
    assert ended.finished


async def test_expire_leases_affects_only_the_given_owner_prefix(store: Store) -> None:
    await store.operations.enqueue("lab", "apply", "ann")
    await store.operations.enqueue("sky", "apply", "ann")
    await store.operations.claim("host_a:1", 1000, 300)
    await store.operations.claim("hostXa:2", 1000, 300)
    assert await store.operations.expire_leases("host_a:") == 1
    assert (await store.operations.claim("host_a:3", 1001, 30)).cluster == "lab"  # type: ignore[union-attr]


async def test_idempotency_key_returns_its_operation_for_a_day(store: Store, clock: Clock) -> None:
    first = await store.operations.enqueue("lab", "backup", "ann", params={"to": "/b", "ref": "a"}, secret="x", key="k")
    again = await store.operations.enqueue("lab", "backup", "ann", params={"to": "/b", "ref": "b"}, secret="y", key="k")
    assert again.id == first.id
    with pytest.raises(Conflict, match="requested already"):
        await store.operations.enqueue("lab", "backup", "ann", params={"to": "/c", "ref": "c"}, key="k")
    with pytest.raises(Conflict):
        await store.operations.enqueue("sky", "down", "ann", key="k")
    clock.now += 86401
    later = await store.operations.enqueue("lab", "backup", "ann", params={"to": "/b", "ref": "d"}, key="k")
    assert later.id != first.id
    assert (await store.operations.by_key("k")) == later
    assert list(await store.secrets.of_cluster("lab")) == ["backup_key/a"]


async def test_operation_secret_is_stored_and_deleted_with_its_operation(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await store.operations.enqueue("lab", "backup", "ann", params={"ref": "a"}, secret="hush")
    assert await store.secrets.of_cluster("lab") == {"backup_key/a": "hush"} == {first.secret: "hush"}
    with pytest.raises(Conflict, match="requested already"):
        await store.operations.enqueue("lab", "backup", "bob", params={"ref": "a"}, secret="other")
    monkeypatch.setattr("secrets.token_hex", lambda _: first.id.removeprefix("op-"))  # the second insert fails
    with pytest.raises(Conflict):
        await store.operations.enqueue("lab", "dataset", "ann", params={"ref": "b"}, secret="other")
    assert await store.secrets.of_cluster("lab") == {"backup_key/a": "hush"}
    assert len(await store.operations.recent("lab")) == 1
    await store.operations.claim("one", 1000, -1)
    await store.operations.claim("two", 1001, 30)
    assert not await store.operations.finish(first.id, "one", "failed")
    assert await store.secrets.of_cluster("lab") == {"backup_key/a": "hush"}, "another server goes on, with the key"
    assert await store.operations.finish(first.id, "two", "done")
    assert await store.secrets.of_cluster("lab") == {}


async def test_orphaned_operation_secrets_are_deleted(store: Store) -> None:
    await store.operations.enqueue("lab", "backup", "ann", params={"ref": "a"}, secret="needed")
    for name in ("backup_key/b", "s3_access/a", "munge_key", "rotating/a", "s3xaccess/a"):
        await store.secrets.put_if_absent("lab", name, "x")
    await store.secrets.put_if_absent("sky", "backup_key/a", "another cluster's")
    rotation = await store.operations.enqueue("lab", "rotate", "ann", params={"what": "ssh", "ref": "b"})
    await store.secrets.put_if_absent("lab", rotation.secret, "x")
    assert await store.operations.delete_orphaned_secrets() == 4
    assert set(await store.secrets.of_cluster("lab")) == {"backup_key/a", "munge_key", "rotating/b", "s3xaccess/a"}
    assert await store.secrets.of_cluster("sky") == {}


async def test_database_allows_one_running_operation_per_cluster(store: Store, tmp_path: Path) -> None:
    await store.operations.enqueue("lab", "apply", "ann")
    await store.operations.enqueue("lab", "apply", "ann")
    with sqlite3.connect(tmp_path / "headway.db") as db, pytest.raises(sqlite3.IntegrityError):
        db.execute("UPDATE operations SET state = 'running'")


async def test_events_are_numbered_from_one_and_read_from_any_point(store: Store) -> None:
    operation = await store.operations.enqueue("lab", "apply", "ann")
    await asyncio.gather(*(store.operations.add_event(operation.id, "machines", f"line {n}") for n in range(20)))
    await store.operations.add_event(operation.id, "machines", "up", done=True, seconds=1.5)
    events = await store.operations.events_after(operation.id)
    assert [e.seq for e in events] == list(range(1, 22))
    assert (events[-1].done, events[-1].seconds) == (True, 1.5)
    assert [e.seq for e in await store.operations.events_after(operation.id, 19)] == [20, 21]


async def test_uids_are_never_reused(store: Store) -> None:
    assert await store.linux_uids.assign_uids(["bob", "alice"]) == {"alice": 20000, "bob": 20001}
    assert await store.linux_uids.assign_uids(["carol", "bob"]) == {"bob": 20001, "carol": 20002}
    given = await asyncio.gather(*(store.linux_uids.assign_uids([f"u{n}"]) for n in range(10)))
    assert len({uid for one in given for uid in one.values()}) == 10
    assert await store.linux_uids.assign_uids([]) == {}


async def test_existing_uids_are_kept_unless_already_assigned(store: Store) -> None:
    await store.linux_uids.assign_uids(["zoe"])
    wishes = {"ann": 5001, "ben": 20000, "cid": 20001, "dan": 59999, "zoe": 7000}
    shown = {"ann": 5001, "ben": 20002, "cid": 20001, "dan": 59999, "eve": 20003, "zoe": 20000}
    assert await store.linux_uids.assign_uids(shown, give=False, wishes=wishes) == shown
    assert await store.linux_uids.known_uids(shown) == {"zoe": 20000}
    assert await store.linux_uids.assign_uids(shown, wishes=wishes) == shown
    assert await store.linux_uids.known_uids(shown) == shown
    more = await store.linux_uids.assign_uids(["fay", "gil"])
    assert len({*shown.values(), *more.values()}) == 8
    assert await store.linux_uids.assign_uids(["hal"], wishes={"hal": 5001}) != {"hal": 5001}
    assert all(20000 <= uid < 60000 for uid in more.values()), "nobody gets one behind the last that is ours to give"


async def test_first_secret_wins_and_outlives_the_cluster(store: Store) -> None:
    await store.clusters.save("lab", {"spec": {}}, owner="ann")
    values = await asyncio.gather(*(store.secrets.put_if_absent("lab", "jwt_key", f"v{n}") for n in range(5)))
    assert len(set(values)) == 1
    assert await store.secrets.of_cluster("lab") == {"jwt_key": values[0]}
    await store.clusters.delete("lab")
    assert await store.clusters.get("lab") is None
    assert await store.secrets.put_if_absent("lab", "jwt_key", "other") == values[0]
    await store.clusters.delete("lab", delete_data=True)
    assert await store.secrets.of_cluster("lab") == {}


async def test_saving_a_cluster_row_changes_only_the_given_fields(store: Store, clock: Clock) -> None:
    await store.clusters.save("lab", {"text": "a"}, summary={"nodes": 4}, owner="ann")
    clock.now = 2000
    await store.clusters.save("lab", state="ready")
    row = await store.clusters.get("lab")
    assert row is not None
    assert (row.document, row.summary, row.state, row.owner) == ({"text": "a"}, {"nodes": 4}, "ready", "ann")
    assert row.created_at == 1000
    await store.clusters.save("ghost", state="ready")
    assert [c.name for c in await store.clusters.all()] == ["lab"]
    await store.linux_uids.add_to_cluster("lab", ["bob", "alice"])
    await store.linux_uids.add_to_cluster("lab", ["bob"])
    assert await store.linux_uids.of_cluster("lab") == {"alice", "bob"}


async def test_token_belongs_to_a_person_and_expires(store: Store, clock: Clock, tmp_path: Path) -> None:
    await store.people.set_role("ann", "member")
    row, secret = await store.tokens.create("ann", label="ci", days=1)
    held = await store.tokens.holder(secret)
    assert held is not None
    assert (held.person.name, held.person.role, held.scopes, held.cluster) == ("ann", "member", ("all",), "")
    assert (await store.tokens.all("ann"))[0].last_used_at == 1000
    assert await store.tokens.holder(secret + "x") is None
    clock.now += 86400
    assert await store.tokens.holder(secret) is None
    assert secret.encode() not in b"".join(p.read_bytes() for p in tmp_path.iterdir())
    await store.tokens.delete(row.id)
    with pytest.raises(NotFound):
        await store.tokens.delete(row.id)
    with pytest.raises(NotFound):
        await store.tokens.create("nobody")
    with pytest.raises(ValueError, match="king"):
        await store.people.set_role("ann", "king")


async def test_tokens_cookies_and_codes_have_256_random_bits(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    random_text, bits = secrets.token_urlsafe, dict[str, int]()

    def counted(size: int) -> str:
        made = random_text(size)
        bits[made] = 8 * size
        return made

    monkeypatch.setattr(secrets, "token_urlsafe", counted)
    await store.people.set_role("ann", "admin")
    for _ in range(2):
        _, token = await store.tokens.create("ann")
        code, _ = await store.sessions.create_signin_code("ann")
        signed_in = await store.sessions.redeem_signin_code(code)
        assert signed_in is not None
        for value in (token.removeprefix("hw_"), code, signed_in[1]):
            assert bits.pop(value) >= 256
    assert bits == {}


async def test_session_ends_after_seven_days_however_it_is_used(store: Store, clock: Clock) -> None:
    await store.people.set_role("ann", "admin")
    signed_in = await store.sessions.redeem_signin_code((await store.sessions.create_signin_code("ann"))[0])
    assert signed_in is not None
    began, cookie = clock.now, signed_in[1]
    while clock.now < began + 7 * 86400 - 3600:
        clock.now += 3600
        assert await store.sessions.holder(cookie) is not None, (clock.now - began) / 86400
    clock.now = began + 7 * 86400
    assert await store.sessions.holder(cookie) is None


async def test_sign_in_code_works_once_and_expires_after_five_minutes(store: Store, clock: Clock) -> None:
    await store.people.set_role("ann", "admin")
    code, expires = await store.sessions.create_signin_code("ann")
    assert expires == 1300
    spent = await asyncio.gather(*(store.sessions.redeem_signin_code(code) for _ in range(3)))
    good = [one for one in spent if one is not None]
    assert len(good) == 1
    cookie = good[0][1]
    assert (await store.sessions.holder(cookie)).person.name == "ann"  # type: ignore[union-attr]
    await store.sessions.delete(cookie)
    assert await store.sessions.holder(cookie) is None
    late, _ = await store.sessions.create_signin_code("ann")
    clock.now += 300
    assert await store.sessions.redeem_signin_code(late) is None


async def test_database_file_is_private_and_in_wal_mode(store: Store, tmp_path: Path) -> None:
    await store.people.set_role("ann", "admin")
    for file in tmp_path.glob("headway.db*"):
        assert file.stat().st_mode & 0o777 == 0o600, file
    with sqlite3.connect(tmp_path / "headway.db") as db:
        assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)


async def test_migration_head_is_current_and_makes_the_tables_of_a_new_database(tmp_path: Path) -> None:
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    import headway.store

    config = Config()
    config.set_main_option("script_location", str(Path(headway.store.__file__).parent / "db" / "migrations"))
    assert ScriptDirectory.from_config(config).get_current_head() == HEAD
    await (await open_engine(database_url(tmp_path))).dispose()
    migrated = create_engine(f"sqlite:///{tmp_path / 'migrated.db'}")
    with migrated.begin() as db:
        run_migrations(db)
    migrated.dispose()
    assert _definitions(tmp_path / "headway.db") == _definitions(tmp_path / "migrated.db")


def _definitions(file: Path) -> dict[str, list[str]]:
    """Returns what was said to make each table, index and trigger: the parts of the statement, in any order."""
    with sqlite3.connect(file) as db:
        rows = db.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL")
        return {name: sorted(re.split(r"[\s,]+(?=CONSTRAINT|\)$)|, ", " ".join(sql.split()))) for name, sql in rows}


async def test_refuses_a_database_of_a_newer_version(tmp_path: Path) -> None:
    engine = await open_engine(database_url(tmp_path))
    with sqlite3.connect(tmp_path / "headway.db") as db:
        db.execute("UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(Refused, match="newer than this Headway"):
        await migrate(engine)
    await engine.dispose()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("ALTER TABLE people DROP COLUMN disabled", "it has no people.disabled"),
        ("ALTER TABLE people ADD COLUMN nickname TEXT", "it has people.nickname"),
        ("DROP TABLE used_logout_tokens", "it has no used_logout_tokens.expires_at"),
    ],
)
async def test_refuses_a_database_with_other_tables(tmp_path: Path, change: str, words: str) -> None:
    await (await open_engine(database_url(tmp_path))).dispose()
    with sqlite3.connect(tmp_path / "headway.db") as db:
        db.execute(change)
    with pytest.raises(Refused) as caught:
        await open_engine(database_url(tmp_path))
    assert words in caught.value.message
    assert "HEADWAY_STATE" in caught.value.hint


def test_alembic_is_not_imported_for_a_new_or_current_database(tmp_path: Path) -> None:
    code = (
        "import asyncio, sys, pathlib\nfrom headway.store import open_store\n"
        "async def main():\n    s = await open_store(pathlib.Path(sys.argv[1]))\n    await s.close()\n"
        "asyncio.run(main())\nprint('alembic' in sys.modules)"
    )
    runs = [
        subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
        for _ in range(2)
    ]
    assert [r.stdout.strip() for r in runs] == ["False", "False"]


def test_builds_database_urls_and_masks_the_password(tmp_path: Path) -> None:
    assert database_url(tmp_path) == f"sqlite+aiosqlite:///{tmp_path}/headway.db"
    assert database_url(tmp_path, "postgresql://u:p@h/d") == "postgresql+asyncpg://u:p@h/d"
    assert "p4ss" not in shown_url("postgresql+asyncpg://u:p4ss@h/d")
    with pytest.raises(Refused):
        database_url(tmp_path, "mysql://h/d")


async def test_unreachable_database_error_hides_the_password(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable) as caught:
        await open_store(tmp_path, "postgresql://u:p4ss@127.0.0.1:9/d")
    assert "p4ss" not in str(caught.value)


async def test_previewing_uids_assigns_none(store: Store) -> None:
    await store.linux_uids.assign_uids(["alice"])
    assert await store.linux_uids.assign_uids(["alice", "mallory", "zoe"], give=False) == {
        "alice": 20000,
        "mallory": 20001,
        "zoe": 20002,
    }
    assert await store.linux_uids.assign_uids(["bob"]) == {"bob": 20001}


async def test_price_history_stores_only_changes(store: Store) -> None:
    def told(since: float, usd: str, *, spot: bool = False) -> NodePrice:
        return NodePrice("gpu", since, Decimal(usd), spot)

    cpu = NodePrice("cpu", 1, Decimal("1.5"))
    await store.prices.record("lab", [told(1, "31.2"), cpu])
    await store.prices.record("lab", [told(2, "31.2")])
    await store.prices.record("sky", [NodePrice("gpu", 2, Decimal("9"))])
    await store.prices.record("lab", [told(3, "9.5", spot=True)])
    await store.prices.record("lab", [told(4, "31.2")])  # back at the price of before
    assert await store.prices.of_cluster("lab") == (cpu, told(1, "31.2"), told(3, "9.5", spot=True), told(4, "31.2"))


class Told(Exception):
    """What PostgreSQL's driver raises: with the number that the database gave."""

    def __init__(self, sqlstate: str) -> None:
        super().__init__(f"it says {sqlstate}")
        self.sqlstate = sqlstate


@pytest.mark.parametrize(
    "error",
    [
        PoolTimeout("none is free"),
        TimeoutError(),
        ConnectionRefusedError(111, "Connection refused"),
        DBAPIError("SELECT 1", None, Told(""), connection_invalidated=True),
        DBAPIError("SELECT 1", None, Told("57P03")),  # it starts
        DBAPIError("SELECT 1", None, Told("53300")),  # too many connections
        OperationalError("BEGIN", None, sqlite3.OperationalError("database is locked")),
        OperationalError("BEGIN", None, sqlite3.OperationalError("disk I/O error")),
        OperationalError("BEGIN", None, sqlite3.OperationalError("database or disk is full")),
        OperationalError("BEGIN", None, sqlite3.OperationalError("unable to open database file")),
    ],
)
def test_driver_errors_of_an_unavailable_database_become_store_unavailable(error: Exception) -> None:
    with pytest.raises(StoreUnavailable, match="the server's database") as caught, database_errors():
        raise error
    assert not isinstance(caught.value, Unreachable), "which would say that a machine does not answer"
    assert caught.value.hint
    assert isinstance(caught.value, DatabaseLocked) == ("locked" in str(error))
    assert isinstance(caught.value, CommitUnknown) == (type(error) is TimeoutError), "the change may have been written"


@pytest.mark.parametrize(
    "error",
    [
        ProgrammingError("SELEKT", None, Told("42601")),
        OperationalError("SELECT", None, sqlite3.OperationalError("no such table: clusters")),
        Conflict("another one holds it"),
    ],
)
def test_programming_errors_are_not_reported_as_unavailable_database(error: Exception) -> None:
    with pytest.raises(type(error)), database_errors():
        raise error
