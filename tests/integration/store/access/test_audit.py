"""The audit trail's hash chain is written with each line, and shows what was changed in the database itself."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from sqlalchemy import text

from headway.domain.access.audit_chain import START
from headway.store import Store
from tests.support.clusters import builders


async def tamper(store: Store, statement: str) -> None:
    """Changes the trail as a person with the database file could."""
    async with store.database.write() as db:
        for word in ("update", "delete"):
            await db.execute(text(f"DROP TRIGGER IF EXISTS audit_no_{word.upper()}"))
        await db.execute(text(statement))


async def test_concurrent_lines_form_one_chain(tmp_path: Path) -> None:
    store = await builders.store(tmp_path)
    assert (await store.audit.check_chain()).hash == START
    detail = {"ü": "\0x", "n": 0.1, "list": ["a", None], "deep": {"z": 1, "a": True}}
    await asyncio.gather(*(store.audit.record("ann", "cancel", "lab", detail | {"job": n}) for n in range(20)))
    await store.jobs.record("lab", 7, person="bob", user="bob", kind="submit", request={}, facts={}, audit={"job": 7})
    found = await store.audit.check_chain()
    assert (found.lines, found.number, found.broken_at) == (21, 21, 0)
    assert found.hash == await store.audit.hash_of(21) != ""
    await store.close()


@pytest.mark.parametrize(
    ("statement", "broken_at"),
    [
        ("UPDATE audit SET person = 'bob' WHERE number = 3", 3),
        ("UPDATE audit SET detail = '{}' WHERE number = 3", 3),
        ("DELETE FROM audit WHERE number = 3", 4),
        ("UPDATE audit SET hash = 'f' WHERE number = 3", 3),
    ],
)
async def test_changed_database_is_detected(tmp_path: Path, statement: str, broken_at: int) -> None:
    store = await builders.store(tmp_path)
    for number in range(5):
        await store.audit.record("ann", "cancel", "lab", {"job": number})
    await tamper(store, statement)
    assert (await store.audit.check_chain()).broken_at == broken_at
    await store.close()
