"""The page of a fabric test shows what differs from settings, with the remedy."""

from __future__ import annotations

from pathlib import Path

from tests.support.clusters import builders
from tests.support.servers import server_fakes
from tests.support.site import fabric


async def test_mismatches_are_on_the_page_with_their_remedy(tmp_path: Path) -> None:
    server = await server_fakes.start(tmp_path, builders.Clock())
    await server.apply()
    client = await server.client("vic", "viewer")
    found = fabric.result()
    assert "Differs from" not in (await client.get("/clusters/lab/fabric-test")).text
    await server.state.store.fabric_tests.record("lab", found.operation, found.at, found.model_dump())
    page = await client.get("/clusters/lab/fabric-test")
    assert page.status_code == 200
    for one in found.mismatches:
        assert one.what in page.text
        assert one.remedy[1:] in page.text, "it begins with a capital letter"
    await server.close()
