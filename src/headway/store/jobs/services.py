"""Services, their replicas and their keys."""

from __future__ import annotations

import secrets as random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from sqlalchemy import delete, insert, select, update

from headway.errors import Conflict, NotFound
from headway.store.access.credential_cache import digest
from headway.store.db import service_schema as t
from headway.store.db.service_rows import ReplicaRow, ServiceEventRow, ServiceKeyRow, ServiceRow
from headway.store.db.transactions import StorePart

_KEY_PREFIX = "hws_"
_MOST_OF_NAME = 100  # services with one name that are read
KEPT_EVENTS_S = 30 * 86_400.0
KEPT_EVENTS = 1000  # of a service
KEPT_REPLICAS = 50  # ended replicas of a service that are read


class ServiceStore(StorePart):
    """Stores services."""

    async def put(
        self,
        cluster: str,
        team: str,
        name: str,
        *,
        person: str,
        user: str,
        document: Mapping[str, Any],
        least: int,
        most: int,
    ) -> ServiceRow:
        """Stores a service, or a new version of the running one with this team and name if its document, but for the mark of its
        folders, has changed. Keys of an earlier service with this team and name, of another user, are revoked. Raises
        Conflict if the running one belongs to another user."""
        s, now = t.services, self._database.now()
        named = (s.c.cluster == cluster, s.c.team == team, s.c.name == name)
        async with self._database.write() as db:
            found = (await db.execute(select(s).where(*named, s.c.ended_at.is_(None)).with_for_update())).first()
            if found is None:
                last = select(s.c.user).where(*named).order_by(s.c.ended_at.desc()).limit(1)
                if (await db.execute(last)).scalar() != user:
                    k = t.service_keys
                    mine = (k.c.cluster == cluster, k.c.service == f"{team}:{name}", k.c.revoked_at.is_(None))
                    await db.execute(update(k).where(*mine).values(revoked_at=now))
                row = ServiceRow(
                    f"v-{random.token_hex(4)}", cluster, team, name, person, user, now, dict(document), 1, "running", "",
                    least, most, least, None, None,
                )  # fmt: skip
                await db.execute(insert(s).values(**asdict(row)))
                return row
            row = ServiceRow(**found._mapping)
            if row.user != user:
                raise Conflict(f"{team}/{name} runs already, as {row.user}", hint="choose another name")
            if row.state != "running":
                raise Conflict(
                    f"{team}/{name} is being stopped", hint="try again when headway serve ls no longer lists it"
                )
            changes: dict[str, Any] = {"least": least, "most": most}
            if {**row.document, "mark": ""} != {**document, "mark": ""}:
                changes |= {"document": dict(document), "version": row.version + 1}
            await db.execute(update(s).where(s.c.id == row.id).values(**changes))
            return ServiceRow(**{**asdict(row), **changes})

    async def get(self, cluster: str, service: str) -> ServiceRow:
        """Returns a service by its id, by TEAM:NAME or by its name; if none that has it runs, the latest. Raises NotFound, and
        Conflict if several with this name run."""
        s = t.services
        team, _, name = service.rpartition(":")
        mine = (s.c.name == name) & (s.c.team == team) if team else (s.c.name == service)
        query = select(s).where(s.c.cluster == cluster, mine | (s.c.id == service))
        async with self._database.read() as db:
            result = await db.execute(query.order_by(s.c.ended_at.is_not(None), s.c.at.desc()).limit(_MOST_OF_NAME))
            found = [ServiceRow(**row._mapping) for row in result]
        if not found:
            raise NotFound(f"{cluster} has no service {service!r}", hint="headway serve ls")
        running = sorted(f"{row.team}/{row.name}" for row in found if row.ended_at is None)
        if len(running) > 1:
            raise Conflict(f"several services have the name {service}", hint=f"give one of {', '.join(running)}")
        return found[0]

    async def running(self, cluster: str | None = None) -> tuple[ServiceRow, ...]:
        """Returns the services that have not ended, of one cluster or of all, by team and name."""
        s = t.services
        query = select(s).where(s.c.ended_at.is_(None)).order_by(s.c.cluster, s.c.team, s.c.name)
        if cluster is not None:
            query = query.where(s.c.cluster == cluster)
        async with self._database.read() as db:
            return tuple(ServiceRow(**row._mapping) for row in await db.execute(query))

    async def change(self, service: str, **values: Any) -> None:
        """Stores fields of a service: least, most, wanted, low_since, why."""
        s = t.services
        async with self._database.write() as db:
            await db.execute(update(s).where(s.c.id == service).values(**values))

    async def log_event(self, cluster: str, service: str, text: str) -> None:
        """Stores a decision about a service, and deletes all but the latest 1,000."""
        e, now = t.service_events, self._database.now()
        async with self._database.write() as db:
            await db.execute(insert(e).values(cluster=cluster, service=service, at=now, text=text))
            numbers = select(e.c.number).where(e.c.service == service).order_by(e.c.number.desc())
            last = (await db.execute(numbers.offset(KEPT_EVENTS).limit(1))).scalar()
            if last is not None:
                await db.execute(delete(e).where(e.c.service == service, e.c.number <= last))

    async def delete_old_events(self) -> None:
        """Deletes what was decided about all services more than 30 days ago."""
        e = t.service_events
        async with self._database.write() as db:
            await db.execute(delete(e).where(e.c.at < self._database.now() - KEPT_EVENTS_S))

    async def events(self, service: str, latest: int) -> tuple[ServiceEventRow, ...]:
        """Returns the latest decisions about a service, the newest first."""
        e = t.service_events
        query = select(e.c.at, e.c.text).where(e.c.service == service).order_by(e.c.number.desc()).limit(latest)
        async with self._database.read() as db:
            return tuple(ServiceEventRow(row.at, row.text) for row in await db.execute(query))

    async def stop(self, service: str, why: str) -> bool:
        """Stores that a running service is to end. Returns False if that was stored before."""
        s = t.services
        stopping = update(s).where(s.c.id == service, s.c.state == "running").values(state="stopped", why=why)
        async with self._database.write() as db:
            return (await db.execute(stopping)).rowcount > 0

    async def close(self, service: str) -> None:
        """Stores that a stopped service has no replicas any more."""
        await self.change(service, ended_at=self._database.now())

    async def replicas(self, *services: str) -> tuple[ReplicaRow, ...]:
        """Returns the replicas of these services that have not ended, and the latest that have, by number."""
        r = t.service_replicas
        found: list[ReplicaRow] = []
        async with self._database.read() as db:
            for service in services:
                query = select(r).where(r.c.service == service)
                there = await db.execute(query.where(r.c.ended_at.is_(None)))
                ended = await db.execute(
                    query.where(r.c.ended_at.is_not(None)).order_by(r.c.number.desc()).limit(KEPT_REPLICAS)
                )
                rows = [ReplicaRow(**row._mapping) for result in (there, ended) for row in result]
                found += sorted(rows, key=lambda row: row.number)
        return tuple(found)

    async def jobs_of_replicas(self, service: str, start: float) -> list[int]:
        """Returns the jobs of all replicas of a service that had not ended at this time."""
        r = t.service_replicas
        mine = (r.c.service == service, r.c.job_id != 0, r.c.ended_at.is_(None) | (r.c.ended_at >= start))
        async with self._database.read() as db:
            return list((await db.execute(select(r.c.job_id).where(*mine))).scalars())

    async def add_replicas(self, replicas: Sequence[ReplicaRow]) -> None:
        """Stores new replicas."""
        if replicas:
            async with self._database.write() as db:
                await db.execute(insert(t.service_replicas), [asdict(replica) for replica in replicas])

    async def update_replicas(self, replicas: Iterable[ReplicaRow]) -> None:
        """Stores what has changed of replicas, all in one transaction."""
        r = t.service_replicas
        async with self._database.write() as db:
            for replica in replicas:
                fields = asdict(replica)
                mine = (r.c.service == fields.pop("service"), r.c.number == fields.pop("number"))
                await db.execute(update(r).where(*mine).values(**fields))

    async def create_key(
        self, cluster: str, service: str, label: str, person: str, per_minute: int | None = None
    ) -> tuple[ServiceKeyRow, str]:
        """Returns (the key's row, the key itself, which is not stored). `service`: TEAM:NAME; `per_minute`: requests."""
        text = f"{_KEY_PREFIX}{random.token_urlsafe(32)}"
        now = self._database.now()
        row = ServiceKeyRow(random.token_hex(6), cluster, service, label, digest(text), person, now, None, per_minute)
        async with self._database.write() as db:
            await db.execute(insert(t.service_keys).values(**asdict(row)))
        return row, text

    async def keys(self, cluster: str, service: str = "") -> tuple[ServiceKeyRow, ...]:
        """Returns the keys of a cluster's services, or of one, that were not revoked, the oldest first."""
        k = t.service_keys
        query = select(k).where(k.c.cluster == cluster, k.c.revoked_at.is_(None)).order_by(k.c.at)
        if service:
            query = query.where(k.c.service == service)
        async with self._database.read() as db:
            return tuple(ServiceKeyRow(**row._mapping) for row in await db.execute(query))

    async def revoke_key(self, cluster: str, service: str, key: str) -> None:
        """Revokes a key of a service. Raises NotFound."""
        k = t.service_keys
        mine = (k.c.cluster == cluster, k.c.service == service, k.c.id == key, k.c.revoked_at.is_(None))
        async with self._database.write() as db:
            if not (await db.execute(update(k).where(*mine).values(revoked_at=self._database.now()))).rowcount:
                raise NotFound(f"{service.replace(':', '/')} has no key {key!r}", hint="headway serve key ls")
