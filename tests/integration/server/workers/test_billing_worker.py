"""The billing worker continues after a failure and saves daily sums."""

from __future__ import annotations

from headway.server.workers.billing_worker import BillingWorker
from tests.support.billing.billing_cluster import OCTOBER, Accounting, H, accounting, at, got, machines, run, server
from tests.support.servers.server_fakes import Server

__all__ = ["accounting", "server"]  # fixtures


async def test_billing_worker_continues_after_an_unreachable_cluster(server: Server, accounting: Accounting) -> None:
    accounting.away = True
    at(server, H)
    loop = BillingWorker(server.state)
    await loop.step()
    accounting.away = False
    accounting.runs = [run(1, 0, H)]
    at(server, 2 * H)
    await loop.step()
    assert len(await server.store.usage.runs_of_job("lab", 1)) == 1


async def test_billing_worker_saves_daily_sums_that_match_live_figures(server: Server, accounting: Accounting) -> None:
    await machines(server, 2, ended=100 * H)
    accounting.runs = [run(1, 2 * H, 30 * H), run(2, H, 3 * H)]
    at(server, 99 * H)
    ann = await server.client()
    pages = ("usage?start=2026-10", "chargeback?period=2026-10", "goodput?period=2026-10", "capacity?period=2026-10")
    before = [await got(ann, page) for page in pages]
    assert await server.store.capacity.saved_days("lab", OCTOBER.start, OCTOBER.end) == []
    await BillingWorker(server.state).step()
    day = 24 * H
    assert [
        (one - OCTOBER.start) // day
        for one in await server.store.capacity.saved_days("lab", OCTOBER.start, OCTOBER.end)
    ] == [0, 1, 2, 3]
    assert [await got(ann, page) for page in pages] == before
