"""Stores when the GPU-hours that count against each team's cap were last reset to zero."""

from __future__ import annotations

from sqlalchemy import delete, insert, select, update

from headway.store.db import billing_schema as ledger
from headway.store.db import cluster_schema as t
from headway.store.db.transactions import StorePart


class GpuHourCapResetStore(StorePart):
    """Records when the GPU-hours of teams were reset."""

    async def of_cluster(self, cluster: str) -> dict[str, float]:
        """Returns when each team's GPU-hours were last reset to zero, in unix seconds."""
        async with self._database.read() as db:
            rows = await db.execute(select(t.refills.c.team, t.refills.c.at).where(t.refills.c.cluster == cluster))
            return {row.team: row.at for row in rows}

    async def record(self, cluster: str, team: str, at: float) -> None:
        """Records that a team's GPU-hours were reset at `at`, unix seconds."""
        async with self._database.write() as db:
            mine = (t.refills.c.cluster == cluster, t.refills.c.team == team)
            await db.execute(delete(t.refills).where(*mine))
            await db.execute(insert(t.refills).values(cluster=cluster, team=team, at=at))

    async def revert_to(self, cluster: str, at: float) -> None:
        """Adjusts the records after Slurm's limits and usage were restored to their state at `at` (unix seconds).

        Teams that were reset after that time may have to be reset again. Which teams are capped is unknown, so the
        budget notes are deleted."""
        r, b = t.refills, ledger.budget_notes
        async with self._database.write() as db:
            await db.execute(update(r).where(r.c.cluster == cluster, r.c.at > at).values(at=at))
            await db.execute(delete(b).where(b.c.cluster == cluster))
