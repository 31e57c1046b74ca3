"""Notifications to people, each sent once."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import select, update

from headway.domain.billing.ledger import Notification
from headway.store.db import billing_schema as t
from headway.store.db.transactions import StorePart, insert_into


class NotificationStore(StorePart):
    """Stores notifications and whether they were sent."""

    async def add(self, cluster: str, notification: Notification) -> None:
        """Adds a notification to be sent; does nothing if one with its key exists."""
        n = t.notifications
        values = {name: getattr(notification, name) for name in Notification.__dataclass_fields__}
        async with self._database.write() as db:
            await db.execute(insert_into(db, n).values(cluster=cluster, told_at=0, **values).on_conflict_do_nothing())

    async def exists(self, cluster: str, key: str) -> bool:
        """Returns whether a notification with this key exists."""
        n = t.notifications
        async with self._database.read() as db:
            found = await db.execute(select(n.c.key).where(n.c.cluster == cluster, n.c.key == key))
            return found.first() is not None

    async def pending(self, cluster: str, since: int) -> list[Notification]:
        """Returns notifications that were not sent yet, the oldest first; those older than `since` are omitted because
        they are outdated."""
        n = t.notifications
        query = select(*(n.c[name] for name in Notification.__dataclass_fields__))
        async with self._database.read() as db:
            rows = await db.execute(
                query.where(n.c.cluster == cluster, n.c.told_at == 0, n.c.at >= since).order_by(n.c.at, n.c.key)
            )
            return [Notification(*row) for row in rows]

    async def mark_sent(self, cluster: str, keys: Iterable[str], at: int) -> None:
        """Records when these notifications were sent."""
        n = t.notifications
        async with self._database.write() as db:
            await db.execute(update(n).where(n.c.cluster == cluster, n.c.key.in_(list(keys))).values(told_at=at))
