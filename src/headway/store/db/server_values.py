"""Values that all servers on one database share, and that are no secrets."""

from __future__ import annotations

from sqlalchemy import ColumnElement, insert, select

from headway.store.db import cluster_schema as t
from headway.store.db.transactions import StorePart


class ServerValueStore(StorePart):
    """Stores values by name."""

    async def get(self, name: str) -> str:
        """Returns the value, "" if there is none."""
        async with self._database.read() as db:
            return str((await db.execute(select(t.server_values.c.value).where(_named(name)))).scalar() or "")

    async def put_if_absent(self, name: str, value: str) -> str:
        """Stores the value unless there already is one; returns the stored value. The first writer wins."""
        if kept := await self.get(name):  # the usual case must not wait for the one writer
            return kept
        async with self._database.write() as db:
            stored = (await db.execute(select(t.server_values.c.value).where(_named(name)))).scalar()
            if stored is None:
                await db.execute(insert(t.server_values).values(name=name, value=value))
            return value if stored is None else str(stored)


def _named(name: str) -> ColumnElement[bool]:
    return t.server_values.c.name == name
