"""The latest measured throughput of each volume."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import delete, insert, select

from headway.store.db import cluster_schema as t
from headway.store.db.rows import VolumeSpeedRow
from headway.store.db.transactions import StorePart


class VolumeSpeedStore(StorePart):
    """Stores one measurement per volume."""

    async def record(self, rows: Iterable[VolumeSpeedRow]) -> None:
        """Stores measurements; each replaces the previous one of its volume."""
        s = t.volume_speeds
        async with self._database.write() as db:
            for row in rows:
                await db.execute(delete(s).where(s.c.cluster == row.cluster, s.c.path == row.path))
                await db.execute(insert(s).values({name: getattr(row, name) for name in row.__dataclass_fields__}))

    async def of_cluster(self, cluster: str) -> dict[str, VolumeSpeedRow]:
        """Returns the measurements by the path of the volume."""
        s = t.volume_speeds
        async with self._database.read() as db:
            rows = await db.execute(select(s).where(s.c.cluster == cluster))
            return {row.path: VolumeSpeedRow(**row._mapping) for row in rows}
