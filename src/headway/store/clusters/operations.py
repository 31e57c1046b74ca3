"""Operations: the queue of applies and downs, their leases and their events.

An operation runs under a lease. Only the oldest unfinished operation of a cluster can be claimed, so a second apply
waits for the first and never runs at the same time. A unique index enforces this in the database as well. An operation
that does not concern the whole cluster has a `subject`, and waits only for operations of the same subject.
"""

from __future__ import annotations

import secrets as random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row, and_, case, delete, exists, func, insert, or_, select, tuple_, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from headway.domain.operation_kinds import SECRET_PREFIXES, OperationKind, own_secret
from headway.errors import Conflict, NotFound
from headway.store.access.idempotency_keys import IDEMPOTENCY_KEPT_S
from headway.store.clusters.secrets import ClusterSecretStore
from headway.store.db import cluster_schema as t
from headway.store.db.rows import Operation, OperationEvent
from headway.store.db.transactions import Database, StorePart

MAX_ATTEMPTS = 5  # an operation is not tried again after its server stopped this often while running it
UNFINISHED = ("queued", "running")


@dataclass(frozen=True, slots=True)
class OperationAsk:
    """A filter for operations; "" and empty collections mean no restriction."""

    cluster: str = ""
    kinds: Collection[str] = ()
    states: Collection[str] = ()
    people: Collection[str] = ()


