"""Locked Linux users: those of people who are disabled or removed. What the clusters must still do about them, and about people
whose teams the sign-in provider has changed, is stored too, so that it is done after an outage of a cluster or of the server."""

from __future__ import annotations

from sqlalchemy import delete, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from headway.store.db import access_schema as access
from headway.store.db import cluster_schema as t
from headway.store.db.rows import DueUserChange, Person
from headway.store.db.transactions import StorePart


async def lock_user(db: AsyncConnection, user: str, by: str, now: float) -> None:
    """Locks a Linux user, within a write transaction. `by` is the person who caused it."""
    known = await db.execute(select(access.locked_users.c.user).where(access.locked_users.c.user == user))
    if user and known.first() is None:
        await db.execute(insert(access.locked_users).values(user=user, at=now))
        await _add_due_locks(db, user, by, now)


async def unlock_user(db: AsyncConnection, user: str, by: str, now: float) -> None:
    """Unlocks a Linux user, within a write transaction. A user that is not locked stays as it is."""
    gone = await db.execute(delete(access.locked_users).where(access.locked_users.c.user == user))
    if gone.rowcount:
        await _add_due_locks(db, user, by, now)


async def change_teams(db: AsyncConnection, before: Person, after: Person, by: str, now: float) -> None:
    """Records which clusters must put the person's Linux user into other teams of the sign-in provider, within a write
    transaction. A Linux user that the person no longer has leaves all of them. `by` is the person who caused it."""
    if before.linux_user == after.linux_user:
        changed = {after.linux_user: {*before.provider_teams} ^ {*after.provider_teams}}
    else:
        changed = {before.linux_user: {*before.provider_teams}, after.linux_user: {*after.provider_teams}}
    clusters = (await db.execute(select(t.clusters.c.name))).scalars().all()
    for user, teams in changed.items():
        where = {team.rpartition("/")[0] for team in teams}
        for cluster in clusters if user else ():
            if where & {"", cluster}:
                await _add_due(db, cluster, user, "teams", by, now)


async def _add_due_locks(db: AsyncConnection, user: str, by: str, now: float) -> None:
    """Records that each cluster that ever had this user must set or lift the lock."""
    c = t.cluster_users.c
    for cluster in (await db.execute(select(c.cluster).where(c.name == user))).scalars().all():
        await _add_due(db, cluster, user, "lock", by, now)


async def _add_due(db: AsyncConnection, cluster: str, user: str, cause: str, by: str, now: float) -> None:
    d = access.due_user_changes
    await db.execute(delete(d).where(d.c.cluster == cluster, d.c.user == user))
    values = {"cluster": cluster, "user": user, "at": now, "cause": cause, "person": by}
    await db.execute(insert(d).values(values | {"tries": 0, "error": "", "done_at": None}))


class UserChangeStore(StorePart):
    """Reads which Linux users are locked, and keeps what clusters must still do about users."""

    async def locked(self) -> frozenset[str]:
        """Returns the locked Linux users."""
        async with self._database.read() as db:
            return frozenset((await db.execute(select(access.locked_users.c.user))).scalars())

    async def due(self) -> tuple[DueUserChange, ...]:
        """Returns what clusters must still do, the oldest first."""
        d = access.due_user_changes
        async with self._database.read() as db:
            rows = await db.execute(select(d).order_by(d.c.at, d.c.cluster, d.c.user))
            return tuple(DueUserChange(**row._mapping) for row in rows)

    async def record_try(self, row: DueUserChange, *, error: str = "", done_at: float | None = None) -> None:
        """Records a try: why it failed, or when it was done. What was changed again meanwhile stays due."""
        d = access.due_user_changes
        async with self._database.write() as db:
            mine = (d.c.cluster == row.cluster, d.c.user == row.user, d.c.at == row.at)
            await db.execute(update(d).where(*mine).values(tries=d.c.tries + 1, error=error[:500], done_at=done_at))

    async def finish(self, row: DueUserChange) -> None:
        """Deletes what is done for good. What was changed again meanwhile stays due."""
        d = access.due_user_changes
        async with self._database.write() as db:
            await db.execute(delete(d).where(d.c.cluster == row.cluster, d.c.user == row.user, d.c.at == row.at))
