"""The usage and bills of the demo's cluster."""

from __future__ import annotations

from decimal import Decimal

from headway.domain.billing.ledger import GroupAllocation, JobRun, NodePrice, NodeSpan, SpanKind
from headway.services.app_state import AppState
from headway.store import Store

HOUR = 3600


async def put(state: AppState, store: Store) -> None:
    """Stores two weeks of three nodes, one of them down for a while, and of jobs: one lost its work, one is idle,
    and each working day has its hours."""
    now = int(state.clock())
    began = now - 14 * 24 * HOUR
    await store.prices.record("demo", [NodePrice("main", float(began), Decimal("31.2"))])
    await store.machine_lifetimes.record("demo", [(f"demo-1-{i}", "main") for i in (1, 2, 3, 4)], [], [], began)
    await store.node_spans.save("demo", [
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
        run = JobRun(
            job, start, end, start - 700, start - 600, team, user, "train", team, state_word, (node,), 8, 64, 1000, None,
            end - start, 900,
        )  # fmt: skip
        made.append((run, [GroupAllocation("main", (node,), "h100", 8, 64, 8, 8)], lost_h * HOUR))
    for day in range(2, 14):
        for number, (from_h, hours, team, user) in enumerate(
            ((4, 11, "vision", "alice"), (7, 5 + day % 4, "speech", "carol"), (9, 3, "vision", "bob"))
        ):
            start = now - day * 24 * HOUR + from_h * HOUR
            run = JobRun(
                10 * day + number, start, start + hours * HOUR, start - 90, start - day * 40, team, user, "train", team,
                "COMPLETED", (f"demo-1-{number + 1}",), 8, 64, 1000, None, hours * HOUR, 90,
            )  # fmt: skip
            made.append((run, [GroupAllocation("main", run.nodes, "h100", 8, 64, 8, 8)], 0))
    await store.runs.save("demo", made, collected_to=now)
    await store.runs.add_measurements("demo", [(105, now - 3 * HOUR, 6 * HOUR, 2 * HOUR, 90_000_000)], now)
