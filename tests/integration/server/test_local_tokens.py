"""The server's own tokens in files of its machine end, and are replaced before."""

from __future__ import annotations

from pathlib import Path

from headway import paths
from headway.domain.access.role import Role
from headway.domain.access.token_lifetime import DEFAULT_TOKEN_DAYS
from headway.server import state_files
from headway.server.local_tokens import RENEW_BEFORE_S, first_admin, write_local_tokens
from tests.support.clusters import builders

DAY_S = 86400.0
URL = "http://127.0.0.1:7001"


class Clock:
    """A clock that the test sets."""

    now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


async def test_token_of_the_machine_ends_and_is_replaced_before(tmp_path: Path) -> None:
    clock = Clock()
    store = await builders.store(tmp_path, clock)
    await write_local_tokens(store, tmp_path, URL, "")
    first = state_files.read_client(tmp_path)["token"]
    (row,) = await store.tokens.all()
    assert row.expires_at == clock.now + DEFAULT_TOKEN_DAYS * DAY_S
    assert (tmp_path / paths.CLIENT_FILE).stat().st_mode & 0o777 == 0o600
    clock.now = row.expires_at - RENEW_BEFORE_S - 1
    await write_local_tokens(store, tmp_path, URL, "")
    assert state_files.read_client(tmp_path)["token"] == first
    clock.now += 2
    await write_local_tokens(store, tmp_path, URL, "")
    second = state_files.read_client(tmp_path)["token"]
    assert second != first
    assert await store.tokens.holder(first) is not None, "a command that runs keeps its token for the rest of its time"
    clock.now = row.expires_at
    assert await store.tokens.holder(first) is None
    assert await store.tokens.holder(second) is not None
    assert [(line.action, line.detail.get("by")) for line in await store.audit.search()] == [
        ("token.create", "server"), ("token.create", "first start"), ("person.add", "first start"),
    ]  # fmt: skip
    await store.close()


async def test_machine_that_was_off_for_a_year_gets_a_token_at_its_next_start(tmp_path: Path) -> None:
    clock = Clock()
    store = await builders.store(tmp_path, clock)
    await write_local_tokens(store, tmp_path, URL, "")
    clock.now += 365 * DAY_S
    token = await first_admin(store, tmp_path)
    holder = await store.tokens.holder(token)
    assert holder is not None
    assert holder.person.role == "admin"
    await store.close()


async def test_removed_admin_does_not_come_back_by_the_file_of_the_machine(tmp_path: Path) -> None:
    store = await builders.store(tmp_path, Clock())
    await write_local_tokens(store, tmp_path, URL, "")
    (starter,) = [person.name for person in await store.people.all()]
    await store.people.set_role("other", Role.ADMIN)
    await store.people.delete(starter, by="other")
    await write_local_tokens(store, tmp_path, URL, "", renewal=True)
    assert [person.name for person in await store.people.all()] == ["other"]
    assert state_files.read_client(tmp_path)["token"] == ""
    await store.close()


async def test_tokens_end_unless_a_person_asks_for_one_without_end(tmp_path: Path) -> None:
    clock = Clock()
    store = await builders.store(tmp_path, clock)
    await store.people.set_role("ann", "admin")  # type: ignore[arg-type]
    assert (await store.tokens.create("ann"))[0].expires_at == clock.now + DEFAULT_TOKEN_DAYS * DAY_S
    assert (await store.tokens.create("ann", days=None))[0].expires_at is None
    await store.close()
