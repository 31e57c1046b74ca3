"""Billing periods, invoices, corrections, chargeback and the machine meter; property tests check that chargeback sums
to the invoice for any history."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.billing import chargeback, intervals, machine_invoice, machine_lifetimes, periods
from headway.billing.chargeback import Costs, Rules
from headway.billing.money import apportion, usd
from headway.domain.billing import GroupUsage, MachineLifetime, NodePrice, NodeSpan, SpanKind

UTC = periods.zone("UTC")
OCTOBER = periods.month("2026-10", UTC)
H = 3600


def priced(*prices: tuple[int, str], group: str = "main") -> list[NodePrice]:
    return [NodePrice(group, since, Decimal(usd_per_hour)) for since, usd_per_hour in prices]


def billed(
    lives: list[MachineLifetime], prices: list[NodePrice], states: list[NodeSpan] | None = None, now: int = 0
) -> machine_invoice.Invoice:
    cut = machine_invoice.segments(prices, {life.group for life in lives}, OCTOBER)
    return machine_invoice.invoice_lines(
        "lab", OCTOBER, machine_invoice.metered(lives, states or [], cut, now or OCTOBER.end)
    )


def life(machine: str, began: int, ended: int, group: str = "main") -> MachineLifetime:
    return MachineLifetime(machine, group, OCTOBER.start + began, ended and OCTOBER.start + ended, 0)


def test_daylight_saving_month_bills_one_hour_more_or_less() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    assert periods.month("2026-10", berlin).seconds == 745 * H
    assert periods.month("2026-03", berlin).seconds == 743 * H
    assert OCTOBER.seconds == 744 * H
    a_month = [MachineLifetime("lab-1-1", "main", 0, 0, 0)]
    for name, hours in (("2026-10", 745), ("2026-03", 743)):
        period = periods.month(name, berlin)
        cut = machine_invoice.segments(priced((0, "2")), {"main"}, period)
        found = machine_invoice.invoice_lines("lab", period, machine_invoice.metered(a_month, [], cut, period.end))
        assert found.total_cents == hours * 200
    days = periods.days(*((p := periods.month("2026-10", berlin)).start, p.end), berlin)
    assert len(days) == 31
    assert max(end - start for start, end in days) == 25 * H


def test_parses_months_and_moments_in_time_zone() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    assert periods.month("2026-12", berlin).end == periods.month("2027-01", berlin).start
    assert periods.before(OCTOBER, UTC).name == "2026-09"
    assert periods.month_of(OCTOBER.end - 1, UTC) == OCTOBER
    assert periods.moment("2026-10", UTC) == periods.moment("2026-10-01", UTC) == OCTOBER.start
    assert periods.moment(str(OCTOBER.start), UTC) == OCTOBER.start
    assert periods.moment("2026-10-01T02:00", berlin) == OCTOBER.start
    for wrong in ("2026-13", "yesterday", "2026-1"):
        with pytest.raises(ValueError, match=r".+"):
            periods.moment(wrong, UTC)


def test_bills_machines_by_second_with_spares_as_own_line() -> None:
    spare = NodeSpan("lab-1-2", SpanKind.SPARE, OCTOBER.start, OCTOBER.start + H)
    found = billed([life("lab-1-1", 0, H + 1), life("lab-1-2", 0, 2 * H)], priced((0, "36.00")), [spare])
    assert [(line.what, line.seconds, line.amount_cents) for line in found.lines] == [
        ("node", 2 * H + 1, 7201), ("spare", H, 3600),
    ]  # fmt: skip
    assert usd(found.total_cents) == Decimal("108.01")


def test_clips_lifetime_to_month_and_splits_line_at_price_change() -> None:
    prices = priced((0, "10"), (OCTOBER.start + 100 * H, "20"))
    found = billed([life("lab-1-1", -500 * H, 5000 * H)], prices)
    assert [(str(line.usd_per_hour), line.seconds) for line in found.lines] == [("10", 100 * H), ("20", 644 * H)]
    assert found.total_cents == 100 * (1000 + 2 * 6440)


def test_bills_reserved_machines_even_when_unused() -> None:
    day = 24 * H
    lives = [life("n1", 0, 0), life("n2", 2 * day, 4 * day)]
    kept = [NodePrice("main", OCTOBER.start + day, Decimal(2), reserved=2)]
    prices = [*kept, NodePrice("main", OCTOBER.start + 10 * day, Decimal(2))]
    cut, now = machine_invoice.segments(prices, {"main"}, OCTOBER), OCTOBER.start + 20 * day
    nodes = machine_invoice.metered(lives, [], cut, now)
    found = machine_invoice.invoice_lines(
        "lab", OCTOBER, nodes, [(one, machine_invoice.unused(one, nodes, now)) for one in cut]
    )
    assert [(line.what, line.billing, line.seconds // day) for line in found.lines] == [
        ("node", "on demand", 11),  # the day before it was reserved, and the ten after
        ("node", "reserved", 11),
        ("unused", "reserved", 7),
    ]
    assert found.total_cents == 29 * 24 * 200


def test_bills_running_machine_until_now() -> None:
    assert billed([life("lab-1-1", 0, 0)], priced((0, "1")), now=OCTOBER.start + 5 * H).total_cents == 500
    assert billed([life("lab-1-1", 0, 0)], priced((0, "1")), now=OCTOBER.start - 5).lines == ()


def test_corrects_closed_invoice_once_with_correction_lines() -> None:
    closed = billed([life("lab-1-1", 0, 10 * H)], priced((0, "10")))
    again = billed(
        [life("lab-1-1", 0, 9 * H), life("lab-1-2", 0, H, "cpu")], priced((0, "10")) + priced((0, "1"), group="cpu")
    )
    found = machine_invoice.corrections(closed, [], again)
    assert [(line.what, line.group, line.seconds, line.amount_cents, line.of) for line in found] == [
        ("correction", "cpu", H, 100, "2026-10"), ("correction", "main", -H, -1000, "2026-10"),
    ]  # fmt: skip
    assert machine_invoice.corrections(closed, found, again) == []
    assert machine_invoice.corrections(closed, [], closed) == []
    assert machine_invoice.unpacked(machine_invoice.packed(closed)) == closed


def test_shares_idle_spare_and_broken_costs_by_rules() -> None:
    states = [
        NodeSpan("lab-1-1", SpanKind.DOWN, OCTOBER.start, OCTOBER.start + 10 * H),
        NodeSpan("lab-1-2", SpanKind.SPARE, OCTOBER.start, 0),
    ]
    lives = [life("lab-1-1", 0, 100 * H), life("lab-1-2", 0, 100 * H)]
    cut = machine_invoice.segments(priced((0, "1")), {"main"}, OCTOBER)
    nodes = machine_invoice.metered(lives, states, cut, OCTOBER.end)
    bill = machine_invoice.invoice_lines("lab", OCTOBER, nodes)
    costs = Costs()
    held = [GroupUsage("vision", 8, 8 * 30 * H, 8 * 5 * H, 8 * H), GroupUsage("speech", 8, 8 * 10 * H, 0, 0)]
    costs.add(cut[0], held, nodes, Fraction(0))
    found = chargeback.share_out(bill, costs, Rules("use", "share", "centre:platform"), {"vision": 1, "speech": 3})
    assert bill.total_cents == 20000
    assert {team.team: dict(team.cents) for team in found.teams} == {
        "vision": {"productive": 2400, "lost": 500, "held_idle": 100, "idle": 3750, "spare": 2500, "broken": 0},
        "speech": {"productive": 1000, "lost": 0, "held_idle": 0, "idle": 1250, "spare": 7500, "broken": 0},
    }
    assert [(one.what, one.centre, one.cents) for one in found.unassigned] == [("broken", "platform", 1000)]
    assert chargeback.unpacked(bill, chargeback.packed(found)) == found


def test_unused_month_is_charged_to_no_team() -> None:
    bill = billed([life("lab-1-1", 0, H)], priced((0, "10")))
    found = chargeback.share_out(bill, Costs(), Rules("use", "share", "share"), {})
    assert [(one.what, one.cents) for one in found.unassigned] == [("idle", 1000)]


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
    return lives, states, prices, uses, Rules(draw(rule), draw(rule), draw(rule)), shares


@given(histories(), st.integers(0, 2_000_000_000))
def test_chargeback_parts_sum_to_invoice_for_any_history(
    history: tuple[list[MachineLifetime], list[NodeSpan], list[NodePrice], list[GroupUsage], Rules, dict[str, int]],
    now: int,
) -> None:
    lives, states, prices, uses, rules, shares = history
    cut = machine_invoice.segments(prices, {one.group for one in lives}, OCTOBER)
    now = OCTOBER.start + now % (60 * 24 * H)
    nodes = machine_invoice.metered(lives, states, cut, now)
    not_there = [(segment, machine_invoice.unused(segment, nodes, now)) for segment in cut]
    bill = machine_invoice.invoice_lines("lab", OCTOBER, nodes, not_there)
    costs = Costs()
    for i, segment in enumerate(cut):
        here = [node for node in nodes if node.segment == segment]
        costs.add(segment, uses if i == 0 else [], here, Fraction(0), not_there[i][1])
    found = chargeback.share_out(bill, costs, rules, shares)
    parts = sum(team.total_cents for team in found.teams) + sum(cost.cents for cost in found.unassigned)
    assert parts == bill.total_cents == sum(line.amount_cents for line in bill.lines)
    assert all(cents >= 0 for team in found.teams for cents in team.cents.values())
    seconds = sum(line.seconds for line in bill.lines)
    assert seconds == sum(intervals.seconds(node.there) for node in nodes) + sum(unused for _, unused in not_there)
    for segment in cut:  # whoever reserved pays for no less
        there = sum(intervals.seconds(node.there) for node in nodes if node.segment is segment)
        whole = max(0, min(segment.end, now) - segment.start) * segment.reserved
        assert there + machine_invoice.unused(segment, nodes, now) >= whole


@given(st.integers(-(10**9), 10**9), st.lists(st.fractions(min_value=0, max_value=10**6), min_size=1, max_size=40))
def test_apportioned_cents_sum_to_total_within_one_cent_each(total: int, weights: list[Fraction]) -> None:
    parts = apportion(total, weights)
    assert sum(parts) == total
    whole = sum(weights)
    if whole:
        assert all(abs(part - total * weight / whole) < 1 for part, weight in zip(parts, weights, strict=True))


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50))),
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50))),
)
def test_interval_operations_match_sets_of_seconds(one: list[tuple[int, int]], other: list[tuple[int, int]]) -> None:
    def each(found: list[tuple[int, int]]) -> set[int]:
        return {second for start, end in found for second in range(start, end)}

    a, b = intervals.union(one), intervals.union(other)
    assert each(a) == each(one)
    assert each(intervals.common(a, b)) == each(one) & each(other)
    assert each(intervals.without(a, b)) == each(one) - each(other)
    assert intervals.seconds(a) == len(each(one))


# --- the meter


def test_machine_lifetime_starts_on_arrival_and_ends_when_last_seen() -> None:
    first = machine_lifetimes.diff_machines([], {"lab-1-1": "main"}, 100)
    assert first.began == (("lab-1-1", "main"),)
    known = [MachineLifetime("lab-1-1", "main", 100, 0, 400)]
    assert machine_lifetimes.diff_machines(known, {"lab-1-1": "main"}, 500) == machine_lifetimes.MachineDiff(
        there=("lab-1-1",)
    )
    gone = machine_lifetimes.diff_machines(known, {}, 9000)  # the server was away: its end is unknown
    assert [(one.machine, one.began, one.ended) for one in gone.ended] == [("lab-1-1", 100, 400)]


def test_clock_set_back_bills_no_second_twice() -> None:
    known = [MachineLifetime("lab-1-1", "main", 100, 0, 4000)]
    assert machine_lifetimes.diff_machines(known, {}, 3000) == machine_lifetimes.MachineDiff()
    assert machine_lifetimes.diff_machines(known, {"lab-1-2": "main"}, 3999) == machine_lifetimes.MachineDiff()
    assert machine_lifetimes.diff_machines(known, {}, 4000).ended[0].ended == 4000


def test_slot_moved_to_another_group_starts_new_lifetime() -> None:
    turns = machine_lifetimes.diff_machines([MachineLifetime("lab-1-1", "main", 100, 0, 400)], {"lab-1-1": "gpu"}, 500)
    assert (turns.began, turns.ended[0].ended, turns.there) == ((("lab-1-1", "gpu"),), 400, ())


def test_spare_span_lasts_while_node_is_spare() -> None:
    begun = machine_lifetimes.diff_spares([], ["lab-1-5"], 100)
    assert [(one.node, one.began) for one in begun.began] == [("lab-1-5", 100)]
    ended = machine_lifetimes.diff_spares(begun.began, ["lab-1-4"], 200)
    assert [(one.node, one.ended) for one in ended.ended] == [("lab-1-5", 200)]
    assert machine_lifetimes.diff_spares(begun.began, [], 50) == machine_lifetimes.States()
