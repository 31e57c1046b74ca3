"""Secrets of clusters and of the server."""

from __future__ import annotations

from pathlib import Path

import pytest

from headway.store import StoreUnavailable, open_store


async def test_reading_a_secret_that_exists_takes_no_write_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await open_store(tmp_path)
    assert await store.secrets.put_if_absent("lab", "key", "first") == "first"

    def refuse() -> None:
        raise StoreUnavailable("another program writes")

    monkeypatch.setattr(store.database, "write", refuse)
    assert await store.secrets.put_if_absent("lab", "key", "second") == "first"
    await store.close()
