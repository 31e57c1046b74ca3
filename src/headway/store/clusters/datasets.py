"""Versions of datasets, and the jobs whose lineage refers to them."""

from __future__ import annotations

from sqlalchemy import select

from headway.domain.dataset import DatasetVersion
from headway.store.clusters.versions import VersionStore
from headway.store.db import cluster_schema as t


class DatasetStore(VersionStore[DatasetVersion]):
    """Stores dataset versions."""

    kind = "dataset"
    list_command = "headway dataset ls --cluster {cluster}"
    remove_command = "headway dataset rm {label} --force"
    _made, _table, _jobs = DatasetVersion, t.datasets, t.job_datasets

    async def names(self, cluster: str) -> tuple[str, ...]:
        """Returns the names of datasets that have at least one version that was not removed."""
        d = t.datasets
        query = select(d.c.name).where(d.c.cluster == cluster, d.c.removed_at.is_(None)).distinct().order_by(d.c.name)
        async with self._database.read() as db:
            return tuple(row.name for row in await db.execute(query))

    async def add(self, version: DatasetVersion) -> None:
        """Adds a version."""
        await self._insert(version)

    async def record_verification(self, version: DatasetVersion, damage: str) -> None:
        """Records that every file was read and checked. `damage` describes what was wrong, "" if nothing."""
        await self._update(version, checked_at=self._database.now(), damage=damage)
