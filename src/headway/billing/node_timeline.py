"""Timelines of nodes: at every second, a machine, or its slot while it has no machine, is in exactly one state.
Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from headway.billing import intervals as spans
from headway.billing.intervals import Span
from headway.domain.billing.ledger import MachineLifetime, NodeSpan, SpanKind
from headway.domain.slurm.hostlist import natural_key


class NodeCondition(StrEnum):
    """The state of a node, or of a slot without a machine."""

    UP = "up"
    DRAINED = "drained"
    DOWN = "down"
    SPARE = "spare"
    OFF = "off"  # the slot has no machine


@dataclass(frozen=True, slots=True)
class NodeInterval:
    """One state of a node over a time span, in unix seconds. `end` is 0 if the state continues. `reason`: for nodes
    that were down or drained, as entered in Slurm."""

    node: str
    group: str
    state: NodeCondition
    start: int
    end: int
    reason: str = ""


def intervals(
    lives: Iterable[MachineLifetime], states: Iterable[NodeSpan], start: int, end: int, now: int
) -> list[NodeInterval]:
    """Returns the timeline of every node that had a machine from `start` until `end`, sorted by node and time. A slot
    is off whenever it has no machine after its first one began."""
    until = min(end, now)
    by_node: dict[str, list[MachineLifetime]] = {}
    for life in lives:
        by_node.setdefault(life.machine, []).append(life)
    spans_by_node: dict[str, list[NodeSpan]] = {}
    for state in states:
        spans_by_node.setdefault(state.node, []).append(state)
    found = []
    for node in sorted(by_node, key=natural_key):
        mine = sorted(by_node[node], key=lambda life: life.began)
        parts = [
            NodeInterval(node, life.group, state, *span, reason)
            for life in mine
            for state, span, reason in _of_life(life, spans_by_node.get(node, ()), start, until, now)
        ]
        alive = spans.merge_spans((life.began, life.ended or now) for life in mine)
        off = spans.subtract_spans([(max(start, mine[0].began), until)], alive)
        parts += [NodeInterval(node, mine[-1].group, NodeCondition.OFF, *span) for span in off]
        found += sorted(parts, key=lambda interval: interval.start)
    return [_open(interval) if interval.end == now else interval for interval in found]


def _of_life(
    life: MachineLifetime, reported: Sequence[NodeSpan], start: int, until: int, now: int
) -> Iterable[tuple[NodeCondition, Span, str]]:
    left = spans.intersect_spans([(life.began, life.ended or now)], [(start, until)]) if start < until else []
    for kind, state in (
        (SpanKind.SPARE, NodeCondition.SPARE),
        (SpanKind.DOWN, NodeCondition.DOWN),
        (SpanKind.DRAINED, NodeCondition.DRAINED),
    ):
        known = [node_span for node_span in reported if node_span.kind is kind]
        there = spans.intersect_spans(
            left, spans.merge_spans((node_span.began, node_span.ended or now) for node_span in known)
        )
        for span in there:
            yield state, span, _reason(known, span) if state is not NodeCondition.SPARE else ""
        left = spans.subtract_spans(left, there)
    for span in left:
        yield NodeCondition.UP, span, ""


def _reason(known: Iterable[NodeSpan], span: Span) -> str:
    return next(
        (
            node_span.reason
            for node_span in known
            if node_span.reason and node_span.began < span[1] and (node_span.ended or span[1]) > span[0]
        ),
        "",
    )


def _open(interval: NodeInterval) -> NodeInterval:
    return NodeInterval(interval.node, interval.group, interval.state, interval.start, 0, interval.reason)
