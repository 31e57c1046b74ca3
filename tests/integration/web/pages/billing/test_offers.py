"""The page of prices: its form sends empty fields, and anything may be typed into the address."""

from __future__ import annotations

import pytest

from headway.catalog.offers import shipped_offers
from tests.support.servers.server_fakes import Server

ALL = f"{len(shipped_offers())} offers"


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("", ALL),
        ("gpu=&count=&gpus_per_node=&purchase=&cloud=", ALL),
        ("gpu=h100&count=16&gpus_per_node=8&purchase=on-demand&cloud=aws", "110.08"),
        ("gpu=h100&cloud=aws&gpus_per_node=8", "USD per machine"),
        ("count=x&gpus_per_node=-1&purchase=gift", ALL),
        ("cloud=none", "No offer fits"),
    ],
)
async def test_the_page_shows_what_the_address_asks_for(server: Server, query: str, text: str) -> None:
    server.state.clock = lambda: 1795000000.0
    page = await (await server.client("victor", "viewer")).get(f"/offers?{query}")
    assert (page.status_code, text in page.text) == (200, True)
