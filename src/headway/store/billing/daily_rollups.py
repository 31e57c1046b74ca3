"""Daily sums of the ledger. Reports read the sums of past days instead of every run. A write that changes a day's
input deletes that day's sums in the same transaction, and the server computes them again later: a sum is either right
or missing, and reports are the same with and without it. Days are UTC."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise

from sqlalchemy import and_, delete, func, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from headway.domain.billing.ledger import DAY_S
from headway.store.db import billing_schema as t
from headway.store.db.transactions import StorePart, insert_into

RUNS = "runs"  # sums over the runs that began in the day and have ended
HOURS = "hours"  # what was allocated in each half hour of the day
_EVER = 2**40  # later than any real time
_BATCH = 500
_HOLDS = ("nodes", "kind", "gpus", "units")
_ADDS = ("first", "eligible", "cpus", "lost_s", "idle_s", "measured_s", "energy_j", "cpu_measured_s")
Part = tuple[int, int, str]  # job, start, group: the key of a row of runs
# End (or _EVER), values of _HOLDS, values of _ADDS.
Facts = dict[Part, tuple[int, tuple[object, ...], tuple[object, ...]]]
SUMS = (t.summed_days, t.run_days, t.allocated_gpu_days, t.touched_days)


async def forget_sums(db: AsyncConnection, cluster: str) -> None:
    """Deletes all daily sums of a cluster."""
    kinds = select(t.run_kinds.c.id).where(t.run_kinds.c.cluster == cluster)
    for table in SUMS:
        mine = table.c.kind.in_(kinds) if table is t.run_days else table.c.cluster == cluster
        await db.execute(delete(table).where(mine))


def days_between(days: Sequence[int], start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yields the parts of the time from `start` to `end` that are not in these days, each of which lies entirely in
    that time."""
    edges = [start, *(edge for day in sorted(days) for edge in (day, day + DAY_S)), end]
    return ((low, high) for low, high in list(pairwise(edges))[::2] if low < high)


class DailyRollupStore(StorePart):
    """Tracks which days have valid sums."""

    async def missing_days(self, cluster: str, what: str, until: int) -> list[int]:
        """Returns the days that ended by `until` and have no sums, from the first run on, the latest first."""
        r, s = t.runs, t.summed_days
        async with self._database.read() as db:
            first = (await db.execute(select(func.min(r.c.start)).where(r.c.cluster == cluster))).scalar()
            known = select(s.c.day).where(s.c.cluster == cluster, s.c.what == what, s.c.last_end >= 0)
            there = {day for (day,) in await db.execute(known)}
        days = range(until, until) if first is None else range(first // DAY_S * DAY_S, until - DAY_S + 1, DAY_S)
        return [day for day in reversed(days) if day not in there]

    async def kept_days(
        self, db: AsyncConnection, cluster: str, what: str, start: int, end: int, ended_by: int = _EVER
    ) -> list[int]:
        """Returns the days from `start` to `end` whose sums are valid and whose runs had all ended by `ended_by`."""
        s = t.summed_days
        mine = (s.c.cluster == cluster, s.c.what == what, s.c.day >= start, s.c.day <= end - DAY_S)
        query = select(s.c.day).where(*mine, s.c.last_end.between(0, ended_by)).order_by(s.c.day)
        return [day for (day,) in await db.execute(query)]

    async def mark_day(self, db: AsyncConnection, cluster: str, what: str, day: int, last_end: int) -> None:
        """Records a day. `last_end`: the latest end of its runs, or -1 while the sums are being computed."""
        values = {"cluster": cluster, "what": what, "day": day, "last_end": last_end}
        made = insert_into(db, t.summed_days).values(**values)
        await db.execute(
            made.on_conflict_do_update(index_elements=["cluster", "what", "day"], set_={"last_end": last_end})
        )

    async def finish_day(self, db: AsyncConnection, cluster: str, what: str, day: int) -> bool:
        """Marks a day's sums as valid. Returns False if data they depend on was written since they were begun."""
        s = t.summed_days
        mine = (s.c.cluster == cluster, s.c.what == what, s.c.day == day, s.c.last_end == -1)
        return bool((await db.execute(update(s).where(*mine).values(last_end=0))).rowcount)

    @asynccontextmanager
    async def invalidating(
        self, db: AsyncConnection, cluster: str, jobs: Iterable[int], *, ended: bool = False
    ) -> AsyncIterator[None]:
        """Invalidates the daily sums that a write changes. Every write to the runs of `jobs` must happen inside this
        context.

        `ended`: compare only rows of runs that have ended, for writes that change nothing in the other rows that sums
        include."""
        numbers = sorted(set(jobs))
        before = await self._run_facts(db, cluster, numbers, ended)
        yield
        after = await self._run_facts(db, cluster, numbers, ended)
        began: set[int] = set()
        spans: list[tuple[int, int]] = []
        for part in before.keys() | after.keys():
            was, is_ = before.get(part), after.get(part)
            if was != is_:
                start, ends = part[1], [one[0] for one in (was, is_) if one]
                if min(ends) < _EVER:
                    began.add(start // DAY_S * DAY_S)
                if was is None or is_ is None or was[1] != is_[1]:
                    spans.append((start, max(ends)))
                elif ends[0] != ends[1]:
                    spans.append((min(ends), max(ends)))
        await self._drop_days(db, cluster, RUNS, began, _EVER)
        days = {
            day
            for start, end in spans
            if end < _EVER
            for day in range(start // DAY_S * DAY_S, max(end, start + 1), DAY_S)
        }
        still = min((start for start, end in spans if end >= _EVER), default=_EVER)
        await self._drop_days(db, cluster, HOURS, days, still)

    async def _drop_days(self, db: AsyncConnection, cluster: str, what: str, days: Iterable[int], since: int) -> None:
        """Invalidates these days, and every day that was not over at `since`."""
        s, sorted_days = t.summed_days, sorted(days)
        if not sorted_days and since >= _EVER:
            return
        mine = and_(s.c.cluster == cluster, s.c.what == what)
        these = self._database.is_one_of(s.c.day, sorted_days)
        await db.execute(delete(s).where(mine, or_(s.c.day > since - DAY_S, these)))

    async def _run_facts(self, db: AsyncConnection, cluster: str, jobs: Sequence[int], ended: bool) -> Facts:
        r, found = t.runs, Facts()
        columns = [r.c[name] for name in ("job", "start", "group", "end", *_HOLDS, *_ADDS)]
        query, split = select(*columns).where(r.c.cluster == cluster), 4 + len(_HOLDS)
        if ended:
            query = query.where(r.c.end > 0)
        for at in range(0, len(jobs), _BATCH):
            for row in await db.execute(query.where(self._database.is_one_of(r.c.job, jobs[at : at + _BATCH]))):
                found[row[0], row[1], row[2]] = (row[3] or _EVER, tuple(row[4:split]), tuple(row[split:]))
        return found
