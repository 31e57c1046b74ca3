"""Divides an invoice among teams. Every cent ends in one column of one team, or in a named unassigned amount. Pure.

A team pays for what was allocated to its jobs: productive, lost (work that was repeated after a fault or a preemption)
and allocated but idle. Time that was allocated to no job is capacity (idle, spare and broken) and is shared by the
rules in the cluster file, and so are fixed costs, which do not depend on nodes. How long which run had which nodes is summed in
`store.billing.run_sums`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from headway.billing import intervals
from headway.billing.cluster_invoice import Invoice, MeteredMachine
from headway.billing.money import apportion
from headway.billing.prices.price_segments import Segment
from headway.domain.billing.cost_settings import BY_SHARE, BY_USE, COST_CENTRE
from headway.domain.billing.ledger import GroupUsage

ALLOCATED = ("productive", "lost", "allocated_idle")
CAPACITY = ("idle", "spare", "broken")
FIXED = "fixed"
SHARED = (*CAPACITY, FIXED)  # by the rules
COLUMNS = (*ALLOCATED, *SHARED)


@dataclass(frozen=True, slots=True)
class Rules:
    """How each kind of capacity, and fixed costs, are shared: BY_USE (in proportion to the cost of what was allocated to each
    team), BY_SHARE (in proportion to the teams' shares in the cluster file), or COST_CENTRE with a name (no team pays; that
    cost centre does)."""

    idle: str
    spare: str
    broken: str
    fixed: str


@dataclass(frozen=True, slots=True)
class TeamCost:
    """The amounts that one team pays."""

    team: str
    cents: Mapping[str, int]  # by column

    @property
    def total_cents(self) -> int:
        """Returns what the team pays in all."""
        return sum(self.cents.values())


@dataclass(frozen=True, slots=True)
class Unassigned:
    """An amount that no team pays. `what`: a column of SHARED, or "correction". `centre`: the cost centre that pays,
    "" if no rule names one."""

    what: str
    centre: str
    cents: int


@dataclass(frozen=True, slots=True)
class Chargeback:
    """An invoice divided among teams."""

    invoice: Invoice
    teams: tuple[TeamCost, ...]
    unassigned: tuple[Unassigned, ...]


@dataclass
class TeamCosts:
    """Exact costs in USD: of what was allocated to each team's jobs, by column, and of what is shared, by column."""

    allocated: dict[tuple[str, str], Fraction] = field(default_factory=dict)  # (team, column)
    shared: dict[str, Fraction] = field(default_factory=lambda: dict.fromkeys(SHARED, Fraction(0)))

    def add(
        self,
        segment: Segment,
        uses: Iterable[GroupUsage],
        nodes: Iterable[MeteredMachine],
        allocated_broken: Fraction,
        unused_s: int = 0,
    ) -> None:
        """Adds one segment.

        `allocated_broken`: node-seconds allocated to jobs on nodes while these were broken. Jobs may finish on a drained node,
        and their team pays for that time. `unused_s`: node-seconds of reserved machines that did not exist; they count
        as idle capacity."""
        price = segment.usd_per_second
        allocated_s = Fraction(0)
        for use in uses:
            lost, idle = use.lost_unit_s, use.idle_unit_s
            for column, unit_s in zip(ALLOCATED, (use.unit_s - lost - idle, lost, idle), strict=True):
                node_s = Fraction(unit_s, use.per_node)
                allocated_s += node_s
                key = (use.team, column)
                self.allocated[key] = self.allocated.get(key, Fraction(0)) + node_s * price
        there = spare = broken = Fraction(0)
        for one in nodes:
            there += intervals.seconds(one.there)
            spare += intervals.seconds(one.spare)
            broken += intervals.seconds(one.broken)
        broken = max(Fraction(0), broken - allocated_broken)
        idle_s = max(Fraction(0), there - allocated_s - spare - broken) + unused_s
        for kind, node_s in (("idle", idle_s), ("spare", spare), ("broken", broken)):
            self.shared[kind] += node_s * price

    def add_fixed(self, segment: Segment, seconds: int) -> None:
        """Adds the seconds of a fixed cost in one segment."""
        self.shared[FIXED] += seconds * segment.usd_per_second


def share_out(invoice: Invoice, costs: TeamCosts, rules: Rules, shares: Mapping[str, int | Fraction]) -> Chargeback:
    """Divides the invoice. `shares` has the share of each team in the cluster file. The parts add up to the invoice
    exactly."""
    used: dict[str, Fraction] = {}
    for (team, _), amount in costs.allocated.items():
        used[team] = used.get(team, Fraction(0)) + amount
    parts: dict[tuple[str, str], Fraction] = dict(costs.allocated)  # (team, column)
    by_centre: dict[tuple[str, str], Fraction] = {}  # (column, centre)
    for kind in SHARED:
        amount, rule = costs.shared[kind], getattr(rules, kind)
        weights = _weights(rule, used, shares)
        whole = sum(weights.values(), Fraction(0))
        if not whole:
            key = (kind, rule.removeprefix(COST_CENTRE) if rule.startswith(COST_CENTRE) else "")
            by_centre[key] = by_centre.get(key, Fraction(0)) + amount
            continue
        for team, weight in weights.items():
            parts[(team, kind)] = parts.get((team, kind), Fraction(0)) + amount * weight / whole
    return _whole_cents(invoice, parts, by_centre, sorted({*used, *shares}))


def _weights(rule: str, used: Mapping[str, Fraction], shares: Mapping[str, int | Fraction]) -> dict[str, Fraction]:
    if rule == BY_SHARE:
        return {team: Fraction(share) for team, share in shares.items()}
    return dict(used) if rule == BY_USE else {}


def _whole_cents(
    invoice: Invoice,
    parts: Mapping[tuple[str, str], Fraction],
    by_centre: Mapping[tuple[str, str], Fraction],
    teams: Sequence[str],
) -> Chargeback:
    mine, theirs = sorted(parts), sorted(by_centre)
    weights = [*(parts[key] for key in mine), *(by_centre[key] for key in theirs)]
    total = invoice.total_cents - invoice.correction_cents
    if not any(weights):  # no usage and no capacity is recorded for the period
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
    """Returns the chargeback as the JSON value stored with a closed invoice."""
    return {
        "teams": [[team.team, dict(team.cents)] for team in found.teams],
        "unassigned": [[cost.what, cost.centre, cost.cents] for cost in found.unassigned],
    }


def unpacked(invoice: Invoice, kept: Mapping[str, Any]) -> Chargeback:
    """Returns the chargeback stored by `packed`. One that was closed before a column existed has 0 in it."""
    teams = tuple(TeamCost(team, {column: cents.get(column, 0) for column in COLUMNS}) for team, cents in kept["teams"])
    unassigned = tuple(Unassigned(*fields) for fields in kept["unassigned"])
    return Chargeback(invoice, teams, unassigned)
