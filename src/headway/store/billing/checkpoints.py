"""Checkpoint times that training jobs reported."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlalchemy import select

from headway.domain.billing.ledger import CheckpointStats
from headway.store.billing.runs import upsert
from headway.store.db import billing_schema as t
from headway.store.db.transactions import StorePart

_JOBS_AT_ONCE = 500  # jobs per query


class CheckpointStore(StorePart):
    """Stores the checkpoint totals of each job."""

    async def record(self, cluster: str, saves: Mapping[int, CheckpointStats], at: int) -> None:
        """Stores the totals that training jobs reported. A job's stored totals stay if the new ones are smaller, which
        happens when its first reports were deleted."""
        known = await self.of_jobs(cluster, list(saves))
        rows = [
            {
                "cluster": cluster,
                "job": job,
                "at": at,
                "saves": stats.count,
                "stalled_s": stats.stalled_s,
                "up_s": stats.up_s,
            }
            for job, stats in saves.items()
            if job not in known or (stats.count, stats.up_s) > (known[job].count, known[job].up_s)
        ]
        if rows:
            async with self._database.write() as db:
                await db.execute(upsert(db, t.job_saves, ("cluster", "job")), rows)

    async def of_jobs(self, cluster: str, jobs: Sequence[int]) -> dict[int, CheckpointStats]:
        """Returns the stored totals of these jobs."""
        s, found = t.job_saves, {}
        async with self._database.read() as db:
            for i in range(0, len(jobs), _JOBS_AT_ONCE):
                mine = (s.c.cluster == cluster, self._database.is_one_of(s.c.job, jobs[i : i + _JOBS_AT_ONCE]))
                for row in await db.execute(select(s).where(*mine)):
                    found[row.job] = CheckpointStats(row.saves, row.stalled_s, row.up_s)
        return found
