"""Secrets of jobs, encrypted. Every change of a cluster's secrets has a number, its revision, so that an older state never
replaces a newer one on a head."""

from __future__ import annotations

from sqlalchemy import ColumnElement, delete, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from headway.domain.access.job_secret import OwnerKind, SecretDelivery, SecretOwner
from headway.errors import Refused
from headway.store.access.audit import add_audit_line
from headway.store.db import schema as t
from headway.store.db.rows import JobSecretRow
from headway.store.db.transactions import StorePart

FORMER_KEPT_S = 90 * 86400
DELIVERIES_KEPT_S = 30 * 86400


class JobSecrets(StorePart):
    """Stores encrypted secrets by cluster, owner and name."""

    async def of_cluster(self, cluster: str) -> tuple[int, tuple[JobSecretRow, ...]]:
        """Returns (revision, all secrets) of a cluster; revision 0 if it never had one."""
        async with self._database.read() as db:
            # First: a change in between is then delivered again under its own, higher revision.
            number = await _revision(db, cluster)
            rows = await db.execute(select(t.job_secrets).where(t.job_secrets.c.cluster == cluster).order_by(*_ORDER))
            return number, tuple(_row(row._mapping) for row in rows)

    async def of_owners(self, cluster: str, *owners: SecretOwner) -> tuple[JobSecretRow, ...]:
        """Returns the secrets of these owners."""
        s = t.job_secrets
        wanted = {(owner.kind.value, owner.name) for owner in owners}
        names = {owner.name for owner in owners}
        query = select(s).where(s.c.cluster == cluster, s.c.owner.in_(names)).order_by(*_ORDER)
        async with self._database.read() as db:
            rows = [_row(row._mapping) for row in await db.execute(query)]
        return tuple(row for row in rows if (row.kind.value, row.owner) in wanted)

    async def values_to_mask(self, cluster: str, *owners: SecretOwner) -> tuple[JobSecretRow, ...]:
        """Returns the secrets of these owners, also those that were replaced or removed within FORMER_KEPT_S."""
        f = t.former_job_secrets
        wanted = {(owner.kind.value, owner.name) for owner in owners}
        names = {owner.name for owner in owners}
        former = select(*_COLUMNS).where(
            f.c.cluster == cluster, f.c.owner.in_(names), f.c.at >= self._database.now() - FORMER_KEPT_S
        )
        async with self._database.read() as db:
            rows = [_row(row._mapping) for row in await db.execute(former)]
        rows = [row for row in rows if (row.kind.value, row.owner) in wanted]
        return (*await self.of_owners(cluster, *owners), *rows)

    async def forget_former(self) -> None:
        """Deletes replaced and removed secrets, because their key is lost."""
        async with self._database.write() as db:
            await db.execute(delete(t.former_job_secrets))

    async def revisions(self) -> dict[str, int]:
        """Returns the revision of each cluster that has or had secrets."""
        async with self._database.read() as db:
            return {row.cluster: row.revision for row in await db.execute(select(t.job_secret_revisions))}

    async def is_empty(self) -> bool:
        """Returns whether no cluster has a secret."""
        async with self._database.read() as db:
            return (await db.execute(select(t.job_secrets.c.name).limit(1))).first() is None

    async def put(
        self, cluster: str, owner: SecretOwner, name: str, sealed: str, person: str, most: int
    ) -> JobSecretRow:
        """Stores a secret; replaces an earlier one of this name. Raises Refused if the owner has `most` others."""
        s = t.job_secrets
        async with self._database.write() as db:
            mine = (s.c.cluster == cluster, s.c.kind == owner.kind.value, s.c.owner == owner.name)
            others = select(func.count()).select_from(s).where(*mine, s.c.name != name)
            if (await db.execute(others)).scalar_one() >= most:
                raise Refused(
                    f"{owner} has {most} secrets on {cluster}, the most that are stored",
                    hint=f"remove one: headway secret rm {cluster} NAME",
                )
            await self._retire(db, *mine, s.c.name == name)
            row = JobSecretRow(cluster, owner.kind, owner.name, name, sealed, person, self._database.now())
            await db.execute(
                insert(s).values(
                    cluster=cluster, kind=owner.kind.value, owner=owner.name, name=name, sealed=sealed,
                    person=person, at=row.at,
                )
            )  # fmt: skip
            await self._change(db, cluster)
            return row

    async def remove(self, cluster: str, owner: SecretOwner, name: str) -> bool:
        """Removes a secret; returns whether there was one."""
        s = t.job_secrets
        async with self._database.write() as db:
            mine = (s.c.cluster == cluster, s.c.kind == owner.kind.value, s.c.owner == owner.name)
            if found := await self._retire(db, *mine, s.c.name == name):
                await self._change(db, cluster)
            return found

    async def remove_user(self, user: str) -> None:
        """Removes a Linux user's secrets from all clusters."""
        s = t.job_secrets
        mine = (s.c.kind == OwnerKind.USER.value, s.c.owner == user)
        async with self._database.write() as db:
            clusters = [row.cluster for row in await db.execute(select(s.c.cluster).where(*mine).distinct())]
            await self._retire(db, *mine)
            for cluster in clusters:
                await self._change(db, cluster)

    async def record_delivery(self, cluster: str, delivery: SecretDelivery) -> None:
        """Writes the audit line of a job that got secrets, once. Does nothing for a delivery of more than DELIVERIES_KEPT_S
        ago, which may be recorded already."""
        d, now = t.job_secret_deliveries, self._database.now()
        mine = (d.c.cluster == cluster, d.c.id == delivery.id)
        async with self._database.read() as db:
            known = (await db.execute(select(d.c.id).where(*mine))).first() is not None
        if known or delivery.at < now - DELIVERIES_KEPT_S:
            return
        detail = {"job": delivery.job, "user": delivery.user, "secrets": list(delivery.names)}
        async with self._database.write() as db:
            if (await db.execute(select(d.c.id).where(*mine))).first() is not None:
                return
            await db.execute(delete(d).where(d.c.cluster == cluster, d.c.at < now - DELIVERIES_KEPT_S))
            await db.execute(insert(d).values(cluster=cluster, id=delivery.id, at=delivery.at))
            await add_audit_line(db, now, "", "secret.deliver", cluster, detail)

    async def _retire(self, db: AsyncConnection, *where: ColumnElement[bool]) -> bool:
        """Moves secrets to the former ones; returns whether there was one. Deletes former ones that are too old."""
        s, f, now = t.job_secrets, t.former_job_secrets, self._database.now()
        rows = [dict(row._mapping) for row in await db.execute(select(s).where(*where))]
        await db.execute(delete(f).where(f.c.at < now - FORMER_KEPT_S))
        if rows:
            await db.execute(insert(f), [{**row, "at": now} for row in rows])
            await db.execute(delete(s).where(*where))
        return bool(rows)

    async def _change(self, db: AsyncConnection, cluster: str) -> None:
        """Counts a change. Revisions are milliseconds since 1970 where that is higher, so that they grow even if the
        database was restored from an older copy."""
        r, before = t.job_secret_revisions, await _revision(db, cluster)
        after = max(before + 1, int(self._database.now() * 1000))
        if before:
            await db.execute(update(r).where(r.c.cluster == cluster).values(revision=after))
        else:
            await db.execute(insert(r).values(cluster=cluster, revision=after))


_COLUMNS = tuple(t.former_job_secrets.c[column.name] for column in t.job_secrets.c)
_ORDER = (t.job_secrets.c.name, t.job_secrets.c.kind, t.job_secrets.c.owner)


async def _revision(db: AsyncConnection, cluster: str) -> int:
    r = t.job_secret_revisions
    return int((await db.execute(select(r.c.revision).where(r.c.cluster == cluster))).scalar() or 0)


def _row(values: object) -> JobSecretRow:
    fields = dict(values)  # type: ignore[call-overload]
    return JobSecretRow(**{**fields, "kind": OwnerKind(fields["kind"])})