class OperationStore(StorePart):
    """Stores operations, their leases and their events."""

    def __init__(self, database: Database, secrets: ClusterSecretStore) -> None:
        super().__init__(database)
        self._secrets = secrets

    async def enqueue(
        self,
        cluster: str,
        kind: str,
        person: str,
        *,
        document: Mapping[str, Any] | None = None,
        params: Mapping[str, Any] | None = None,
        subject: str = "",
        secret: str = "",
        key: str = "",
    ) -> Operation:
        """Adds an operation to the end of the queue of its cluster and subject.

        `secret`: stored for this operation only, until it has ended, under the name from own_secret(). `key`:
        idempotency key; the same request with the same key within a day returns this operation (`by_key`). Raises
        Conflict if the key or the secret's name is already used by a different operation."""
        operation_id, now = f"op-{random.token_hex(6)}", self._database.now()
        row = {
            "id": operation_id,
            "cluster": cluster,
            "subject": subject,
            "kind": kind,
            "person": person,
            "document": dict(document or {}),
            "params": dict(params or {}),
            "state": "queued",
            "created_at": now,
            "kept": [],
            "key": key or None,
        }
        name = own_secret(kind, params or {})
        try:
            async with self._database.write() as db:
                if key:
                    a_day_old = and_(t.operations.c.key == key, t.operations.c.created_at <= now - IDEMPOTENCY_KEPT_S)
                    await db.execute(update(t.operations).where(a_day_old).values(key=None))
                if secret:
                    await self._secrets.insert(db, cluster, name, secret)
                await db.execute(insert(t.operations).values(row))
        except IntegrityError as error:
            found = await self.by_key(key) if key else None
            if found is None or not _same(found, cluster, kind, document or {}, params or {}):
                raise Conflict(f"this {kind} of {cluster} is requested already", hint="headway status") from error
            return found
        return await self.get(operation_id)

    async def get(self, operation_id: str) -> Operation:
        """Returns an operation. Raises NotFound if it does not exist."""
        async with self._database.read() as db:
            row = (await db.execute(select(t.operations).where(t.operations.c.id == operation_id))).first()
        if row is None:
            raise NotFound(f"no operation {operation_id!r}")
        return _operation(row)

    async def by_key(self, key: str) -> Operation | None:
        """Returns the operation queued by the request with this key, or None."""
        async with self._database.read() as db:
            row = (await db.execute(select(t.operations).where(t.operations.c.key == key))).first()
        return _operation(row) if row else None

    async def recent(self, cluster: str = "", *, limit: int = 50) -> tuple[Operation, ...]:
        """Returns operations, the latest first."""
        query = select(t.operations).order_by(t.operations.c.number.desc()).limit(limit)
        if cluster:
            query = query.where(t.operations.c.cluster == cluster)
        async with self._database.read() as db:
            return tuple(_operation(row) for row in await db.execute(query))

    async def queued(self, cluster: str, subject: str = "") -> tuple[Operation, ...]:
        """Returns the operations of this subject, "" = of the whole cluster, that wait for their turn, the oldest
        first."""
        o = t.operations.c
        query = select(t.operations).where(o.cluster == cluster, o.subject == subject, o.state == "queued")
        async with self._database.read() as db:
            return tuple(_operation(row) for row in await db.execute(query.order_by(o.number)))

    async def search(
        self, filters: OperationAsk, *, after: tuple[Any, ...] | None = None, limit: int
    ) -> tuple[Operation, ...]:
        """Returns matching operations, the latest first, without their documents and params. `after`: (created_at, id)
        of the last one of the previous page."""
        o = t.operations.c
        query = select(*(column for column in o if column.name not in ("document", "params")))
        if filters.cluster:
            query = query.where(o.cluster == filters.cluster)
        for column, values in ((o.kind, filters.kinds), (o.state, filters.states), (o.person, filters.people)):
            if values:
                query = query.where(column.in_(sorted(values)))
        if after is not None:
            query = query.where(tuple_(o.created_at, o.id) < tuple_(*after))
        async with self._database.read() as db:
            rows = await db.execute(query.order_by(o.created_at.desc(), o.id.desc()).limit(limit))
            return tuple(_operation(row) for row in rows)

    async def last_down(self, cluster: str) -> Operation | None:
        """Returns the operation that last took down a cluster of this name, or None; its document describes that
        cluster."""
        o = t.operations
        query = select(o).where(o.c.cluster == cluster, o.c.kind == OperationKind.DOWN, o.c.state == "done")
        async with self._database.read() as db:
            row = (await db.execute(query.order_by(o.c.number.desc()).limit(1))).first()
        return _operation(row) if row else None

    async def data_deletion_times(self, cluster: str) -> tuple[float, ...]:
        """Returns when clusters of this name were taken down with their data, in ascending order. After each of these
        times, job numbers start at 1 again."""
        o = t.operations
        query = select(o.c.finished_at, o.c.params).where(
            o.c.cluster == cluster, o.c.kind == OperationKind.DOWN, o.c.state == "done"
        )
        async with self._database.read() as db:
            rows = await db.execute(query)
            return tuple(sorted(at for at, params in rows if params.get("delete_data")))

    async def latest_scheduled_backup(self, cluster: str, state: str = "") -> Operation | None:
        """Returns the latest backup that was started by the schedule in the cluster file, or None. `state`: only this
        state."""
        o = t.operations
        query = select(o).where(
            o.c.cluster == cluster, o.c.kind == OperationKind.BACKUP, o.c.params["keep"].as_integer() > 0
        )
        query = query.where(o.c.state == state) if state else query
        async with self._database.read() as db:
            row = (await db.execute(query.order_by(o.c.number.desc()).limit(1))).first()
        return _operation(row) if row else None

    async def active(self, cluster: str, subject: str = "") -> Operation | None:
        """Returns the oldest unfinished operation of this subject, "" = of the whole cluster, or None."""
        o = t.operations.c
        query = (
            select(t.operations)
            .where(o.cluster == cluster, o.subject == subject, o.state.in_(UNFINISHED))
            .order_by(t.operations.c.number)
            .limit(1)
        )
        async with self._database.read() as db:
            row = (await db.execute(query)).first()
        return _operation(row) if row else None

    async def claim(
        self, owner: str, now: float, lease_s: float, running: Collection[str] = frozenset()
    ) -> Operation | None:
        """Takes the next operation that may run: a queued one, or a running one whose lease has expired.

        Returns None if there is none or if another server took it at the same moment. `running`: ids of the operations
        that the owner is running now; their leases may look expired after the machine slept."""
        o, earlier = t.operations, t.operations.alias("earlier")
        same = and_(earlier.c.cluster == o.c.cluster, earlier.c.subject == o.c.subject)
        first_in_line = ~exists().where(same, earlier.c.state.in_(UNFINISHED), earlier.c.number < o.c.number)
        alone = ~exists().where(same, earlier.c.state == "running", earlier.c.number != o.c.number)
        passed = and_(o.c.state == "running", o.c.lease_until < now, o.c.id.not_in(running))
        free = or_(o.c.state == "queued", passed)
        candidate = select(o.c.number).where(free, first_in_line, alone).order_by(o.c.number).limit(1)
        async with self._database.read() as db:  # usually there is nothing to do: avoid the write lock in that case
            if (await db.execute(select(o.c.number).where(free).limit(1))).first() is None:
                return None
        try:
            async with self._database.write() as db:
                number = (await db.execute(candidate)).scalar()
                if number is None:
                    return None
                taken = await db.execute(
                    update(o)
                    .where(o.c.number == number, free)
                    .values(
                        state="running",
                        lease_owner=owner,
                        lease_until=now + lease_s,
                        attempts=o.c.attempts + 1,
                        started_at=func.coalesce(
                            o.c.started_at, self._database.now()
                        ),  # `now` may be earlier than the end of the previous operation
                    )
                )
                if not taken.rowcount:
                    return None
                row = (await db.execute(select(o).where(o.c.number == number))).one()
                return _operation(row)
        except IntegrityError:
            return None

    async def renew(self, operation_id: str, owner: str, until: float, *, steady: bool = False) -> bool:
        """Extends the lease to `until`; returns whether this owner still held it. `steady`: the operation has run long
        enough that it is not what makes servers stop, so its attempts are reset to 1."""
        o = t.operations
        values = {"lease_until": until, **({"attempts": 1} if steady else {})}
        async with self._database.write() as db:
            done = await db.execute(
                update(o)
                .where(o.c.id == operation_id, o.c.lease_owner == owner, o.c.state == "running")
                .values(**values)
            )
        return bool(done.rowcount)

    async def finish(
        self,
        operation_id: str,
        owner: str,
        state: str,
        *,
        error: Mapping[str, Any] | None = None,
        kept: Sequence[str] = (),
    ) -> bool:
        """Ends the operation as "done" or "failed" and deletes its secret. Returns False, and writes nothing, if the
        lease was lost, because another server is running the operation now."""
        o = t.operations
        async with self._database.write() as db:
            ended = await db.execute(
                update(o)
                .where(o.c.id == operation_id, o.c.lease_owner == owner, o.c.state == "running")
                .values(
                    state=state,
                    finished_at=self._database.now(),
                    error=None if error is None else dict(error),
                    kept=list(kept),
                    lease_until=0.0,
                )
            )
            if ended.rowcount:
                row = (await db.execute(select(o).where(o.c.id == operation_id))).one()
                await _forget(db, row.cluster, _operation(row).secret)
        return bool(ended.rowcount)

    async def delete_orphaned_secrets(self) -> int:
        """Deletes the secrets of operations that have ended or were never queued; returns how many."""
        s = t.secrets
        theirs = or_(*(s.c.name.startswith(prefix, autoescape=True) for prefix in SECRET_PREFIXES))
        unfinished = select(t.operations).where(t.operations.c.state.in_(UNFINISHED))
        # Read the secrets first: each was written together with its operation.
        async with self._database.write() as db:
            there = {(row.cluster, row.name) for row in await db.execute(select(s.c.cluster, s.c.name).where(theirs))}
            needed = {
                (operation.cluster, operation.secret) for operation in map(_operation, await db.execute(unfinished))
            }
            for cluster, name in there - needed:
                await _forget(db, cluster, name)
        return len(there - needed)

    async def expire_leases(self, owner_prefix: str) -> int:
        """Expires the leases of owners that are known to have stopped (this server holds the lock of their state
        folder); returns how many."""
        o = t.operations
        async with self._database.write() as db:
            freed = await db.execute(
                update(o)
                .where(o.c.state == "running", o.c.lease_owner.startswith(owner_prefix, autoescape=True))
                .values(lease_until=0.0)
            )
        return int(freed.rowcount)

    async def release_leases(self, owner: str) -> int:
        """Expires the leases of an owner that shuts down normally; returns how many. The attempt is not counted as a
        crash, but the counter stays at 1 or more, so the next owner can see that the operation was started before."""
        o = t.operations
        async with self._database.write() as db:
            freed = await db.execute(
                update(o)
                .where(o.c.state == "running", o.c.lease_owner == owner)
                .values(lease_until=0.0, attempts=case((o.c.attempts > 1, o.c.attempts - 1), else_=1))
            )
        return int(freed.rowcount)

    async def add_event(
        self,
        operation_id: str,
        step: str,
        text: str,
        *,
        level: str = "info",
        done: bool = False,
        seconds: float | None = None,
    ) -> OperationEvent:
        """Adds an event with the next number."""
        e = t.events
        # The text may be a program's output; PostgreSQL does not store NUL bytes in text.
        at, text = self._database.now(), text.replace("\0", "")
        async with self._database.write() as db:
            last = (await db.execute(select(func.max(e.c.seq)).where(e.c.operation == operation_id))).scalar()
            event = OperationEvent((last or 0) + 1, at, step[:200], text, level, done, seconds)
            await db.execute(
                insert(e).values(
                    operation=operation_id,
                    seq=event.seq,
                    at=at,
                    step=event.step,
                    text=text,
                    level=level,
                    done=done,
                    seconds=seconds,
                )
            )
        return event

    async def events_after(self, operation_id: str, seq: int = 0, *, limit: int = 1000) -> tuple[OperationEvent, ...]:
        """Returns the events with numbers above `seq`, in order."""
        e = t.events
        query = select(e).where(e.c.operation == operation_id, e.c.seq > seq).order_by(e.c.seq).limit(limit)
        async with self._database.read() as db:
            return tuple(
                OperationEvent(r.seq, r.at, r.step, r.text, r.level, r.done, r.seconds) for r in await db.execute(query)
            )


async def _forget(db: AsyncConnection, cluster: str, name: str) -> None:
    await db.execute(delete(t.secrets).where(t.secrets.c.cluster == cluster, t.secrets.c.name == name))


def _same(
    operation: Operation, cluster: str, kind: str, document: Mapping[str, Any], params: Mapping[str, Any]
) -> bool:
    """Returns whether the operation is the same as the one requested now. Values that differ with every request (a
    salt, a generated name) are ignored."""

    def relevant(values: Mapping[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in values.items() if name not in ("ref", "header")}

    return (operation.cluster, operation.kind, operation.document or {}, relevant(operation.params)) == (
        cluster,
        kind,
        dict(document),
        relevant(params),
    )


def _operation(row: Row[Any]) -> Operation:
    fields = dict(row._mapping)
    fields["kind"] = OperationKind(fields["kind"])
    fields["kept"] = tuple(fields["kept"] or ())
    del fields["key"]  # only for the client that made the request
    return Operation(**{"document": {}, "params": {}, **fields})
