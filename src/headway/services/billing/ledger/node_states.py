"""The states of each node, with start and end."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

from headway.billing import node_timeline
from headway.billing.node_timeline import NodeCondition, NodeInterval
from headway.billing.periods import Period
from headway.domain.slurm.hostlist import natural_key
from headway.errors import Refused
from headway.schemas.billing.node_states import NodeStateOut, NodeStatesOut
from headway.services.app_state import AppState
from headway.services.billing.reports.report_scope import BilledCluster
from headway.services.cursors import decode_cursor, encode_cursor


def parse_states(text: str) -> frozenset[NodeCondition]:
    """Returns the node states named in comma-separated text; all if it is empty. Raises Refused for unknown ones."""
    words = [word for word in text.split(",") if word]
    if unknown := [word for word in words if word not in list(NodeCondition)]:
        raise Refused(f"unknown node state {unknown[0]!r}", hint=f"use one of {', '.join(NodeCondition)}")
    return frozenset(NodeCondition(word) for word in words) or frozenset(NodeCondition)


@dataclass(frozen=True, slots=True)
class NodeStateFilter:
    """Filter of node states; empty fields accept everything."""

    node: str = ""
    group: str = ""
    states: frozenset[NodeCondition] = frozenset(NodeCondition)

    def matches(self, interval: NodeInterval) -> bool:
        """Returns whether the interval matches the filter."""
        named = (not self.node or interval.node == self.node) and (not self.group or interval.group == self.group)
        return named and interval.state in self.states


async def load_all_node_states(
    state: AppState, billed: BilledCluster, period: Period, filters: NodeStateFilter
) -> NodeStatesOut:
    """Returns all node states of the period, for a spreadsheet."""
    found = [interval for interval in await load_node_states(state, billed, period) if filters.matches(interval)]
    return _node_states_out(billed, period, found)


async def load_node_states_page(
    state: AppState, billed: BilledCluster, period: Period, filters: NodeStateFilter, cursor: str, limit: int
) -> NodeStatesOut:
    """Returns one page of the node states of the period. Raises Refused for a cursor that does not belong to this list."""
    found = [interval for interval in await load_node_states(state, billed, period) if filters.matches(interval)]
    if cursor:
        node, start = decode_cursor(cursor, str, int)
        last_key = (natural_key(node), start)
        found = found[
            bisect_right(found, last_key, key=lambda interval: (natural_key(interval.node), interval.start)) :
        ]
    more = len(found) > limit
    next_cursor = encode_cursor((found[limit - 1].node, found[limit - 1].start)) if more else ""
    return _node_states_out(billed, period, found[:limit], next_cursor)


async def load_node_states(state: AppState, billed: BilledCluster, period: Period) -> list[NodeInterval]:
    """Returns every interval of the period in which a node was in one state, by node and time."""
    lives = await state.store.machine_lifetimes.between(billed.name, period.start, period.end)
    reserved = {row.group for row in await state.store.prices.of_cluster(billed.name) if row.reserved}
    if reserved:  # they are paid for while off too, and an earlier machine shows since when they are off
        before = await state.store.machine_lifetimes.between(billed.name, 0, period.start)
        lives += [life for life in before if life.group in reserved and life not in lives]
    spans = await state.store.node_spans.between(billed.name, period.start, period.end)
    return node_timeline.intervals(lives, spans, period.start, period.end, billed.now)


def _node_states_out(
    billed: BilledCluster, period: Period, found: list[NodeInterval], next_cursor: str = ""
) -> NodeStatesOut:
    return NodeStatesOut(
        cluster=billed.name,
        start=period.start,
        end=period.end,
        as_of=billed.now,
        states=[
            NodeStateOut(
                node=interval.node,
                group=interval.group,
                state=interval.state.value,
                start=interval.start,
                end=interval.end or None,
                seconds=(interval.end or billed.now) - interval.start,
                reason=interval.reason,
            )
            for interval in found
        ],
        next=next_cursor,
    )
