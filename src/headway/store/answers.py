"""Answers to requests that carry a key of their own, kept for a day: who sends one again gets the answer, not the deed."""

from __future__ import annotations

from sqlalchemy import delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from headway.store import schema as t
from headway.store.base import Base

KEPT_S = 86400.0


class AnswerStore(Base):
    async def begin_answer(self, name: str, request: str) -> tuple[str, int, str] | None:
        """None when this is the first of that name, which is now under way; else (request, status, answer) of the one
        before, whose status is 0 while it is under way or was cut off."""
        now = self._now()
        try:
            async with self._write() as db:
                await db.execute(delete(t.answers).where(t.answers.c.at <= now - KEPT_S))
                await db.execute(insert(t.answers).values(id=name, request=request, at=now, status=0, answer=""))
        except IntegrityError:
            async with self._read() as db:
                row = (await db.execute(select(t.answers).where(t.answers.c.id == name))).first()
            return (row.request, row.status, row.answer) if row else None
        return None

    async def end_answer(self, name: str, status: int, answer: str) -> None:
        async with self._write() as db:
            await db.execute(update(t.answers).where(t.answers.c.id == name).values(status=status, answer=answer))

    async def drop_answer(self, name: str) -> None:
        """It was not done, and may be asked for again."""
        async with self._write() as db:
            await db.execute(delete(t.answers).where(t.answers.c.id == name))
