"""The budget level that each team was last notified of, and which teams are capped."""

from __future__ import annotations

from sqlalchemy import delete, insert, select

from headway.store.db import billing_schema as t
from headway.store.db.transactions import StorePart


class BudgetStore(StorePart):
    """Stores the budget level of each team."""

    async def get(self, cluster: str, team: str, start: int) -> tuple[str, bool]:
        """Returns (last level the team was notified of in this period, whether its jobs are held back); ("", False) if
        none was."""
        b = t.budget_notes
        query = select(b.c.level, b.c.capped).where(b.c.cluster == cluster, b.c.team == team, b.c.start == start)
        async with self._database.read() as db:
            row = (await db.execute(query)).first()
        return (row.level, row.capped) if row else ("", False)

    async def record(self, cluster: str, team: str, start: int, level: str, *, capped: bool) -> None:
        """Records the level for the period that began at `start`; older periods of the team are deleted."""
        b = t.budget_notes
        async with self._database.write() as db:
            await db.execute(delete(b).where(b.c.cluster == cluster, b.c.team == team))
            values = {"cluster": cluster, "team": team, "start": start, "level": level, "capped": capped}
            await db.execute(insert(b).values(**values))

    async def capped_teams(self, cluster: str) -> frozenset[str]:
        """Returns the teams that have used up their budget, so that none of their jobs may start."""
        b = t.budget_notes
        async with self._database.read() as db:
            rows = await db.execute(select(b.c.team).where(b.c.cluster == cluster, b.c.capped.is_(True)))
            return frozenset(name for (name,) in rows)
