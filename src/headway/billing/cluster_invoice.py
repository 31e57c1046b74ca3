"""The invoice of a whole cluster: what its machines cost in a period, by group, by price and by whether they were
spares. `chargeback` divides it among teams.

Machine lifetimes are measured in seconds, and a second costs 1/3600 of the hourly price; only the amount of a line is
rounded. Amounts are net, without tax. A closed invoice never changes: if later data gives another amount, the
difference is a line of the next invoice."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

from headway.billing import intervals
from headway.billing.intervals import Span
from headway.billing.money import cents
from headway.billing.periods import Period
from headway.billing.prices.price_segments import HOUR_S, Segment
from headway.domain.billing.ledger import MachineLifetime, NodeSpan, SpanKind, fixed_cost_name


@dataclass(frozen=True, slots=True)
class InvoiceLine:
    """One line of an invoice. `what`: node | spare | unused (a reserved machine that did not exist) | fixed (a cost that does
    not depend on nodes; `group` is its name) | correction. A correction names the period that it corrects, and its seconds
    may be negative."""

    what: str
    group: str
    billing: str  # "on demand" | "reserved" | "spot" | "fixed"
    usd_per_hour: Decimal
    seconds: int
    amount_cents: int
    of: str = ""  # for a correction: the name of the corrected period


@dataclass(frozen=True, slots=True)
class Invoice:
    """The invoice of a cluster for one period."""

    cluster: str
    period: Period
    lines: tuple[InvoiceLine, ...]

    @property
    def total_cents(self) -> int:
        """Returns the sum of all lines."""
        return sum(line.amount_cents for line in self.lines)

    @property
    def correction_cents(self) -> int:
        """Returns the sum of the lines that correct earlier periods."""
        return sum(line.amount_cents for line in self.lines if line.what == "correction")


@dataclass(frozen=True, slots=True)
class MeteredMachine:
    """The time that one machine existed within a segment, divided by its state."""

    segment: Segment
    machine: str
    there: tuple[Span, ...]
    spare: tuple[Span, ...]
    broken: tuple[Span, ...]  # excludes time as a spare


def metered(
    lives: Iterable[MachineLifetime], states: Iterable[NodeSpan], cut: Sequence[Segment], now: int
) -> list[MeteredMachine]:
    """Returns the state of each machine in each segment. Time after `now` is not counted."""
    there: dict[tuple[str, str], list[Span]] = {}
    for life in lives:
        there.setdefault((life.group, life.machine), []).append((life.began, life.ended or now))
    was: dict[tuple[str, bool], list[Span]] = {}
    for state in states:
        was.setdefault((state.node, state.kind is SpanKind.SPARE), []).append((state.began, state.ended or now))
    found = []
    for (group, machine), alive in sorted(there.items()):
        spare = intervals.merge_spans(was.get((machine, True), ()))
        broken = intervals.subtract_spans(intervals.merge_spans(was.get((machine, False), ())), spare)
        for segment in cut:
            if segment.group != group:
                continue
            here = intervals.intersect_spans(
                intervals.merge_spans(alive), [(segment.start, min(segment.end, max(now, segment.start)))]
            )
            if here:
                parts = tuple(tuple(intervals.intersect_spans(here, kind)) for kind in (spare, broken))
                found.append(MeteredMachine(segment, machine, tuple(here), *parts))
    return found


def unused(segment: Segment, nodes: Iterable[MeteredMachine], now: int) -> int:
    """Returns the machine-seconds of reserved machines that did not exist."""
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
    """Returns the invoice, with lines by group and then by time. Lines of zero seconds are omitted. `not_there`: the
    result of `unused` for each segment."""
    quantities: dict[tuple[str, str, str, Decimal], int] = {}

    def add(segment: Segment, what: str, count: int) -> None:
        key = (fixed_cost_name(segment.group) or segment.group, what, segment.billing, segment.usd_per_hour)
        quantities[key] = quantities.get(key, 0) + count

    for one in nodes:
        spare = intervals.seconds(one.spare)
        add(one.segment, "node", intervals.seconds(one.there) - spare)
        add(one.segment, "spare", spare)
    for segment, count in not_there:
        add(segment, "fixed" if fixed_cost_name(segment.group) else "unused", count)
    lines = tuple(
        InvoiceLine(what, group, billing, price, count, cents(Fraction(price) * count / HOUR_S))
        for (group, what, billing, price), count in quantities.items()
        if count
    )
    return Invoice(cluster, period, lines)


def corrections(closed: Invoice, corrected: Sequence[InvoiceLine], now: Invoice) -> list[InvoiceLine]:
    """Returns the lines that correct a closed period: the difference between the present invoice and the amounts
    already billed, which are those of the closed invoice and of later corrections (`corrected`)."""
    billed: dict[tuple[str, str, Decimal], tuple[int, int]] = {}
    before = [*(line for line in closed.lines if line.what != "correction"), *corrected]
    _add(billed, before, -1)
    _add(billed, now.lines, 1)
    return [
        InvoiceLine("correction", group, billing, price, count, amount, closed.period.name)
        for (group, billing, price), (count, amount) in sorted(billed.items())
        if count or amount
    ]


def _add(into: dict[tuple[str, str, Decimal], tuple[int, int]], lines: Iterable[InvoiceLine], sign: int) -> None:
    """Adds lines by price. Nodes and spares have the same price, so a node that turns out to have been a spare needs
    no correction."""
    for line in lines:
        key = (line.group, line.billing, line.usd_per_hour)
        count, amount = into.get(key, (0, 0))
        into[key] = (count + sign * line.seconds, amount + sign * line.amount_cents)


def packed(invoice: Invoice) -> dict[str, object]:
    """Returns the invoice as the JSON value that is stored."""
    return {
        "cluster": invoice.cluster,
        "period": [invoice.period.name, invoice.period.start, invoice.period.end],
        "lines": [
            [line.what, line.group, line.billing, str(line.usd_per_hour), line.seconds, line.amount_cents, line.of]
            for line in invoice.lines
        ],
    }


def unpacked(kept: Mapping[str, Any]) -> Invoice:
    """Returns the invoice stored by `packed`."""
    name, start, end = kept["period"]
    lines = tuple(
        InvoiceLine(what, group, billing, Decimal(price), count, amount, of)
        for what, group, billing, price, count, amount, of in kept["lines"]
    )
    return Invoice(str(kept["cluster"]), Period(name, start, end), lines)
