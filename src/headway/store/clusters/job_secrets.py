"""Secrets of jobs, encrypted. Every change of a cluster's secrets has a number, its revision, so that an older state never
replaces a newer one on a head."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from sqlalchemy import ColumnElement, Table, and_, delete, false, func, insert, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from headway.domain.access.job_secret import OwnerKind, SecretDelivery, SecretOwner
from headway.domain.access.job_secret_limits import MOST_FORMER_PER_OWNER
from headway.errors import Refused
from headway.store.access.audit import add_audit_line
from headway.store.db import access_schema as t
from headway.store.db.rows import JobSecretRow
from headway.store.db.sealing import SecretBox
from headway.store.db.transactions import Database, StorePart

FORMER_KEPT_S = 90 * 86400
DELIVERIES_KEPT_S = 30 * 86400


class JobSecretStore(StorePart):
    """Stores encrypted secrets by cluster, owner and name."""

    def __init__(self, database: Database, box: SecretBox) -> None:
        super().__init__(database)
        self._box = box

    def value_of(self, row: JobSecretRow) -> str:
        """Returns the value of a stored secret."""
        return self._box.open(sealed_for(row.cluster, row.secret_owner, row.name), row.sealed)

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
        query = select(s).where(s.c.cluster == cluster, _owned_by(s, owners)).order_by(*_ORDER)
        async with self._database.read() as db:
            return tuple(_row(row._mapping) for row in await db.execute(query))

    async def values_to_mask(self, cluster: str, *owners: SecretOwner) -> tuple[JobSecretRow, ...]:
        """Returns the secrets of these owners, also those that were replaced or removed within FORMER_KEPT_S, the latest
        MOST_FORMER_PER_OWNER of each."""
        f = t.former_job_secrets
        former = select(*_COLUMNS).where(
            f.c.cluster == cluster, _owned_by(f, owners), f.c.at >= self._database.now() - FORMER_KEPT_S
        )
        async with self._database.read() as db:
            rows = [_row(row._mapping) for row in await db.execute(former)]
        return (*await self.of_owners(cluster, *owners), *rows)

    async def revisions(self) -> dict[str, int]:
        """Returns the revision of each cluster that has or had secrets."""
        async with self._database.read() as db:
            return {row.cluster: row.revision for row in await db.execute(select(t.job_secret_revisions))}

    async def put(
        self, cluster: str, owner: SecretOwner, name: str, value: str, person: str, most: int
    ) -> JobSecretRow:
        """Stores a secret; replaces an earlier one of this name. Raises Refused if the owner has `most` others."""
        s = t.job_secrets
        async with self._database.write() as db:
            mine = (s.c.cluster == cluster, _owned_by(s, [owner]))
            others = select(func.count()).select_from(s).where(*mine, s.c.name != name)
            if (await db.execute(others)).scalar_one() >= most:
                raise Refused(
                    f"{owner} has {most} secrets on {cluster}, the most that are stored",
                    hint=f"remove one: headway secret rm {cluster} NAME",
                )
            now = self._database.now()
            await _retire(db, now, *mine, s.c.name == name)
            sealed = await self._box.seal(db, sealed_for(cluster, owner, name), value)
            row = JobSecretRow(cluster, owner.kind, owner.name, name, sealed, person, now)
            await db.execute(
                insert(s).values(
                    cluster=cluster, kind=owner.kind.value, owner=owner.name, name=name, sealed=sealed,
                    person=person, at=row.at,
                )
            )  # fmt: skip
            await _count_change(db, now, cluster)
            return row

    async def remove(self, cluster: str, owner: SecretOwner, name: str) -> JobSecretRow | None:
        """Removes a secret and returns it; None if there was none."""
        s = t.job_secrets
        async with self._database.write() as db:
            now = self._database.now()
            removed = await _retire(db, now, s.c.cluster == cluster, _owned_by(s, [owner]), s.c.name == name)
            if removed:
                await _count_change(db, now, cluster)
            return removed[0] if removed else None

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


async def remove_secrets_of_user(db: AsyncConnection, now: float, user: str) -> None:
    """Removes a Linux user's secrets from all clusters, within a write transaction: the person who had this Linux user has
    it no longer, and the next one must not get them."""
    s = t.job_secrets
    removed = await _retire(db, now, s.c.kind == OwnerKind.USER.value, s.c.owner == user)
    for cluster in {row.cluster for row in removed}:
        await _count_change(db, now, cluster)


async def _retire(db: AsyncConnection, now: float, *where: ColumnElement[bool]) -> list[JobSecretRow]:
    """Moves secrets to the former ones and returns them. Deletes former ones that are too old or too many."""
    s, f = t.job_secrets, t.former_job_secrets
    rows = [_row(row._mapping) for row in await db.execute(select(s).where(*where))]
    await db.execute(delete(f).where(f.c.at < now - FORMER_KEPT_S))
    if not rows:
        return rows
    await db.execute(insert(f), [{**asdict(row), "kind": row.kind.value, "at": now} for row in rows])
    await db.execute(delete(s).where(*where))
    for cluster, owner in {(row.cluster, row.secret_owner) for row in rows}:
        mine = (f.c.cluster == cluster, _owned_by(f, [owner]))
        kept = select(f.c.number).where(*mine).order_by(f.c.number.desc()).limit(MOST_FORMER_PER_OWNER)
        await db.execute(delete(f).where(*mine, f.c.number.not_in(kept)))
    return rows


async def _count_change(db: AsyncConnection, now: float, cluster: str) -> None:
    """Counts a change. Revisions are milliseconds since 1970 where that is higher, so that they grow even if the database
    was restored from an older copy."""
    r, before = t.job_secret_revisions, await _revision(db, cluster)
    after = max(before + 1, int(now * 1000))
    if before:
        await db.execute(update(r).where(r.c.cluster == cluster).values(revision=after))
    else:
        await db.execute(insert(r).values(cluster=cluster, revision=after))


_COLUMNS = tuple(t.former_job_secrets.c[column.name] for column in t.job_secrets.c)
_ORDER = (t.job_secrets.c.name, t.job_secrets.c.kind, t.job_secrets.c.owner)


def _owned_by(table: Table, owners: Sequence[SecretOwner]) -> ColumnElement[bool]:
    """Returns the condition that a row belongs to one of these owners."""
    c = table.c
    return or_(false(), *(and_(c.kind == owner.kind.value, c.owner == owner.name) for owner in owners))


async def _revision(db: AsyncConnection, cluster: str) -> int:
    r = t.job_secret_revisions
    return int((await db.execute(select(r.c.revision).where(r.c.cluster == cluster))).scalar() or 0)


def sealed_for(cluster: str, owner: SecretOwner, name: str) -> str:
    """Returns what a secret of jobs is sealed for."""
    return f"job secret {name} of {owner.kind.value} {owner.name} on {cluster}"  # unambiguous: no name has a space


def _row(values: object) -> JobSecretRow:
    fields = dict(values)  # type: ignore[call-overload]
    return JobSecretRow(**{**fields, "kind": OwnerKind(fields["kind"])})
