"""Versions of software environments, and the jobs whose lineage refers to them."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from sqlalchemy import Row, func, insert, select, update

from headway.domain.environment import EnvironmentVersion
from headway.errors import NotFound
from headway.store.db import schema as t
from headway.store.db.transactions import StorePart

_SHOWN = [column for column in t.environments.c if column.name != "lock"]  # a lock may have megabytes


class Environments(StorePart):
    """Stores versions of software environments."""

    async def versions(self, cluster: str, name: str = "", *, removed: bool = False) -> tuple[EnvironmentVersion, ...]:
        """Returns versions sorted by name and number; removed versions only if `removed` is set."""
        e = t.environments
        query = select(*_SHOWN).where(e.c.cluster == cluster).order_by(e.c.name, e.c.number)
        if name:
            query = query.where(e.c.name == name)
        if not removed:
            query = query.where(e.c.removed_at.is_(None))
        async with self._database.read() as db:
            return tuple(_version(row) for row in await db.execute(query))

    async def latest(self, cluster: str, name: str) -> EnvironmentVersion | None:
        """Returns the latest version that was not removed, or None."""
        versions = await self.versions(cluster, name)
        return versions[-1] if versions else None

    async def get(self, cluster: str, name: str, number: int) -> EnvironmentVersion:
        """Returns a version, which may have been removed. Raises NotFound if it never existed."""
        e = t.environments
        query = select(*_SHOWN).where(e.c.cluster == cluster, e.c.name == name, e.c.number == number)
        async with self._database.read() as db:
            row = (await db.execute(query)).first()
        if row is None:
            raise NotFound(f"{cluster} has no environment {name}@{number}", hint=f"headway env ls {cluster}")
        return _version(row)

    async def lock(self, version: EnvironmentVersion) -> str:
        """Returns the lock of a version: every package with its hashes."""
        e = t.environments
        mine = (e.c.cluster == version.cluster, e.c.name == version.name, e.c.number == version.number)
        async with self._database.read() as db:
            return str((await db.execute(select(e.c.lock).where(*mine))).scalar_one())

    async def next_number(self, cluster: str, name: str) -> int:
        """Returns a number for the next version of an environment, one that was never used here nor in the lineage of
        a job."""
        async with self._database.read() as db:
            last = 0
            for given in (t.environments, t.job_environments):
                query = select(func.max(given.c.number)).where(given.c.cluster == cluster, given.c.name == name)
                last = max(last, (await db.execute(query)).scalar() or 0)
            return last + 1

    async def add(self, version: EnvironmentVersion, lock: str) -> None:
        """Adds a version."""
        async with self._database.write() as db:
            await db.execute(insert(t.environments).values(**asdict(version), lock=lock))

    async def record_request(self, version: EnvironmentVersion, request: str) -> None:
        """Records that the version is also what was asked for by `request`, a request_digest()."""
        await self._update(version, request=request)

    async def record_removal(self, version: EnvironmentVersion, person: str, *, forced: bool) -> None:
        """Records that the files of a version were removed, and by whom."""
        await self._update(version, removed_at=self._database.now(), removed_by=person, forced=forced)

    async def _update(self, version: EnvironmentVersion, **values: Any) -> None:
        e = t.environments
        mine = (e.c.cluster == version.cluster, e.c.name == version.name, e.c.number == version.number)
        async with self._database.write() as db:
            await db.execute(update(e).where(*mine).values(**values))

    async def jobs_using(self, cluster: str, name: str, number: int, *, limit: int = 5) -> tuple[int, list[int]]:
        """Returns (how many jobs use the version, the latest of them)."""
        j = t.job_environments
        mine = (j.c.cluster == cluster, j.c.name == name, j.c.number == number)
        async with self._database.read() as db:
            count = (await db.execute(select(func.count()).select_from(j).where(*mine))).scalar() or 0
            rows = await db.execute(select(j.c.job_id).where(*mine).order_by(j.c.job_id.desc()).limit(limit))
            return int(count), [row.job_id for row in rows]

    async def job_counts(self, cluster: str) -> dict[tuple[str, int], int]:
        """Returns how many jobs use each version, by (name, number)."""
        j = t.job_environments
        query = select(j.c.name, j.c.number, func.count().label("jobs")).where(j.c.cluster == cluster)
        async with self._database.read() as db:
            rows = await db.execute(query.group_by(j.c.name, j.c.number))
            return {(row.name, row.number): row.jobs for row in rows}


def _version(row: Row[Any]) -> EnvironmentVersion:
    return EnvironmentVersion(**row._mapping)
