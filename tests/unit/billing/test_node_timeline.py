"""A node's timeline assigns each second to exactly one state."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from headway.billing import cluster_invoice
from headway.billing import intervals as spans
from headway.billing.node_timeline import NodeCondition, NodeInterval, intervals
from headway.billing.periods import Period
from headway.billing.prices import price_segments
from headway.domain.billing.ledger import MachineLifetime, NodePrice, NodeSpan, SpanKind

UP, DRAINED, DOWN, SPARE, OFF = (
    NodeCondition.UP,
    NodeCondition.DRAINED,
    NodeCondition.DOWN,
    NodeCondition.SPARE,
    NodeCondition.OFF,
)


def told(found: list[NodeInterval], node: str) -> list[tuple[NodeCondition, int, int, str]]:
    return [(one.state, one.start, one.end, one.reason) for one in found if one.node == node]


def test_timeline_splits_node_time_by_condition() -> None:
    lives = [
        MachineLifetime("n2", "main", 50, 400, 400),
        MachineLifetime("n2", "main", 500, 0, 900),
        MachineLifetime("n10", "main", 0, 0, 900),
    ]
    states = [
        NodeSpan("n2", SpanKind.DRAINED, 100, 300, "XID 79"), NodeSpan("n2", SpanKind.DOWN, 200, 250, "silent"),
        NodeSpan("n2", SpanKind.DOWN, 390, 600, "no machine"), NodeSpan("n10", SpanKind.SPARE, 0, 0),
        NodeSpan("n10", SpanKind.DRAINED, 10, 20, "test"), NodeSpan("gone", SpanKind.DOWN, 0, 0),
    ]  # fmt: skip
    found = intervals(lives, states, 0, 1000, 900)
    assert [one.node for one in found] == ["n2"] * 9 + ["n10"], "a person's order of numbers"
    assert told(found, "n2") == [
        (UP, 50, 100, ""), (DRAINED, 100, 200, "XID 79"), (DOWN, 200, 250, "silent"), (DRAINED, 250, 300, "XID 79"),
        (UP, 300, 390, ""), (DOWN, 390, 400, "no machine"), (OFF, 400, 500, ""), (DOWN, 500, 600, "no machine"),
        (UP, 600, 0, ""),
    ]  # fmt: skip
    assert told(found, "n10") == [(SPARE, 0, 0, "")]


def test_timeline_clips_intervals_to_past_month() -> None:
    found = intervals([MachineLifetime("n1", "main", 0, 0, 900)], [], 100, 500, 900)
    assert told(found, "n1") == [(UP, 100, 500, "")]
    assert intervals([MachineLifetime("n1", "main", 0, 0, 900)], [], 1000, 2000, 900) == []


TIMES = st.tuples(st.integers(0, 1000), st.integers(1, 400))


@given(
    st.lists(st.tuples(st.sampled_from(["n1", "n2"]), TIMES), max_size=5),
    st.lists(st.tuples(st.sampled_from(["n1", "n2"]), st.sampled_from(list(SpanKind)), TIMES), max_size=10),
    st.integers(0, 500),
    st.integers(1, 900),
    st.integers(0, 1500),
)
def test_timeline_matches_invoice_for_any_history(
    lived: list[tuple[str, tuple[int, int]]],
    said: list[tuple[str, SpanKind, tuple[int, int]]],
    start: int,
    length: int,
    now: int,
) -> None:
    """No second of a node is in two states, and each kind of seconds sums to those of the invoice and of chargeback."""
    lives = [
        MachineLifetime(name, "main", low, high, high)
        for name in ("n1", "n2")
        for low, high in spans.merge_spans((at, at + lasted) for node, (at, lasted) in lived if node == name)
        if high <= now
    ]
    states = [NodeSpan(node, kind, at, at + lasted) for node, kind, (at, lasted) in said]
    end = start + length
    found = intervals(lives, states, start, end, now)
    for node in ("n1", "n2"):
        mine = [one for one in found if one.node == node]
        assert all(one.start < (one.end or now) for one in mine)
        assert all((one.end or now) <= other.start for one, other in itertools.pairwise(mine))
    cut = price_segments.segments([NodePrice("main", 0, 1)], ["main"], Period("", start, end))  # type: ignore[arg-type]
    nodes = cluster_invoice.metered(lives, states, cut, now)

    def seconds(*which: NodeCondition) -> int:
        return sum((one.end or now) - one.start for one in found if one.state in which)

    assert seconds(UP, DRAINED, DOWN, SPARE) == sum(spans.seconds(one.there) for one in nodes)
    assert seconds(SPARE) == sum(spans.seconds(one.spare) for one in nodes)
    assert seconds(DOWN, DRAINED) == sum(spans.seconds(one.broken) for one in nodes)
