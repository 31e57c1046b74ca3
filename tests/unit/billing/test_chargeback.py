"""Chargeback of a month's invoice to teams."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from headway.billing import chargeback, cluster_invoice, intervals
from headway.billing.chargeback import Rules, TeamCosts
from headway.billing.prices import price_segments
from headway.domain.billing.ledger import (
    GroupUsage,
    MachineLifetime,
    NodePrice,
    NodeSpan,
    SpanKind,
    fixed_cost_group,
    fixed_cost_name,
)
from tests.support.billing.october import OCTOBER, H, billed, life, priced


def test_shares_idle_spare_and_broken_costs_by_rules() -> None:
    states = [
        NodeSpan("lab-1-1", SpanKind.DOWN, OCTOBER.start, OCTOBER.start + 10 * H),
        NodeSpan("lab-1-2", SpanKind.SPARE, OCTOBER.start, 0),
    ]
    lives = [life("lab-1-1", 0, 100 * H), life("lab-1-2", 0, 100 * H)]
    cut = price_segments.segments(priced((0, "1")), {"main"}, OCTOBER)
    nodes = cluster_invoice.metered(lives, states, cut, OCTOBER.end)
    bill = cluster_invoice.invoice_lines("lab", OCTOBER, nodes)
    costs = TeamCosts()
    allocated = [GroupUsage("vision", 8, 8 * 30 * H, 8 * 5 * H, 8 * H), GroupUsage("speech", 8, 8 * 10 * H, 0, 0)]
    costs.add(cut[0], allocated, nodes, Fraction(0))
    found = chargeback.share_out(
        bill, costs, Rules("use", "share", "centre:platform", "use"), {"vision": 1, "speech": 3}
    )
    assert bill.total_cents == 20000
    assert {team.team: dict(team.cents) for team in found.teams} == {
        "vision": {
            "productive": 2400,
            "lost": 500,
            "allocated_idle": 100,
            "idle": 3750,
            "spare": 2500,
            "broken": 0,
            "fixed": 0,
        },
        "speech": {
            "productive": 1000,
            "lost": 0,
            "allocated_idle": 0,
            "idle": 1250,
            "spare": 7500,
            "broken": 0,
            "fixed": 0,
        },
    }
    assert [(one.what, one.centre, one.cents) for one in found.unassigned] == [("broken", "platform", 1000)]
    assert chargeback.unpacked(bill, chargeback.packed(found)) == found


def test_unused_month_is_charged_to_no_team() -> None:
    bill = billed([life("lab-1-1", 0, H)], priced((0, "10")))
    found = chargeback.share_out(bill, TeamCosts(), Rules("use", "share", "share", "share"), {})
    assert [(one.what, one.cents) for one in found.unassigned] == [("idle", 1000)]


def test_fixed_costs_are_lines_of_their_own_and_shared_by_their_rule() -> None:
    fixed = fixed_cost_group("disks")
    cut = price_segments.segments(
        [NodePrice(fixed, OCTOBER.start + 4 * H, Decimal("0.5"), reserved=1)], {fixed}, OCTOBER
    )
    now = OCTOBER.start + 44 * H
    not_there = [(segment, cluster_invoice.unused(segment, [], now)) for segment in cut]
    bill = cluster_invoice.invoice_lines("lab", OCTOBER, [], not_there)
    assert [(line.what, line.group, line.billing, line.seconds, line.amount_cents) for line in bill.lines] == [
        ("fixed", "disks", "fixed", 40 * H, 2000)
    ]
    costs = TeamCosts()
    for segment, seconds in not_there:
        costs.add_fixed(segment, seconds)
    found = chargeback.share_out(bill, costs, Rules("use", "use", "use", "share"), {"vision": 1, "speech": 3})
    assert {team.team: team.cents["fixed"] for team in found.teams} == {"vision": 500, "speech": 1500}
    centre = chargeback.share_out(bill, costs, Rules("use", "use", "use", "centre:it"), {"vision": 1})
    assert [(one.what, one.centre, one.cents) for one in centre.unassigned] == [("fixed", "it", 2000)]


def test_a_chargeback_of_before_fixed_costs_has_none() -> None:
    bill = billed([life("lab-1-1", 0, H)], priced((0, "10")))
    kept = {"teams": [["vision", {"idle": 1000}]], "unassigned": []}
    assert chargeback.unpacked(bill, kept).teams[0].cents["fixed"] == 0


MOMENT = st.integers(-40 * 24 * H, 40 * 24 * H)
PRICE = st.decimals(min_value=0, max_value=500, places=4)
KIND = st.sampled_from([(False, 0), (True, 0), (False, 1), (False, 3)])  # spot, reserved
TEAM = st.sampled_from(["vision", "speech", "small", "gone"])


@st.composite
def histories(
    draw: st.DrawFn,
) -> tuple[list[MachineLifetime], list[NodeSpan], list[NodePrice], list[GroupUsage], Rules, dict[str, int]]:
    """Anything that could have been written down, also what contradicts itself: jobs on machines that were not there."""
    groups = ["gpu", "cpu"]
    lives = []
    for i in range(draw(st.integers(0, 6))):
        began = draw(MOMENT)
        ended = draw(st.one_of(st.just(0), st.integers(0, 30 * 24 * H).map(lambda s, b=began: b + s)))
        lives.append(life(f"n{i % 4}", began, ended, draw(st.sampled_from(groups))))
    states = [
        NodeSpan(
            f"n{draw(st.integers(0, 4))}",
            draw(st.sampled_from(list(SpanKind))),
            OCTOBER.start + at,
            OCTOBER.start + at + s,
        )
        for at, s in draw(st.lists(st.tuples(MOMENT, st.integers(0, 9 * 24 * H)), max_size=6))
    ]
    prices = [
        NodePrice(draw(st.sampled_from(groups)), OCTOBER.start + at, price, *draw(KIND))
        for at, price in draw(st.lists(st.tuples(MOMENT, PRICE), max_size=5))
    ]
    for at, price in draw(st.lists(st.tuples(MOMENT, PRICE), max_size=2)):
        prices.append(NodePrice(fixed_cost_group("disks"), OCTOBER.start + at, price, reserved=draw(st.integers(0, 1))))
    uses = []
    for _ in range(draw(st.integers(0, 5))):
        unit_s = draw(st.integers(0, 64 * 31 * 24 * H))
        lost = draw(st.integers(0, unit_s))
        uses.append(
            GroupUsage(
                draw(TEAM), draw(st.sampled_from([1, 3, 8, 96])), unit_s, lost, draw(st.integers(0, unit_s - lost))
            )
        )
    rule = st.sampled_from(["use", "share", "centre:it"])
    shares = draw(st.dictionaries(TEAM, st.integers(1, 100), max_size=3))
    return lives, states, prices, uses, Rules(draw(rule), draw(rule), draw(rule), draw(rule)), shares


@given(histories(), st.integers(0, 2_000_000_000))
def test_chargeback_parts_sum_to_invoice_for_any_history(
    history: tuple[list[MachineLifetime], list[NodeSpan], list[NodePrice], list[GroupUsage], Rules, dict[str, int]],
    now: int,
) -> None:
    lives, states, prices, uses, rules, shares = history
    fixed = {one.group for one in prices if fixed_cost_name(one.group)}
    cut = price_segments.segments(prices, {one.group for one in lives} | fixed, OCTOBER)
    now = OCTOBER.start + now % (60 * 24 * H)
    nodes = cluster_invoice.metered(lives, states, cut, now)
    not_there = [(segment, cluster_invoice.unused(segment, nodes, now)) for segment in cut]
    bill = cluster_invoice.invoice_lines("lab", OCTOBER, nodes, not_there)
    costs = TeamCosts()
    for i, segment in enumerate(cut):
        if fixed_cost_name(segment.group):
            costs.add_fixed(segment, not_there[i][1])
            continue
        here = [node for node in nodes if node.segment == segment]
        costs.add(segment, uses if i == 0 else [], here, Fraction(0), not_there[i][1])
    found = chargeback.share_out(bill, costs, rules, shares)
    parts = sum(team.total_cents for team in found.teams) + sum(cost.cents for cost in found.unassigned)
    assert parts == bill.total_cents == sum(line.amount_cents for line in bill.lines)
    assert all(cents >= 0 for team in found.teams for cents in team.cents.values())
    seconds = sum(line.seconds for line in bill.lines)
    assert seconds == sum(intervals.seconds(node.there) for node in nodes) + sum(unused for _, unused in not_there)
    for segment in cut:  # a reservation is paid whether or not it is used
        there = sum(intervals.seconds(node.there) for node in nodes if node.segment is segment)
        whole = max(0, min(segment.end, now) - segment.start) * segment.reserved
        assert there + cluster_invoice.unused(segment, nodes, now) >= whole
