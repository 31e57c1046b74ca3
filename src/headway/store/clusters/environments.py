"""Versions of software environments, and the jobs whose lineage refers to them."""

from __future__ import annotations

from sqlalchemy import select

from headway.domain.environment import EnvironmentVersion
from headway.store.clusters.versions import VersionStore
from headway.store.db import cluster_schema as t


class EnvironmentStore(VersionStore[EnvironmentVersion]):
    """Stores versions of software environments. Their locks, which may have megabytes, are read one at a time."""

    kind = "environment"
    list_command = "headway env ls {cluster}"
    remove_command = "headway env rm {cluster} {label} --force"
    _made, _table, _jobs = EnvironmentVersion, t.environments, t.job_environments

    async def lock(self, version: EnvironmentVersion) -> str:
        """Returns the lock of a version: every package with its hashes."""
        e = t.environments
        mine = (e.c.cluster == version.cluster, e.c.name == version.name, e.c.number == version.number)
        async with self._database.read() as db:
            return str((await db.execute(select(e.c.lock).where(*mine))).scalar_one())

    async def add(self, version: EnvironmentVersion, lock: str) -> None:
        """Adds a version."""
        await self._insert(version, lock=lock)

    async def record_request(self, version: EnvironmentVersion, request: str) -> None:
        """Records that the version is also what was asked for by `request`, a request_digest()."""
        await self._update(version, request=request)
