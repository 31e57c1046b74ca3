"""What versions of datasets and of software environments have in common: numbers, removal, and the jobs whose lineage
refers to them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, fields
from typing import Any, ClassVar, Generic, TypeVar

from sqlalchemy import ColumnElement, Table, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from headway.domain.dataset import DatasetVersion
from headway.domain.environment import EnvironmentVersion
from headway.errors import NotFound
from headway.store.db.transactions import StorePart

V = TypeVar("V", DatasetVersion, EnvironmentVersion)


class VersionStore(StorePart, Generic[V]):
    """Stores versions of one kind. A number is never used twice."""

    kind: ClassVar[str]
    list_command: ClassVar[str]  # with {cluster}
    remove_command: ClassVar[str]  # with {cluster} and {label}
    _made: type[V]
    _table: ClassVar[Table]
    _jobs: ClassVar[Table]

    async def versions(self, cluster: str, name: str = "", *, removed: bool = False) -> tuple[V, ...]:
        """Returns versions sorted by name and number; removed versions only if `removed` is set."""
        t = self._table.c
        query = select(*self._columns()).where(t.cluster == cluster).order_by(t.name, t.number)
        if name:
            query = query.where(t.name == name)
        if not removed:
            query = query.where(t.removed_at.is_(None))
        async with self._database.read() as db:
            return tuple(self._made(**row._mapping) for row in await db.execute(query))

    async def latest(self, cluster: str, name: str) -> V | None:
        """Returns the latest version that was not removed, or None."""
        versions = await self.versions(cluster, name)
        return versions[-1] if versions else None

    async def get(self, cluster: str, name: str, number: int) -> V:
        """Returns a version, which may have been removed. Raises NotFound if it never existed."""
        query = select(*self._columns()).where(*_is(self._table, cluster, name, number))
        async with self._database.read() as db:
            row = (await db.execute(query)).first()
        if row is None:
            raise NotFound(
                f"{cluster} has no {self.kind} {name}@{number}", hint=self.list_command.format(cluster=cluster)
            )
        return self._made(**row._mapping)

    async def next_number(self, cluster: str, name: str) -> int:
        """Returns a number for the next version, one that was never used here nor in the lineage of a job."""
        async with self._database.read() as db:
            last = 0
            for given in (self._table, self._jobs):
                query = select(func.max(given.c.number)).where(given.c.cluster == cluster, given.c.name == name)
                last = max(last, (await db.execute(query)).scalar() or 0)
            return last + 1

    async def record_removal(self, version: V, person: str, *, force: bool) -> bool:
        """Records that the files of a version are removed, and by whom. Returns False, and records nothing, while the
        lineage of jobs names the version, unless `force`."""
        async with self._database.write() as db:
            count = await self._count_jobs(db, version.cluster, version.name, version.number)
            if count and not force:
                return False
            values = {"removed_at": self._database.now(), "removed_by": person, "forced": count > 0}
            await self._change(db, version, **values)
            return True

    async def jobs_using(self, cluster: str, name: str, number: int, *, limit: int = 5) -> tuple[int, list[int]]:
        """Returns (how many jobs use the version, the latest of them)."""
        j = self._jobs.c
        latest = select(j.job_id).where(*_is(self._jobs, cluster, name, number)).order_by(j.job_id.desc()).limit(limit)
        async with self._database.read() as db:
            count = await self._count_jobs(db, cluster, name, number)
            return count, [row.job_id for row in await db.execute(latest)]

    async def job_counts(self, cluster: str) -> dict[tuple[str, int], int]:
        """Returns how many jobs use each version, by (name, number)."""
        j = self._jobs.c
        query = select(j.name, j.number, func.count().label("jobs")).where(j.cluster == cluster)
        async with self._database.read() as db:
            rows = await db.execute(query.group_by(j.name, j.number))
            return {(row.name, row.number): row.jobs for row in rows}

    async def _insert(self, version: V, **more: Any) -> None:
        async with self._database.write() as db:
            await db.execute(insert(self._table).values(**asdict(version), **more))

    async def _update(self, version: V, **values: Any) -> None:
        async with self._database.write() as db:
            await self._change(db, version, **values)

    async def _change(self, db: AsyncConnection, version: V, **values: Any) -> None:
        mine = _is(self._table, version.cluster, version.name, version.number)
        await db.execute(update(self._table).where(*mine).values(**values))

    async def _count_jobs(self, db: AsyncConnection, cluster: str, name: str, number: int) -> int:
        query = select(func.count()).select_from(self._jobs).where(*_is(self._jobs, cluster, name, number))
        return int((await db.execute(query)).scalar() or 0)

    def _columns(self) -> list[ColumnElement[Any]]:
        return [self._table.c[field.name] for field in fields(self._made)]


def _is(table: Table, cluster: str, name: str, number: int) -> tuple[ColumnElement[bool], ...]:
    return (table.c.cluster == cluster, table.c.name == name, table.c.number == number)


def job_lines(cluster: str, job_id: int, used: Iterable[tuple[str, int]]) -> list[dict[str, Any]]:
    """Returns the rows of job_datasets or job_environments for one job."""
    return [
        {"cluster": cluster, "name": name, "number": number, "job_id": job_id} for name, number in sorted(set(used))
    ]
