"""Key rotations run as operations; after a failure the new key is deleted."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from headway.errors import Unreachable
from tests.support.clusters import builders
from tests.support.servers import server_fakes
from tests.support.servers.server_fakes import Server


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    made = await server_fakes.start(tmp_path, builders.Clock(), rotate_key=None)
    await made.apply()
    yield made
    await made.close()


async def test_rotation_refuses_keys_that_headway_does_not_manage(server: Server) -> None:
    client = await server.client()
    answer = await client.post("/api/v1/clusters/lab/keys/rotate", json={"what": "database"})
    assert "no password" in answer.json()["detail"]
    answer = await client.post("/api/v1/clusters/lab/keys/rotate", json={"what": "munge"})
    await server.work_off()
    ((cluster, _, what, _),) = server.backend.named("rotate_key")
    assert (cluster.name, what) == ("lab", "munge")
    assert ("forget", ("lab",)) in server.backend.calls
    assert (await client.get("/api/v1/clusters/lab")).json()["state"] == "ready"


async def test_failed_rotation_deletes_its_pending_key(server: Server) -> None:
    async def fails(cluster: Any, _report: Any, _what: str, ref: str) -> None:
        await server.store.secrets.put_if_absent(cluster.name, f"rotating/{ref}", "the new key")
        raise Unreachable("lab-1-1 does not answer")

    server.backend.answers["rotate_key"] = fails
    client = await server.client()
    asked = await client.post("/api/v1/clusters/lab/keys/rotate", json={"what": "ssh"})
    before = server.backend.calls.count(("forget", ("lab",)))
    await server.work_off()
    assert server.backend.calls.count(("forget", ("lab",))) > before, (
        "the head may have the new one: see what is held anew"
    )
    assert (await server.store.operations.get(asked.json()["id"])).state == "failed"
    assert (await server.state.clusters.row("lab")).state == "failed"
    assert [name for name in await server.store.secrets.of_cluster("lab") if name.startswith("rotating/")] == []
