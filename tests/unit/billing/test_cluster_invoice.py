"""Billing periods, invoices, corrections, chargeback and the machine meter; property tests check that chargeback sums
to the invoice for any history."""

from __future__ import annotations

from decimal import Decimal

from headway.billing import cluster_invoice
from headway.billing.money import usd
from headway.billing.prices import price_segments
from headway.domain.billing.ledger import NodePrice, NodeSpan, SpanKind
from tests.support.billing.october import OCTOBER, H, billed, life, priced


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
    cut, now = price_segments.segments(prices, {"main"}, OCTOBER), OCTOBER.start + 20 * day
    nodes = cluster_invoice.metered(lives, [], cut, now)
    found = cluster_invoice.invoice_lines(
        "lab", OCTOBER, nodes, [(one, cluster_invoice.unused(one, nodes, now)) for one in cut]
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
    found = cluster_invoice.corrections(closed, [], again)
    assert [(line.what, line.group, line.seconds, line.amount_cents, line.of) for line in found] == [
        ("correction", "cpu", H, 100, "2026-10"), ("correction", "main", -H, -1000, "2026-10"),
    ]  # fmt: skip
    assert cluster_invoice.corrections(closed, found, again) == []
    assert cluster_invoice.corrections(closed, [], closed) == []
    assert cluster_invoice.unpacked(cluster_invoice.packed(closed)) == closed


# --- the meter
