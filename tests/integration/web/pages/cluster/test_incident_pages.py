"""Pages of incidents: links to nodes, and incidents that are of no node."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from headway.domain.incident import FaultAction
from tests.support.clusters import builders
from tests.support.servers import server_fakes
from tests.support.servers.server_fakes import Server


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    made = await server_fakes.start(tmp_path, builders.Clock())
    await made.apply()
    yield made
    await made.close()


@pytest.mark.parametrize("path", ["", "/incidents", "/incidents/1"])
@pytest.mark.parametrize(
    ("node", "action", "linked"),
    [
        ("lab-1-1", FaultAction.DRAIN, True),
        ("host", FaultAction.HOST_DISK, False),
        ("leaf1 - leaf2", FaultAction.LINK, False),
    ],
)
async def test_incident_names_its_place_and_links_only_nodes(
    server: Server, path: str, node: str, action: FaultAction, linked: bool
) -> None:
    await server.store.incidents.open("lab", node, "something", action, 5.0, {})
    text = (await (await server.client("ann", "admin")).get(f"/clusters/lab{path}")).text
    assert node in text
    assert (f"/clusters/lab/nodes/{node}" in text) is linked


async def test_incident_of_the_host_is_closed_without_tests(server: Server) -> None:
    await server.store.incidents.open("lab", "host", "the disk of the host is full", FaultAction.HOST_DISK, 5.0, {})
    text = (await (await server.client("ann", "admin")).get("/clusters/lab/incidents/1")).text
    assert "The host has space" in text
    assert "Test and return" not in text
    assert "against the node" not in text
