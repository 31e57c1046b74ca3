"""A database that does not answer is no machine that does not answer."""

from __future__ import annotations

import pytest
from sqlalchemy.ext.asyncio import create_async_engine

from headway.errors import Unreachable
from headway.store import StoreUnavailable
from headway.store.db.server_locks import ServerLocks


async def test_locks_without_a_database_say_nothing_about_machines() -> None:
    locks = ServerLocks(create_async_engine("postgresql+asyncpg://nobody@127.0.0.1:1/none"))
    for call in (locks.register, locks.try_to_lead, lambda: locks.is_locked("reboot/lab/n1")):
        with pytest.raises(StoreUnavailable) as caught:
            await call()
        assert not isinstance(caught.value, Unreachable)
