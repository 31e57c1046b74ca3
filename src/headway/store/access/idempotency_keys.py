"""Stored responses to requests with an idempotency key, kept for a day: a repeated request gets the stored response
and is not carried out again."""

from __future__ import annotations

from typing import NamedTuple

from sqlalchemy import delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from headway.store.db import cluster_schema as t
from headway.store.db.transactions import StorePart

# The helper on the head (node/user_helper/idempotency.py) and sweeps (services/sweeps/rounds.py) have shorter ones.
IDEMPOTENCY_KEPT_S = 86400.0


class Answer(NamedTuple):
    """A stored response. `status` is 0 while the request is in progress, and also if its `server` stopped before it
    was done."""

    request: str
    status: int
    answer: str
    at: float
    server: int


class IdempotencyKeyStore(StorePart):
    """Stores the responses by key."""

    async def begin(self, name: str, request: str) -> Answer | None:
        """Returns None if this is the first request with that name, and marks it as in progress; else returns the
        earlier entry."""
        a, now = t.answers, self._database.now()
        begun = {
            "id": name,
            "request": request,
            "at": now,
            "status": 0,
            "answer": "",
            "server": self._database.server_locks.number,
        }
        try:
            async with self._database.write() as db:
                await db.execute(delete(a).where(a.c.at <= now - IDEMPOTENCY_KEPT_S))
                await db.execute(insert(a).values(begun))
        except IntegrityError:
            return await self.get(name)
        return None

    async def get(self, name: str) -> Answer | None:
        """Returns the entry of that name, or None."""
        a = t.answers
        query = select(a.c.request, a.c.status, a.c.answer, a.c.at, a.c.server).where(a.c.id == name)
        async with self._database.read() as db:
            row = (await db.execute(query)).first()
        return Answer(*row) if row else None

    async def take_over(self, name: str, server: int) -> bool:
        """Returns whether this server may now carry out the request, which was in progress on the server with that
        number."""
        a = t.answers
        async with self._database.write() as db:
            taken = await db.execute(
                update(a)
                .where(a.c.id == name, a.c.server == server, a.c.status == 0)
                .values(server=self._database.server_locks.number)
            )
        return bool(taken.rowcount)

    async def finish(self, name: str, status: int, answer: str) -> None:
        """Stores the response."""
        async with self._database.write() as db:
            await db.execute(update(t.answers).where(t.answers.c.id == name).values(status=status, answer=answer))

    async def delete(self, name: str) -> None:
        """Deletes the entry: the request was not carried out and may be repeated."""
        async with self._database.write() as db:
            await db.execute(delete(t.answers).where(t.answers.c.id == name))
