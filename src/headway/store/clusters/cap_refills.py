"""When the GPU-hours that count against each team's cap were last set to zero."""

from __future__ import annotations

from sqlalchemy import delete, insert, select, update

from headway.store.db import billing_schema as ledger
from headway.store.db import schema as t
from headway.store.db.transactions import StorePart


class CapRefills(StorePart):
    async def of_cluster(self, cluster: str) -> dict[str, float]:
        """When each team's GPU-hours were last set back to zero, unix seconds."""
        async with self._database.read() as db:
            rows = await db.execute(select(t.refills.c.team, t.refills.c.at).where(t.refills.c.cluster == cluster))
            return {row.team: row.at for row in rows}

    async def record(self, cluster: str, team: str, at: float) -> None:
        async with self._database.write() as db:
            mine = (t.refills.c.cluster == cluster, t.refills.c.team == team)
            await db.execute(delete(t.refills).where(*mine))
            await db.execute(insert(t.refills).values(cluster=cluster, team=team, at=at))

    async def revert_to(self, cluster: str, at: float) -> None:
        """Slurm's limits and usage are again those of that moment: teams that were set back since may be due again, and whose
        jobs are held back is not known."""
        r, b = t.refills, ledger.budget_notes
        async with self._database.write() as db:
            await db.execute(update(r).where(r.c.cluster == cluster, r.c.at > at).values(at=at))
            await db.execute(delete(b).where(b.c.cluster == cluster))
