"""Divides an invoice among teams: every cent ends in one column of one team, or in a named unassigned amount. Pure.

What teams' jobs held is theirs: productive, lost (work that was done again after a fault or a preemption) and held but
idle. What no job held is capacity: idle, spare and broken, shared by the file's rules."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from headway.billing import intervals
from headway.billing.invoice import Invoice, MeteredMachine, Segment
from headway.billing.money import apportion
from headway.domain.billing import GroupUsage

HELD = ("productive", "lost", "held_idle")
CAPACITY = ("idle", "spare", "broken")
COLUMNS = (*HELD, *CAPACITY)
CENTRE = "centre:"


@dataclass(frozen=True, slots=True)
class Rules:
    """How each kind of capacity is shared: "use" (as what teams held cost), "share" (as their shares in the file), or
    "centre:NAME" (nobody: that cost centre pays)."""

    idle: str = "use"
    spare: str = "share"
    broken: str = "share"


@dataclass(frozen=True, slots=True)
class TeamCost:
    team: str
    cents: Mapping[str, int]  # by column

    @property
    def total_cents(self) -> int:
        return sum(self.cents.values())


@dataclass(frozen=True, slots=True)
class Unassigned:
    """`what`: a column of capacity, or "correction"; `centre`: who pays, "" where no rule could say."""

    what: str
    centre: str
    cents: int


@dataclass(frozen=True, slots=True)
class Chargeback:
    invoice: Invoice
    teams: tuple[TeamCost, ...]
    unassigned: tuple[Unassigned, ...]


@dataclass
class Costs:
    """Exact USD: what each team's jobs held, by column, and capacity by kind."""

    held: dict[tuple[str, str], Fraction] = field(default_factory=dict)  # (team, column)
    capacity: dict[str, Fraction] = field(default_factory=lambda: dict.fromkeys(CAPACITY, Fraction(0)))

    def add(
        self,
        segment: Segment,
        uses: Iterable[GroupUsage],
        nodes: Iterable[MeteredMachine],
        held_broken: Fraction,
        unused_s: int = 0,
    ) -> None:
        """One segment. `held_broken`: node-seconds that jobs held on nodes while they were broken: a drained node's jobs
        may end there, and that is theirs. `unused_s`: of reserved machines that were not there, which is capacity that
        idled."""
        price = segment.usd_per_second
        held_s = Fraction(0)
        for use in uses:
            lost, idle = use.lost_unit_s, use.idle_unit_s
            for column, unit_s in zip(HELD, (use.unit_s - lost - idle, lost, idle), strict=True):
                node_s = Fraction(unit_s, use.per_node)
                held_s += node_s
                key = (use.team, column)
                self.held[key] = self.held.get(key, Fraction(0)) + node_s * price
        there = spare = broken = Fraction(0)
        for one in nodes:
            there += intervals.seconds(one.there)
            spare += intervals.seconds(one.spare)
            broken += intervals.seconds(one.broken)
        broken = max(Fraction(0), broken - held_broken)
        idle_s = max(Fraction(0), there - held_s - spare - broken) + unused_s
        for kind, node_s in (("idle", idle_s), ("spare", spare), ("broken", broken)):
            self.capacity[kind] += node_s * price


def share_out(invoice: Invoice, costs: Costs, rules: Rules, shares: Mapping[str, int]) -> Chargeback:
    """`shares`: of each team in the file. The parts sum to the invoice exactly."""
    used: dict[str, Fraction] = {}
    for (team, _), amount in costs.held.items():
        used[team] = used.get(team, Fraction(0)) + amount
    parts: dict[tuple[str, str], Fraction] = dict(costs.held)  # (team, column)
    nobody: dict[tuple[str, str], Fraction] = {}  # (column, centre)
    for kind in CAPACITY:
        amount, rule = costs.capacity[kind], getattr(rules, kind)
        weights = _weights(rule, used, shares)
        whole = sum(weights.values(), Fraction(0))
        if not whole:
            key = (kind, rule.removeprefix(CENTRE) if rule.startswith(CENTRE) else "")
            nobody[key] = nobody.get(key, Fraction(0)) + amount
            continue
        for team, weight in weights.items():
            parts[(team, kind)] = parts.get((team, kind), Fraction(0)) + amount * weight / whole
    return _whole_cents(invoice, parts, nobody, sorted({*used, *shares}))


def _weights(rule: str, used: Mapping[str, Fraction], shares: Mapping[str, int]) -> dict[str, Fraction]:
    if rule == "share":
        return {team: Fraction(share) for team, share in shares.items()}
    return dict(used) if rule == "use" else {}


def _whole_cents(
    invoice: Invoice,
    parts: Mapping[tuple[str, str], Fraction],
    nobody: Mapping[tuple[str, str], Fraction],
    teams: Sequence[str],
) -> Chargeback:
    mine, theirs = sorted(parts), sorted(nobody)
    weights = [*(parts[key] for key in mine), *(nobody[key] for key in theirs)]
    total = invoice.total_cents - invoice.correction_cents
    if not any(weights):  # nothing is known of who had it
        theirs, weights, mine = [("idle", "")], [Fraction(1)], []
    found = apportion(total, weights)
    cents = dict(zip(mine, found[: len(mine)], strict=True))
    unassigned = [
        Unassigned(kind, centre, amount)
        for (kind, centre), amount in zip(theirs, found[len(mine) :], strict=True)
        if amount
    ]
    if invoice.correction_cents:
        unassigned.append(Unassigned("correction", "", invoice.correction_cents))
    costs = tuple(TeamCost(team, {column: cents.get((team, column), 0) for column in COLUMNS}) for team in teams)
    return Chargeback(invoice, costs, tuple(unassigned))


def packed(found: Chargeback) -> dict[str, object]:
    """As it is kept with a closed invoice."""
    return {
        "teams": [[one.team, dict(one.cents)] for one in found.teams],
        "unassigned": [[one.what, one.centre, one.cents] for one in found.unassigned],
    }


def unpacked(invoice: Invoice, kept: Mapping[str, Any]) -> Chargeback:
    teams = tuple(TeamCost(team, cents) for team, cents in kept["teams"])
    unassigned = tuple(Unassigned(*one) for one in kept["unassigned"])
    return Chargeback(invoice, teams, unassigned)
