"""Clusters, their secrets and the people ever on them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from sqlalchemy import delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from headway.errors import Refused
from headway.store.db import billing_schema as ledger
from headway.store.db import schema as t
from headway.store.db.rows import ClusterRow
from headway.store.db.transactions import Base

FIRST_UID = 20_000
LAST_UID = 59_999  # a larger one is another directory's, and says nothing of where ours go on


class ClusterStore(Base):
    async def save_cluster(
        self,
        name: str,
        document: Mapping[str, Any] | None = None,
        *,
        summary: Mapping[str, Any] | None = None,
        state: str | None = None,
        owner: str = "",
    ) -> None:
        """Makes the cluster's row, or changes what is given of it. A new row needs a document."""
        given: dict[str, Any] = {}
        if document is not None:
            given["document"] = dict(document)
        if summary is not None:
            given["summary"] = dict(summary)
        if state is not None:
            given["state"] = state
        if owner:
            given["owner"] = owner
        if not given:
            return
        async with self._write() as db:
            changed = await db.execute(update(t.clusters).where(t.clusters.c.name == name).values(**given))
            if changed.rowcount or document is None:
                return
            defaults = {"summary": {}, "state": "creating", "owner": "", "created_at": self._now()}
            await db.execute(insert(t.clusters).values(**{**defaults, **given, "name": name}))

    async def cluster(self, name: str) -> ClusterRow | None:
        async with self._read() as db:
            row = (await db.execute(select(t.clusters).where(t.clusters.c.name == name))).first()
        return ClusterRow(**row._mapping) if row else None

    async def clusters(self) -> tuple[ClusterRow, ...]:
        async with self._read() as db:
            rows = await db.execute(select(t.clusters).order_by(t.clusters.c.name))
            return tuple(ClusterRow(**row._mapping) for row in rows)

    async def forget_cluster(self, name: str, *, delete_data: bool = False) -> None:
        """Removes the row. Secrets stay for a later cluster of this name that finds the kept data, unless
        `delete_data`. Uids always stay."""
        async with self._write() as db:
            await db.execute(delete(t.clusters).where(t.clusters.c.name == name))
            await db.execute(delete(t.notebooks).where(t.notebooks.c.cluster == name))
            await db.execute(delete(t.node_images).where(t.node_images.c.cluster == name))
            if delete_data:
                await db.execute(delete(t.secrets).where(t.secrets.c.cluster == name))
                await db.execute(delete(t.cluster_users).where(t.cluster_users.c.cluster == name))
                await db.execute(delete(t.volume_speeds).where(t.volume_speeds.c.cluster == name))
                await db.execute(delete(t.refills).where(t.refills.c.cluster == name))
                await db.execute(delete(ledger.budget_notes).where(ledger.budget_notes.c.cluster == name))
                # A new cluster of this name counts its jobs from 1 again.
                await db.execute(delete(ledger.job_saves).where(ledger.job_saves.c.cluster == name))
                await db.execute(delete(t.jobs).where(t.jobs.c.cluster == name))
                await db.execute(delete(t.datasets).where(t.datasets.c.cluster == name))
                await db.execute(delete(t.job_datasets).where(t.job_datasets.c.cluster == name))
                await db.execute(delete(t.pipelines).where(t.pipelines.c.cluster == name))
                await db.execute(delete(t.signals).where(t.signals.c.cluster == name))
                await db.execute(delete(t.incidents).where(t.incidents.c.cluster == name))

    # --- secrets

    async def secrets(self, cluster: str) -> dict[str, str]:
        async with self._read() as db:
            rows = await db.execute(select(t.secrets.c.name, t.secrets.c.value).where(t.secrets.c.cluster == cluster))
            return {row.name: row.value for row in rows}

    async def put_secret(self, cluster: str, name: str, value: str) -> str:
        """Keeps the value unless there is one; returns the one that is kept. The first writer wins."""
        where = (t.secrets.c.cluster == cluster, t.secrets.c.name == name)
        try:
            async with self._write() as db:
                kept = (await db.execute(select(t.secrets.c.value).where(*where))).scalar()
                if kept is not None:
                    return str(kept)
                await db.execute(insert(t.secrets).values(cluster=cluster, name=name, value=value))
                return value
        except IntegrityError:  # another server was faster (PostgreSQL)
            async with self._read() as db:
                return str((await db.execute(select(t.secrets.c.value).where(*where))).scalar_one())

    # --- caps

    async def refills(self, cluster: str) -> dict[str, float]:
        """When each team's GPU-hours were last set back to zero, unix seconds."""
        async with self._read() as db:
            rows = await db.execute(select(t.refills.c.team, t.refills.c.at).where(t.refills.c.cluster == cluster))
            return {row.team: row.at for row in rows}

    async def note_refill(self, cluster: str, team: str, at: float) -> None:
        async with self._write() as db:
            mine = (t.refills.c.cluster == cluster, t.refills.c.team == team)
            await db.execute(delete(t.refills).where(*mine))
            await db.execute(insert(t.refills).values(cluster=cluster, team=team, at=at))

    async def caps_of(self, cluster: str, at: float) -> None:
        """Slurm's limits and usage are again those of that moment: teams that were set back since may be due again, and whose
        jobs are held back is not known."""
        r, b = t.refills, ledger.budget_notes
        async with self._write() as db:
            await db.execute(update(r).where(r.c.cluster == cluster, r.c.at > at).values(at=at))
            await db.execute(delete(b).where(b.c.cluster == cluster))

    # --- people on machines

    async def uids(
        self, names: Iterable[str], *, give: bool = True, wishes: Mapping[str, int] | None = None
    ) -> dict[str, int]:
        """The uid of each name, given out in order from FIRST_UID on and never used for another name. Without `give` a
        new name shows the uid it would be given now, and gets none. `wishes`: uids for new names, where nobody has them."""
        wanted = sorted(set(names))
        if not wanted:
            return {}
        async with self._read() as db:
            known = await self._known(db, wanted)
        if len(known) == len(wanted):
            return known
        async with self._write() if give else self._read() as db:
            known = await self._known(db, wanted)
            taken = {row.uid for row in await db.execute(select(t.uids.c.uid))}
            for name, uid in _new_uids([name for name in wanted if name not in known], taken, wishes or {}):
                if give:
                    await db.execute(insert(t.uids).values(name=name, uid=uid))
                known[name] = uid
        return known

    async def given_uids(self, names: Iterable[str]) -> dict[str, int]:
        """Of those of these names that have one."""
        async with self._read() as db:
            return await self._known(db, sorted(set(names)))

    async def _known(self, db: Any, names: list[str]) -> dict[str, int]:
        found: dict[str, int] = {}
        for start in range(0, len(names), 500):  # SQLite takes a bounded number of parameters
            part = names[start : start + 500]
            rows = await db.execute(select(t.uids.c.name, t.uids.c.uid).where(t.uids.c.name.in_(part)))
            found |= {row.name: row.uid for row in rows}
        return found

    async def users_of(self, cluster: str) -> set[str]:
        """Everybody who was ever on the cluster."""
        async with self._read() as db:
            rows = await db.execute(select(t.cluster_users.c.name).where(t.cluster_users.c.cluster == cluster))
            return {row.name for row in rows}

    async def note_users(self, cluster: str, names: Iterable[str]) -> None:
        new = sorted(set(names) - await self.users_of(cluster))
        for name in new:
            try:
                async with self._write() as db:
                    await db.execute(insert(t.cluster_users).values(cluster=cluster, name=name))
            except IntegrityError:
                continue  # noted meanwhile


def _new_uids(names: Iterable[str], taken: set[int], wishes: Mapping[str, int]) -> Iterator[tuple[str, int]]:
    """In order behind the last one that was given, then what is free before it; a wish goes before. Raises Refused."""
    used = set(taken)
    rest = []
    for name in names:
        uid = wishes.get(name)
        if uid is None or uid in used:
            rest.append(name)
            continue
        used.add(uid)
        yield name, uid
    following = max((uid for uid in taken if FIRST_UID <= uid <= LAST_UID), default=FIRST_UID - 1) + 1
    free = (uid for uid in (*range(following, LAST_UID + 1), *range(FIRST_UID, following)) if uid not in used)
    for name in rest:
        uid = next(free, None)
        if uid is None:
            raise Refused(f"no uid is left for {name}: those from {FIRST_UID} to {LAST_UID} have all been given")
        used.add(uid)
        yield name, uid
