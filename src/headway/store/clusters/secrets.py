"""Secrets of clusters, and of the server itself (under cluster "")."""

from __future__ import annotations

from sqlalchemy import delete, insert, select
from sqlalchemy.exc import IntegrityError

from headway.store.db import schema as t
from headway.store.db.transactions import StorePart


class Secrets(StorePart):
    """Stores secrets by cluster and name."""

    async def of_cluster(self, cluster: str) -> dict[str, str]:
        """Returns all secrets of a cluster, by name."""
        async with self._database.read() as db:
            rows = await db.execute(select(t.secrets.c.name, t.secrets.c.value).where(t.secrets.c.cluster == cluster))
            return {row.name: row.value for row in rows}

    async def put_if_absent(self, cluster: str, name: str, value: str) -> str:
        """Stores the value unless there already is one; returns the stored value. The first writer wins."""
        where = (t.secrets.c.cluster == cluster, t.secrets.c.name == name)
        try:
            async with self._database.write() as db:
                kept = (await db.execute(select(t.secrets.c.value).where(*where))).scalar()
                if kept is not None:
                    return str(kept)
                await db.execute(insert(t.secrets).values(cluster=cluster, name=name, value=value))
                return value
        except IntegrityError:  # another server was faster (PostgreSQL)
            async with self._database.read() as db:
                return str((await db.execute(select(t.secrets.c.value).where(*where))).scalar_one())

    async def set(self, cluster: str, name: str, value: str) -> None:
        """Stores a secret; replaces any earlier value of this name."""
        async with self._database.write() as db:
            await db.execute(delete(t.secrets).where(t.secrets.c.cluster == cluster, t.secrets.c.name == name))
            await db.execute(insert(t.secrets).values(cluster=cluster, name=name, value=value))

    async def delete(self, cluster: str, name: str) -> None:
        """Deletes a secret, if there is one."""
        async with self._database.write() as db:
            await db.execute(delete(t.secrets).where(t.secrets.c.cluster == cluster, t.secrets.c.name == name))
