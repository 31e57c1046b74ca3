"""Linux users: the uid of each name, which is the same on all clusters, and which names were ever used on which
cluster."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from sqlalchemy import insert, select
from sqlalchemy.exc import IntegrityError

from headway.errors import Refused
from headway.store.db import cluster_schema as t
from headway.store.db.transactions import StorePart

FIRST_UID = 20_000
LAST_UID = 59_999  # a larger uid comes from another directory and does not affect which uid is assigned next


class LinuxUidStore(StorePart):
    """Assigns uids and records the Linux users of each cluster."""

    async def assign_uids(
        self, names: Iterable[str], *, give: bool = True, wishes: Mapping[str, int] | None = None
    ) -> dict[str, int]:
        """Returns the uid of each name. Uids are assigned in ascending order from FIRST_UID and are never reused for
        another name.

        With `give=False` nothing is assigned: a new name gets the uid that it would be assigned now. `wishes`:
        preferred uids for new names, used if they are free. Raises Refused if no uid is left."""
        users = sorted(set(names))
        if not users:
            return {}
        async with self._database.read() as db:
            known = await self._query_uids(db, users)
        if len(known) == len(users):
            return known
        async with self._database.write() if give else self._database.read() as db:
            known = await self._query_uids(db, users)
            taken = {row.uid for row in await db.execute(select(t.uids.c.uid))}
            for name, uid in _new_uids([name for name in users if name not in known], taken, wishes or {}):
                if give:
                    await db.execute(insert(t.uids).values(name=name, uid=uid))
                known[name] = uid
        return known

    async def known_uids(self, names: Iterable[str]) -> dict[str, int]:
        """Returns the uids of those of the names that have one."""
        async with self._database.read() as db:
            return await self._query_uids(db, sorted(set(names)))

    async def _query_uids(self, db: Any, names: list[str]) -> dict[str, int]:
        found: dict[str, int] = {}
        for start in range(0, len(names), 500):  # SQLite limits the number of parameters
            part = names[start : start + 500]
            rows = await db.execute(select(t.uids.c.name, t.uids.c.uid).where(t.uids.c.name.in_(part)))
            found |= {row.name: row.uid for row in rows}
        return found

    async def of_cluster(self, cluster: str) -> set[str]:
        """Returns every name that was ever used on the cluster."""
        async with self._database.read() as db:
            rows = await db.execute(select(t.cluster_users.c.name).where(t.cluster_users.c.cluster == cluster))
            return {row.name for row in rows}

    async def add_to_cluster(self, cluster: str, names: Iterable[str]) -> None:
        """Records that these names are used on the cluster."""
        new = sorted(set(names) - await self.of_cluster(cluster))
        for name in new:
            try:
                async with self._database.write() as db:
                    await db.execute(insert(t.cluster_users).values(cluster=cluster, name=name))
            except IntegrityError:
                continue  # another server has just recorded it


def _new_uids(names: Iterable[str], taken: set[int], wishes: Mapping[str, int]) -> Iterator[tuple[str, int]]:
    """Yields a uid for each name: the preferred one if it is free, else the next one after the last assigned uid, else
    any free one before that. Raises Refused if none is left."""
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
            raise Refused(f"no uid is left for {name}: all from {FIRST_UID} to {LAST_UID} are used")
        used.add(uid)
        yield name, uid
