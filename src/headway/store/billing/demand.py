"""What jobs used and how long they waited, by day, team and size: the input of forecasts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import BigInteger, ColumnElement, and_, case, cast, func, literal, or_, select

from headway.store.billing.run_sums import RunSumStore, integer_quotient
from headway.store.db import billing_schema as t
from headway.store.db.transactions import Database, StorePart

_M, _H, _D = 60, 3600, 86400
# Seconds; each step is at most twice the one before it
WAITS = (
    0, 1, 2, 5, 10, 15, 20, 30, 45, _M, 90, 2 * _M, 3 * _M, 4 * _M, 5 * _M, 6 * _M, 8 * _M, 10 * _M, 15 * _M, 20 * _M, 30 * _M,
    45 * _M, _H, 90 * _M, 2 * _H, 3 * _H, 4 * _H, 5 * _H, 6 * _H, 8 * _H, 10 * _H, 12 * _H, 18 * _H, _D, 36 * _H, 2 * _D, 3 * _D,
    4 * _D, 5 * _D, 7 * _D, 10 * _D, 14 * _D, 21 * _D, 30 * _D, 60 * _D,
)  # fmt: skip
Key = tuple[str, int, str]  # team, index of the size, group
Sums = dict[int, tuple[float, float]]


class DemandReports(StorePart):
    """Sums over runs with GPUs, by day. The parts of a run on several groups of nodes count as runs of their own in the sizes."""

    def __init__(self, database: Database, sums: RunSumStore) -> None:
        super().__init__(database)
        self._sums = sums

    async def first_start(self, cluster: str) -> int | None:
        """Returns the start of the first run, None without any."""
        r = t.runs
        async with self._database.read() as db:
            found = (await db.execute(select(func.min(r.c.start)).where(r.c.cluster == cluster))).scalar()
        return None if found is None else int(found)

    async def gpu_changes(
        self, cluster: str, marks: range, sizes: Sequence[int], now: int
    ) -> tuple[Mapping[Key, Sums], Mapping[Key, Sums]]:
        """Returns the GPUs of runs that began, and of those that ended, in each interval between two marks: (team, index in
        `sizes`, group) to {interval: (GPUs, sum of GPUs times seconds since the first mark)}; interval -1 is before the first
        mark. `sizes` are the smallest numbers of GPUs of each size. Runs that have not ended count as ending at `now`."""
        k, r = t.run_kinds, t.runs
        first, last = marks[0], marks[-1]
        low = await self._sums.earliest_start(cluster, first)
        ended = case((r.c.end == 0, self._sums.most(literal(now), r.c.start)), else_=r.c.end)
        during = and_(r.c.start >= low, r.c.start < last, or_(r.c.end > first, r.c.end == 0))
        found: list[dict[Key, Sums]] = []
        async with self._database.read() as db:
            for moment, within in ((r.c.start, during), (ended, and_(during, ended < last))):
                of = case((moment < first, literal(-1)), else_=integer_quotient(moment - first, marks.step))
                both = (of + 1) * len(sizes) + _size_index(r.c.gpus, sizes)  # group by one number, which is faster
                query = (
                    select(k.c.team, k.c.group, both, func.sum(r.c.gpus), func.sum(r.c.gpus * (moment - first)))
                    .select_from(k.join(r, r.c.kind == k.c.id))
                    .where(k.c.cluster == cluster, k.c.gpu_type != "", r.c.cluster == cluster, within)
                    .group_by(k.c.team, k.c.group, both)
                )
                sums: dict[Key, Sums] = {}
                for team, group, number, gpus, moments in await db.execute(query):
                    interval, size = divmod(int(number), len(sizes))
                    sums.setdefault((team, size, group), {})[interval - 1] = (float(gpus), float(moments))
                found.append(sums)
        return found[0], found[1]

    async def waits(self, cluster: str, marks: range, sizes: Sequence[int]) -> list[tuple[int, str, int, int, int]]:
        """Returns (interval, team, index in `sizes`, seconds waited, number of runs) of the runs that began between the marks.
        Waits are rounded down to the steps of WAITS, so that the answer does not grow with the number of runs."""
        k, r = t.run_kinds, t.runs
        waited = r.c.start - r.c.eligible
        rounded = case(*((waited >= least, literal(least)) for least in reversed(WAITS)), else_=literal(0))
        interval = integer_quotient(r.c.start - marks[0], marks.step)
        both = interval * len(sizes) + _size_index(r.c.gpus, sizes)
        query = (
            select(k.c.team, both, rounded, func.count())
            .select_from(k.join(r, r.c.kind == k.c.id))
            .where(k.c.cluster == cluster, r.c.cluster == cluster, k.c.gpu_type != "", r.c.first == 1)
            .where(r.c.start >= marks[0], r.c.start < marks[-1])
            .group_by(k.c.team, both, rounded)
        )
        async with self._database.read() as db:
            return [
                (int(number) // len(sizes), team, int(number) % len(sizes), int(waited_s), int(count))
                for team, number, waited_s, count in await db.execute(query)
            ]


def _size_index(gpus: ColumnElement[Any], sizes: Sequence[int]) -> ColumnElement[int]:
    """Returns the index of the size of a run; parts of one GPU are of the size of one GPU."""
    steps = [(gpus >= least, literal(index)) for index, least in reversed(list(enumerate(sizes))) if index]
    return cast(case(*steps, else_=literal(0)), BigInteger)
