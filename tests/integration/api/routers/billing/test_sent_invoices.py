"""An invoice that is sent keeps its parties, dates and tax."""

from __future__ import annotations

from decimal import Decimal

from headway.domain.billing.cost_settings import CostSettings, InvoiceSettings
from headway.domain.billing.ledger import DAY_S, MachineLifetime
from tests.support.billing.billing_cluster import (
    OCTOBER,
    V1,
    H,
    accounting,
    at,
    got,
    machines,
    server,
)
from tests.support.servers.server_fakes import Server

__all__ = ["accounting", "server"]  # fixtures


async def test_closed_invoice_keeps_its_parties_tax_and_due_date(server: Server) -> None:
    """The file changes after the closing."""
    await machines(server, 1, ended=3 * H)
    at(server, 10 * H)
    theirs = InvoiceSettings(("Example Ltd", "1 Main Street"), ("Acme <Inc>",), Decimal("19.5"), 14, ("Bank 123",))
    server.backend.clusters["lab"]["costs"] = CostSettings(invoice=theirs)
    await server.apply("lab", note="parties")
    ann = await server.client()
    still_open = await got(ann, "invoice?period=2026-10")
    assert (still_open["total_usd"], still_open["tax_usd"], still_open["due_usd"]) == (24.0, 4.68, 28.68)
    assert (still_open["reference"], still_open["due_at"]) == ("", None)
    at(server, 31 * DAY_S + H)
    closed = (await ann.post(f"{V1}/invoice/close", json={"period": "2026-10"})).json()
    assert (closed["reference"], closed["currency"]) == (f"lab-2026-10-{closed['number']}", "USD")
    assert closed["due_at"] == OCTOBER.end + 14 * DAY_S
    server.backend.clusters["lab"]["costs"] = CostSettings()
    await server.apply("lab", note="no parties")
    assert await got(ann, "invoice?period=2026-10") == closed
    page = (await ann.get("/clusters/lab/costs?section=invoice&period=2026-10")).text
    for part in (closed["reference"], "Example Ltd\n1 Main Street", "Acme &lt;Inc&gt;", "Bank 123", "19.5 %", "28.68"):
        assert part in page


async def test_dates_of_a_closed_invoice_are_in_its_time_zone(server: Server) -> None:
    """It is closed at 00:30 of a day in Berlin, before the end of summer time, and the file then has another zone."""
    theirs = InvoiceSettings(due_days=14)
    server.backend.clusters["lab"]["costs"] = CostSettings(timezone="Europe/Berlin", invoice=theirs)
    await server.apply("lab", note="zone")
    september = OCTOBER.start - 10 * DAY_S
    await server.store.machine_lifetimes.record("lab", [("lab-1-1", "main")], [], [], september)
    at(server, 19 * DAY_S - 2 * H + H // 2)
    ann = await server.client()
    closed = (await ann.post(f"{V1}/invoice/close", json={"period": "2026-09"})).json()
    assert closed["due_at"] == OCTOBER.start + 33 * DAY_S - H
    server.backend.clusters["lab"]["costs"] = CostSettings(timezone="America/New_York")
    await server.apply("lab", note="other zone")
    page = (await ann.get("/clusters/lab/costs?section=invoice&period=2026-09")).text
    for part in (">2026-10-20<", ">2026-11-03<", "2026-09-01 to 2026-09-30 (Europe/Berlin)"):
        assert part in page


async def test_correction_has_the_tax_of_the_month_that_it_corrects(server: Server) -> None:
    await machines(server, 1)
    at(server, 744 * H)
    ann = await server.client()
    assert (await ann.post(f"{V1}/invoice/close", json={"period": "2026-10"})).json()["tax_usd"] == 0
    server.backend.clusters["lab"]["costs"] = CostSettings(invoice=InvoiceSettings(tax_percent=Decimal(19)))
    await server.apply("lab", note="tax")
    late = MachineLifetime("lab-1-2", "main", OCTOBER.start, OCTOBER.start + 10 * H, 0)
    await server.store.machine_lifetimes.record("lab", [("lab-1-2", "main")], [], [], OCTOBER.start)
    await server.store.machine_lifetimes.record("lab", [], [late], [], OCTOBER.start + 10 * H)
    at(server, 746 * H)
    november = await got(ann, "invoice?period=2026-11")
    assert [line["amount_usd"] for line in november["lines"]] == [16.0, 80.0]
    assert november["taxes"] == [{"tax_percent": 19.0, "net_usd": 16.0, "tax_usd": 3.04}]
    assert (november["total_usd"], november["tax_usd"], november["due_usd"]) == (96.0, 3.04, 99.04)
    page = (await ann.get("/clusters/lab/costs?section=invoice&period=2026-11")).text
    for part in ("tax, 19 % of 16.00", "99.04"):
        assert part in page
