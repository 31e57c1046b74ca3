"""Versions of datasets, and the jobs whose lineage refers to them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from sqlalchemy import Row, func, insert, select, update

from headway.domain.dataset import DatasetVersion
from headway.errors import NotFound
from headway.store.db import schema as t
from headway.store.db.transactions import StorePart


class Datasets(StorePart):
    """Stores dataset versions."""

    async def versions(self, cluster: str, name: str = "", *, removed: bool = False) -> tuple[DatasetVersion, ...]:
        """Returns versions sorted by name and number; removed versions only if `removed` is set."""
        d = t.datasets
        query = select(d).where(d.c.cluster == cluster).order_by(d.c.name, d.c.number)
        if name:
            query = query.where(d.c.name == name)
        if not removed:
            query = query.where(d.c.removed_at.is_(None))
        async with self._database.read() as db:
            return tuple(_version(row) for row in await db.execute(query))

    async def get(self, cluster: str, name: str, number: int) -> DatasetVersion:
        """Returns a version, which may have been removed. Raises NotFound if it never existed."""
        d = t.datasets
        query = select(d).where(d.c.cluster == cluster, d.c.name == name, d.c.number == number)
        async with self._database.read() as db:
            row = (await db.execute(query)).first()
        if row is None:
            raise NotFound(f"{cluster} has no dataset {name}@{number}", hint="headway dataset list")
        return _version(row)

    async def names(self, cluster: str) -> tuple[str, ...]:
        """Returns the names of datasets that have at least one version that was not removed."""
        d = t.datasets
        query = select(d.c.name).where(d.c.cluster == cluster, d.c.removed_at.is_(None)).distinct().order_by(d.c.name)
        async with self._database.read() as db:
            return tuple(row.name for row in await db.execute(query))

    async def next_number(self, cluster: str, name: str) -> int:
        """Returns a number for the next version of a dataset, one that was never used here nor in the lineage of a
        job."""
        async with self._database.read() as db:
            last = 0
            for given in (t.datasets, t.job_datasets):
                query = select(func.max(given.c.number)).where(given.c.cluster == cluster, given.c.name == name)
                last = max(last, (await db.execute(query)).scalar() or 0)
            return last + 1

    async def add(self, version: DatasetVersion) -> None:
        """Adds a version."""
        async with self._database.write() as db:
            await db.execute(insert(t.datasets).values(**asdict(version)))

    async def record_verification(self, version: DatasetVersion, damage: str) -> None:
        """Records that every file was read and checked. `damage` describes what was wrong, "" if nothing."""
        await self._update(version, checked_at=self._database.now(), damage=damage)

    async def record_removal(self, version: DatasetVersion, person: str, *, forced: bool) -> None:
        """Records that the files of a version were removed, and by whom."""
        await self._update(version, removed_at=self._database.now(), removed_by=person, forced=forced)

    async def _update(self, version: DatasetVersion, **values: Any) -> None:
        d = t.datasets
        mine = (d.c.cluster == version.cluster, d.c.name == version.name, d.c.number == version.number)
        async with self._database.write() as db:
            await db.execute(update(d).where(*mine).values(**values))

    async def jobs_using(self, cluster: str, name: str, number: int, *, limit: int = 5) -> tuple[int, list[int]]:
        """Returns (how many jobs use the version, the latest of them)."""
        j = t.job_datasets
        mine = (j.c.cluster == cluster, j.c.name == name, j.c.number == number)
        async with self._database.read() as db:
            count = (await db.execute(select(func.count()).select_from(j).where(*mine))).scalar() or 0
            rows = await db.execute(select(j.c.job_id).where(*mine).order_by(j.c.job_id.desc()).limit(limit))
            return int(count), [row.job_id for row in rows]

    async def job_counts(self, cluster: str) -> dict[tuple[str, int], int]:
        """Returns how many jobs use each version, by (name, number)."""
        j = t.job_datasets
        query = select(j.c.name, j.c.number, func.count().label("jobs")).where(j.c.cluster == cluster)
        async with self._database.read() as db:
            rows = await db.execute(query.group_by(j.c.name, j.c.number))
            return {(row.name, row.number): row.jobs for row in rows}


def job_lines(cluster: str, job_id: int, used: Iterable[tuple[str, int]]) -> list[dict[str, Any]]:
    """Returns the rows of job_datasets or job_environments for one job."""
    return [
        {"cluster": cluster, "name": name, "number": number, "job_id": job_id} for name, number in sorted(set(used))
    ]


def _version(row: Row[Any]) -> DatasetVersion:
    return DatasetVersion(**row._mapping)
