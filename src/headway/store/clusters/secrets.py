"""Keys and other secrets of clusters and of their operations, encrypted."""

from __future__ import annotations

from sqlalchemy import ColumnElement, and_, delete, insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from headway.store.db import cluster_schema as t
from headway.store.db.sealing import SecretBox
from headway.store.db.transactions import Database, StorePart


class ClusterSecretStore(StorePart):
    """Stores secrets by cluster and name. Values are in clear for callers, and sealed in the database."""

    def __init__(self, database: Database, box: SecretBox) -> None:
        super().__init__(database)
        self._box = box

    async def get(self, cluster: str, name: str) -> str | None:
        """Returns a secret, None if there is none."""
        async with self._database.read() as db:
            return await self._read(db, cluster, name)

    async def of_cluster(self, cluster: str) -> dict[str, str]:
        """Returns all secrets of a cluster, by name."""
        async with self._database.read() as db:
            rows = (await db.execute(select(t.secrets).where(t.secrets.c.cluster == cluster))).all()
        return {row.name: self._box.open(sealed_for(cluster, row.name), row.sealed) for row in rows}

    async def put_if_absent(self, cluster: str, name: str, value: str) -> str:
        """Stores the value unless there already is one; returns the stored value. The first writer wins."""
        if (kept := await self.get(cluster, name)) is not None:  # the usual case must not wait for the one writer
            return kept
        async with self._database.write() as db:
            if (kept := await self._read(db, cluster, name)) is not None:
                return kept
            await self.insert(db, cluster, name, value)
            return value

    async def set(self, cluster: str, name: str, value: str) -> None:
        """Stores a secret; replaces any earlier value of this name."""
        async with self._database.write() as db:
            await db.execute(delete(t.secrets).where(_named(cluster, name)))
            await self.insert(db, cluster, name, value)

    async def delete(self, cluster: str, name: str) -> None:
        """Deletes a secret, if there is one."""
        async with self._database.write() as db:
            await db.execute(delete(t.secrets).where(_named(cluster, name)))

    async def insert(self, db: AsyncConnection, cluster: str, name: str, value: str) -> None:
        """Stores a secret that does not exist yet, within a write transaction."""
        sealed = await self._box.seal(db, sealed_for(cluster, name), value)
        await db.execute(insert(t.secrets).values(cluster=cluster, name=name, sealed=sealed))

    async def _read(self, db: AsyncConnection, cluster: str, name: str) -> str | None:
        sealed = (await db.execute(select(t.secrets.c.sealed).where(_named(cluster, name)))).scalar()
        return None if sealed is None else self._box.open(sealed_for(cluster, name), sealed)


def _named(cluster: str, name: str) -> ColumnElement[bool]:
    return and_(t.secrets.c.cluster == cluster, t.secrets.c.name == name)


def sealed_for(cluster: str, name: str) -> str:
    """Returns what a secret is sealed for."""
    return f"secret {name} of {cluster}"  # unambiguous: no name of a cluster has a space
