"""An invoice: what the machines of a cluster cost in a period, by group, price and whether they stood by as spares.

Machine life is metered by the second and a second costs a 3600th of the hour's price; only a line's amount is rounded. What
a closed invoice said is never changed: where later facts say otherwise the difference is a line of the next one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

from headway.billing import intervals
from headway.billing.intervals import Span
from headway.billing.money import cents
from headway.billing.periods import Period
from headway.domain.billing import MachineLifetime, NodePrice, NodeSpan, SpanKind

HOUR_S = 3600


@dataclass(frozen=True, slots=True)
class Line:
    """`what`: node | spare | unused (reserved, and not there) | correction. A correction names the period that it corrects,
    and its seconds may be negative."""

    what: str
    group: str
    billing: str  # "on demand" | "reserved" | "spot"
    usd_per_hour: Decimal
    seconds: int
    amount_cents: int
    of: str = ""  # the period corrected


@dataclass(frozen=True, slots=True)
class Invoice:
    cluster: str
    period: Period
    lines: tuple[Line, ...]

    @property
    def total_cents(self) -> int:
        return sum(line.amount_cents for line in self.lines)

    @property
    def correction_cents(self) -> int:
        return sum(line.amount_cents for line in self.lines if line.what == "correction")


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch in which a node of a group has one price."""

    group: str
    start: int
    end: int
    usd_per_hour: Decimal
    spot: bool
    reserved: int = 0  # machines that are paid for whether they are there or not

    @property
    def billing(self) -> str:
        return "reserved" if self.reserved else "spot" if self.spot else "on demand"

    @property
    def usd_per_second(self) -> Fraction:
        return Fraction(self.usd_per_hour) / HOUR_S


@dataclass(frozen=True, slots=True)
class MeteredMachine:
    """Seconds that one machine was there within a segment, cut up by what it was."""

    segment: Segment
    machine: str
    there: tuple[Span, ...]
    spare: tuple[Span, ...]
    broken: tuple[Span, ...]  # and no spare


def segments(prices: Iterable[NodePrice], groups: Iterable[str], period: Period) -> list[Segment]:
    """Of each group over the whole period; what was before a group's first price costs that one (nobody
    reserved anything then). A group without a price
    costs nothing, and is there all the same."""
    by_group: dict[str, list[NodePrice]] = {group: [] for group in sorted(groups)}
    for price in sorted(prices, key=lambda one: one.since):
        by_group.setdefault(price.group, []).append(price)
    found = []
    for group, known in sorted(by_group.items()):
        known = known or [NodePrice(group, 0, Decimal(0))]
        if known[0].reserved:
            known = [replace(known[0], since=0, reserved=0), *known]
        starts = [period.start, *(price.since for price in known[1:])]
        ends = [*starts[1:], period.end]
        for price, start, end in zip(known, starts, ends, strict=True):
            start, end = max(start, period.start), min(end, period.end)
            if start < end:
                found.append(Segment(group, start, end, price.usd_per_hour, price.spot, price.reserved))
    return found


def metered(
    lives: Iterable[MachineLifetime], states: Iterable[NodeSpan], cut: Sequence[Segment], now: int
) -> list[MeteredMachine]:
    """What each machine was in each segment; nothing after `now`."""
    there: dict[tuple[str, str], list[Span]] = {}
    for life in lives:
        there.setdefault((life.group, life.machine), []).append((life.began, life.ended or now))
    was: dict[tuple[str, bool], list[Span]] = {}
    for state in states:
        was.setdefault((state.node, state.kind is SpanKind.SPARE), []).append((state.began, state.ended or now))
    found = []
    for (group, machine), alive in sorted(there.items()):
        spare = intervals.union(was.get((machine, True), ()))
        broken = intervals.without(intervals.union(was.get((machine, False), ())), spare)
        for segment in cut:
            if segment.group != group:
                continue
            here = intervals.common(
                intervals.union(alive), [(segment.start, min(segment.end, max(now, segment.start)))]
            )
            if here:
                parts = tuple(tuple(intervals.common(here, kind)) for kind in (spare, broken))
                found.append(MeteredMachine(segment, machine, tuple(here), *parts))
    return found


def unused(segment: Segment, nodes: Iterable[MeteredMachine], now: int) -> int:
    """Seconds of reserved machines that were not there."""
    turns = sorted(
        turn for one in nodes if one.segment is segment for start, end in one.there for turn in ((start, 1), (end, -1))
    )
    at, there, found = segment.start, 0, 0
    for moment, step in [*turns, (max(segment.start, min(segment.end, now)), 0)]:
        found += max(0, segment.reserved - there) * (moment - at)
        at, there = moment, there + step
    return found


def invoice_lines(
    cluster: str, period: Period, nodes: Iterable[MeteredMachine], not_there: Iterable[tuple[Segment, int]] = ()
) -> Invoice:
    """The lines, a group after the other, in order of time; those of zero seconds are left out. `not_there`: what `unused`
    says of segments."""
    quantities: dict[tuple[str, str, str, Decimal], int] = {}

    def add(segment: Segment, what: str, count: int) -> None:
        key = (segment.group, what, segment.billing, segment.usd_per_hour)
        quantities[key] = quantities.get(key, 0) + count

    for one in nodes:
        spare = intervals.seconds(one.spare)
        add(one.segment, "node", intervals.seconds(one.there) - spare)
        add(one.segment, "spare", spare)
    for segment, count in not_there:
        add(segment, "unused", count)
    lines = tuple(
        Line(what, group, billing, price, count, cents(Fraction(price) * count / HOUR_S))
        for (group, what, billing, price), count in quantities.items()
        if count
    )
    return Invoice(cluster, period, lines)


def corrections(closed: Invoice, corrected: Sequence[Line], now: Invoice) -> list[Line]:
    """What a closed period is to be billed beside its invoice and the corrections (`corrected`) that were billed since."""
    billed: dict[tuple[str, str, Decimal], tuple[int, int]] = {}
    before = [*(line for line in closed.lines if line.what != "correction"), *corrected]
    _add(billed, before, -1)
    _add(billed, now.lines, 1)
    return [
        Line("correction", group, billing, price, count, amount, closed.period.name)
        for (group, billing, price), (count, amount) in sorted(billed.items())
        if count or amount
    ]


def _add(into: dict[tuple[str, str, Decimal], tuple[int, int]], lines: Iterable[Line], sign: int) -> None:
    """Nodes and spares cost the same: a node that turns out to have been a spare is no correction."""
    for line in lines:
        key = (line.group, line.billing, line.usd_per_hour)
        count, amount = into.get(key, (0, 0))
        into[key] = (count + sign * line.seconds, amount + sign * line.amount_cents)


def packed(invoice: Invoice) -> dict[str, object]:
    """As it is kept."""
    return {
        "cluster": invoice.cluster,
        "period": [invoice.period.name, invoice.period.start, invoice.period.end],
        "lines": [
            [line.what, line.group, line.billing, str(line.usd_per_hour), line.seconds, line.amount_cents, line.of]
            for line in invoice.lines
        ],
    }


def unpacked(kept: Mapping[str, Any]) -> Invoice:
    name, start, end = kept["period"]
    lines = tuple(
        Line(what, group, billing, Decimal(price), count, amount, of)
        for what, group, billing, price, count, amount, of in kept["lines"]
    )
    return Invoice(str(kept["cluster"]), Period(name, start, end), lines)
