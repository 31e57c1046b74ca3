"""Lives of machines, states of nodes, closed invoices, budgets, and what people are told of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import delete, insert, or_, select, update
from sqlalchemy.exc import IntegrityError

from headway.domain.billing import Life, News, NodeSpan, Saves, SpanKind
from headway.errors import Conflict
from headway.store.billing.losses import LossStore
from headway.store.billing.runs import upsert
from headway.store.db import billing_schema as t
from headway.store.db.rows import InvoiceRow
from headway.store.db.transactions import insert_into

_MANY = 500  # values that one question names


class LedgerStore(LossStore):
    # --- machines

    async def lives(self, cluster: str, start: int, end: int) -> list[Life]:
        """Those that were there at some time from `start` until `end`."""
        v = t.lives
        query = select(v).where(v.c.cluster == cluster, v.c.began < end, or_(v.c.ended == 0, v.c.ended > start))
        async with self._read() as db:
            rows = await db.execute(query.order_by(v.c.machine, v.c.began))
            return [Life(row.machine, row.group, row.began, row.ended, row.seen) for row in rows]

    async def open_lives(self, cluster: str) -> list[Life]:
        v = t.lives
        async with self._read() as db:
            rows = await db.execute(select(v).where(v.c.cluster == cluster, v.c.ended == 0))
            return [Life(row.machine, row.group, row.began, 0, row.seen) for row in rows]

    async def meter(
        self, cluster: str, began: Iterable[tuple[str, str]], ended: Iterable[Life], seen: Iterable[str], now: int
    ) -> None:
        v = t.lives
        async with self._write() as db:
            for life in ended:
                mine = (v.c.cluster == cluster, v.c.machine == life.machine, v.c.began == life.began)
                await db.execute(update(v).where(*mine).values(ended=max(life.ended, life.began + 1)))
            for machine, group in began:
                row = {"cluster": cluster, "machine": machine, "began": now, "group": group, "ended": 0, "seen": now}
                await db.execute(upsert(db, v, ("cluster", "machine", "began")), [row])
            names = list(seen)
            if names:
                await db.execute(update(v).where(v.c.cluster == cluster, v.c.ended == 0).values(seen=now))

    async def end_lives(self, cluster: str, now: int) -> None:
        """The cluster was taken down: whatever of it was there is there no more."""
        async with self._write() as db:
            for table in (t.lives, t.node_spans):
                open_ = (table.c.cluster == cluster, table.c.ended == 0)
                await db.execute(update(table).where(*open_).values(ended=now))

    async def billed_clusters(self) -> list[str]:
        """Every cluster that ever had a machine, those that are gone too."""
        async with self._read() as db:
            return [
                name for (name,) in await db.execute(select(t.lives.c.cluster).distinct().order_by(t.lives.c.cluster))
            ]

    # --- nodes

    async def node_spans(self, cluster: str, start: int, end: int) -> list[NodeSpan]:
        n = t.node_spans
        query = select(n).where(n.c.cluster == cluster, n.c.began < end, or_(n.c.ended == 0, n.c.ended > start))
        async with self._read() as db:
            rows = await db.execute(query.order_by(n.c.node, n.c.began))
            return [NodeSpan(row.node, SpanKind(row.kind), row.began, row.ended, row.reason) for row in rows]

    async def open_spans(self, cluster: str) -> list[NodeSpan]:
        n = t.node_spans
        async with self._read() as db:
            rows = await db.execute(select(n).where(n.c.cluster == cluster, n.c.ended == 0))
            return [NodeSpan(row.node, SpanKind(row.kind), row.began, 0, row.reason) for row in rows]

    async def put_node_spans(self, cluster: str, spans: Iterable[NodeSpan]) -> None:
        """Each once, by its node, kind and beginning; a later word about its end goes before."""
        rows = [
            {"cluster": cluster, "node": one.node, "kind": one.kind.value, "began": one.began, "ended": one.ended,
             "reason": one.reason[:500]}
            for one in spans
        ]  # fmt: skip
        if rows:
            async with self._write() as db:
                await db.execute(upsert(db, t.node_spans, ("cluster", "node", "kind", "began")), rows)

    # --- invoices

    async def invoices(self, cluster: str) -> list[InvoiceRow]:
        """Those that are closed, the oldest first."""
        i = t.invoices
        async with self._read() as db:
            rows = await db.execute(select(i).where(i.c.cluster == cluster).order_by(i.c.period))
            return [InvoiceRow(**row._mapping) for row in rows]

    async def close_invoice(self, cluster: str, period: str, document: Mapping[str, Any], person: str) -> InvoiceRow:
        """Kept for good. Raises Conflict when that period is closed already."""
        i = t.invoices
        values = {"cluster": cluster, "period": period, "closed_at": self._now(), "closed_by": person}
        try:
            async with self._write() as db:
                await db.execute(insert(i).values(**values, document=dict(document)))
        except IntegrityError:
            raise Conflict(
                f"the invoice of {cluster} for {period} is closed already",
                hint="what changed since is a correction on the next one",
            ) from None
        return next(row for row in await self.invoices(cluster) if row.period == period)

    # --- budgets

    async def budget_level(self, cluster: str, team: str, start: int) -> tuple[str, bool]:
        """(level that was told in this period, whether its jobs are held back); ("", False) before anything was."""
        b = t.budget_notes
        query = select(b.c.level, b.c.capped).where(b.c.cluster == cluster, b.c.team == team, b.c.start == start)
        async with self._read() as db:
            row = (await db.execute(query)).first()
        return (row.level, row.capped) if row else ("", False)

    async def note_budget(self, cluster: str, team: str, start: int, level: str, *, capped: bool) -> None:
        """Of the period that began then; older ones are forgotten."""
        b = t.budget_notes
        async with self._write() as db:
            await db.execute(delete(b).where(b.c.cluster == cluster, b.c.team == team))
            values = {"cluster": cluster, "team": team, "start": start, "level": level, "capped": capped}
            await db.execute(insert(b).values(**values))

    async def capped_teams(self, cluster: str) -> frozenset[str]:
        """Teams whose budget is spent: none of their jobs starts."""
        b = t.budget_notes
        async with self._read() as db:
            rows = await db.execute(select(b.c.team).where(b.c.cluster == cluster, b.c.capped.is_(True)))
            return frozenset(name for (name,) in rows)

    # --- checkpoints

    async def put_saves(self, cluster: str, saves: Mapping[int, Saves], at: int) -> None:
        """What trainings said in all. One of which less is known than before (its first reports are gone) stays."""
        known = await self.saves(cluster, list(saves))
        rows = [
            {"cluster": cluster, "job": job, "at": at, "saves": one.count, "stalled_s": one.stalled_s, "up_s": one.up_s}
            for job, one in saves.items()
            if job not in known or (one.count, one.up_s) > (known[job].count, known[job].up_s)
        ]
        if rows:
            async with self._write() as db:
                await db.execute(upsert(db, t.job_saves, ("cluster", "job")), rows)

    async def saves(self, cluster: str, jobs: Sequence[int]) -> dict[int, Saves]:
        s, found = t.job_saves, {}
        async with self._read() as db:
            for i in range(0, len(jobs), _MANY):
                mine = (s.c.cluster == cluster, s.c.job.in_(jobs[i : i + _MANY]))
                for row in await db.execute(select(s).where(*mine)):
                    found[row.job] = Saves(row.saves, row.stalled_s, row.up_s)
        return found

    # --- news

    async def put_news(self, cluster: str, one: News) -> None:
        """To be told, once: where news with its key is known already nothing happens."""
        n = t.news
        values = {name: getattr(one, name) for name in News.__dataclass_fields__}
        async with self._write() as db:
            await db.execute(insert_into(db, n).values(cluster=cluster, told_at=0, **values).on_conflict_do_nothing())

    async def has_news(self, cluster: str, key: str) -> bool:
        n = t.news
        async with self._read() as db:
            found = await db.execute(select(n.c.key).where(n.c.cluster == cluster, n.c.key == key))
            return found.first() is not None

    async def untold_news(self, cluster: str, since: int) -> list[News]:
        """The oldest first; what is older than `since` is no news any more."""
        n = t.news
        query = select(*(n.c[name] for name in News.__dataclass_fields__))
        async with self._read() as db:
            rows = await db.execute(
                query.where(n.c.cluster == cluster, n.c.told_at == 0, n.c.at >= since).order_by(n.c.at, n.c.key)
            )
            return [News(*row) for row in rows]

    async def told_news(self, cluster: str, keys: Iterable[str], at: int) -> None:
        n = t.news
        async with self._write() as db:
            await db.execute(update(n).where(n.c.cluster == cluster, n.c.key.in_(list(keys))).values(told_at=at))
