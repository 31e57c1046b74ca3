"""The munge key file of a cluster document must not be another secret of the server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from headway.domain.cluster import KeySource
from headway.services.cluster_backend import ResolvedCluster
from headway.services.storage.path_policy import path_faults
from tests.support.clusters import builders
from tests.support.servers import server_fakes
from tests.support.servers.server_fakes import Server


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    made = await server_fakes.start(tmp_path, builders.Clock())
    yield made
    await made.close()


@pytest.mark.parametrize(
    ("file", "taken"),
    [
        ("/etc/munge/site.key", True),
        ("/etc/headway/munge.key", True),
        ("/etc/headway/keys/site-munge.key", True),
        ("/etc/headway/backup.key", False),
        ("/etc/headway/key.pem", False),
        ("/etc/headway/munge/../backup.key", False),
        ("/etc/shadow", False),
        ("/srv/keys/site.key", True),
    ],
)
async def test_munge_key_file_must_not_be_another_secret_of_the_server(server: Server, file: str, taken: bool) -> None:
    cluster = replace(builders.cluster(), munge_key=KeySource(file))
    faults = await path_faults(server.state, ResolvedCluster(cluster))
    assert [fault.path for fault in faults] == ([] if taken else ["secrets.munge.file"])
