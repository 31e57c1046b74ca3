"""Which budget level each team was told of, and which teams are capped."""

from __future__ import annotations

from sqlalchemy import delete, insert, select

from headway.store.db import billing_schema as t
from headway.store.db.transactions import StorePart


class Budgets(StorePart):
    async def get(self, cluster: str, team: str, start: int) -> tuple[str, bool]:
        """(level that was told in this period, whether its jobs are held back); ("", False) before anything was."""
        b = t.budget_notes
        query = select(b.c.level, b.c.capped).where(b.c.cluster == cluster, b.c.team == team, b.c.start == start)
        async with self._database.read() as db:
            row = (await db.execute(query)).first()
        return (row.level, row.capped) if row else ("", False)

    async def record(self, cluster: str, team: str, start: int, level: str, *, capped: bool) -> None:
        """Of the period that began then; older ones are forgotten."""
        b = t.budget_notes
        async with self._database.write() as db:
            await db.execute(delete(b).where(b.c.cluster == cluster, b.c.team == team))
            values = {"cluster": cluster, "team": team, "start": start, "level": level, "capped": capped}
            await db.execute(insert(b).values(**values))

    async def capped_teams(self, cluster: str) -> frozenset[str]:
        """Teams whose budget is spent: none of their jobs starts."""
        b = t.budget_notes
        async with self._database.read() as db:
            rows = await db.execute(select(b.c.team).where(b.c.cluster == cluster, b.c.capped.is_(True)))
            return frozenset(name for (name,) in rows)
