"""Costs that do not depend on nodes are lines of the invoice and a column of the chargeback."""

from __future__ import annotations

from decimal import Decimal

from headway.domain.billing.cost_settings import CostSettings
from tests.support.billing.billing_cluster import (
    V1,
    Accounting,
    H,
    accounting,
    at,
    got,
    machines,
    run,
    server,
    summed,
)
from tests.support.servers.server_fakes import Server

__all__ = ["accounting", "server"]  # fixtures


async def test_fixed_costs_are_billed_from_their_apply_until_they_leave_the_file(
    server: Server, accounting: Accounting
) -> None:
    await machines(server, 1, ended=2 * H)
    accounting.runs = [run(1, 0, 2 * H)]
    at(server, 10 * H)
    prices = {"head": Decimal("1.5"), "disks": Decimal("0.5")}
    server.backend.clusters["lab"]["costs"] = CostSettings(fixed="share", fixed_usd_per_hour=prices)
    await server.apply("lab", note="fixed costs")
    at(server, 20 * H)
    server.backend.clusters["lab"]["costs"] = CostSettings(fixed="share", fixed_usd_per_hour={"head": Decimal(2)})
    await server.apply("lab", note="dearer, and no disks")
    at(server, 30 * H)
    ann = await server.client()
    bill = await got(ann, "invoice?period=2026-10")
    lines = [
        (line["what"], line["group"], line["billing"], line["hours"], line["amount_usd"]) for line in bill["lines"]
    ]
    assert sorted(lines) == [
        ("fixed", "disks", "fixed", 10.0, 5.0),
        ("fixed", "head", "fixed", 10.0, 15.0),
        ("fixed", "head", "fixed", 10.0, 20.0),
        ("node", "main", "on demand", 2.0, 16.0),
    ]
    paid = await got(ann, "chargeback?period=2026-10")
    fixed = {one["team"]: one["fixed_usd"] for one in paid["teams"]}
    assert (fixed["vision"], fixed["speech"], paid["rules"]["fixed"]) == (30.0, 10.0, "share")
    assert float(summed(paid)) == bill["total_usd"] == paid["invoice_total_usd"] == 56.0
    assert (await got(ann, "usage?start=2026-10"))["total"]["usd"] == 16.0, "jobs cost what their nodes cost"
    page = (await ann.get("/clusters/lab/costs?section=chargeback&period=2026-10")).text
    assert ("fixed costs share" in page, 'data-label="fixed"' in page) == (True, True)
    server.backend.answers["take_down"] = ()
    assert (await ann.post(f"{V1}/down", json={"delete_data": True})).status_code == 202
    await server.work_off()
    at(server, 100 * H)
    assert (await got(ann, "invoice?period=2026-10"))["total_usd"] == 56.0


async def test_without_fixed_costs_the_page_has_no_column_for_them(server: Server) -> None:
    await machines(server, 1, ended=2 * H)
    at(server, 10 * H)
    page = (await (await server.client()).get("/clusters/lab/costs?section=chargeback&period=2026-10")).text
    assert ('data-label="broken"' in page, 'data-label="fixed"' in page) == (True, False)
