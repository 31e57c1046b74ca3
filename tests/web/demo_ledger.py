"""What the demo's cluster used and what it is billed."""

from __future__ import annotations

from headway.api.state import AppState
from headway.domain.ledger import Held, NodeSpan, Run, SpanKind
from headway.store import PriceRow, Store

HOUR = 3600


async def put(state: AppState, store: Store) -> None:
    """A day of three nodes, one of them broken for a while, and of jobs: one lost its work, one idles."""
    now = int(state.clock())
    began = now - 24 * HOUR
    await store.note_prices([PriceRow("demo", "main", float(began), "31.2", False)])
    await store.meter("demo", [(f"demo-1-{i}", "main") for i in (1, 2, 3, 4)], [], [], began)
    await store.put_node_spans("demo", [
        NodeSpan("demo-1-3", SpanKind.DOWN, now - 6 * HOUR, 0, "XID 79"),
        NodeSpan("demo-1-4", SpanKind.SPARE, began, 0),
    ])  # fmt: skip
    made = []
    for job, start_h, end_h, team, user, state_word, lost_h in (
        (104, 20, 12, "vision", "alice", "NODE_FAIL", 2),
        (104, 11, 1, "vision", "alice", "COMPLETED", 0),
        (105, 9, 3, "speech", "bob", "COMPLETED", 0),
    ):
        start, end = now - start_h * HOUR, now - end_h * HOUR
        node = "demo-1-1" if team == "vision" else "demo-1-2"
        run = Run(
            job, start, end, start - 700, start - 600, team, user, "train", team, state_word, (node,), 8, 64, 1000, None,
            end - start, 900,
        )  # fmt: skip
        made.append((run, [Held("main", (node,), "h100", 8, 64, 8, 8)], lost_h * HOUR))
    await store.put_runs("demo", made, collected_to=now)
    await store.measure("demo", [(105, now - 3 * HOUR, 6 * HOUR, 2 * HOUR, 90_000_000)], now)
