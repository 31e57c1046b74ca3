"""Time spans in which nodes were in a state that matters for billing."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import or_, select

from headway.domain.billing.ledger import NodeSpan, SpanKind
from headway.store.billing.runs import upsert
from headway.store.db import billing_schema as t
from headway.store.db.transactions import StorePart


class NodeSpanStore(StorePart):
    """Stores node spans."""

    async def between(self, cluster: str, start: int, end: int) -> list[NodeSpan]:
        """Returns the spans that overlap the time from `start` until `end`."""
        n = t.node_spans
        query = select(n).where(n.c.cluster == cluster, n.c.began < end, or_(n.c.ended == 0, n.c.ended > start))
        async with self._database.read() as db:
            rows = await db.execute(query.order_by(n.c.node, n.c.began))
            return [NodeSpan(row.node, SpanKind(row.kind), row.began, row.ended, row.reason) for row in rows]

    async def running(self, cluster: str) -> list[NodeSpan]:
        """Returns the spans that have not ended."""
        n = t.node_spans
        async with self._database.read() as db:
            rows = await db.execute(select(n).where(n.c.cluster == cluster, n.c.ended == 0))
            return [NodeSpan(row.node, SpanKind(row.kind), row.began, 0, row.reason) for row in rows]

    async def save(self, cluster: str, spans: Iterable[NodeSpan]) -> None:
        """Stores each span once, keyed by node, kind and beginning; a later call replaces its end and reason."""
        rows = [
            {"cluster": cluster, "node": span.node, "kind": span.kind.value, "began": span.began, "ended": span.ended,
             "reason": span.reason[:500]}
            for span in spans
        ]  # fmt: skip
        if rows:
            async with self._database.write() as db:
                await db.execute(upsert(db, t.node_spans, ("cluster", "node", "kind", "began")), rows)
