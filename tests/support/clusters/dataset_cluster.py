"""A cluster to which datasets are added, and a record of the datasets that its machines have mounted."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from headway.domain.changeset import Change, ChangeSet, Disturbs
from headway.domain.cluster import Cluster
from tests.support.clusters import builders
from tests.support.servers import server_fakes
from tests.support.servers.server_fakes import Server

API = "/api/v1/clusters/lab/datasets"


class Mounts:
    """Stands in for a cluster's machines: which datasets are mounted, and what plan and apply make of the
    difference."""

    def __init__(self, server: Server) -> None:
        self.there: set[str] = set()
        self.other: tuple[Change, ...] = ()
        server.backend.answers |= {"plan": self.plan, "apply": self.apply}

    @staticmethod
    def wanted(cluster: Cluster) -> set[str]:
        """Returns the mounts of versioned datasets that the cluster's file asks for."""
        return {
            f"{dataset.mount} of {Path(dataset.source).name}"
            for dataset in cluster.storage.datasets
            if dataset.versioned
        }

    def plan(self, cluster: Cluster) -> ChangeSet:
        attach = [Change("dataset.attach", "cluster", name, "") for name in sorted(self._names(cluster) - self.there)]
        detach = [
            Change("file.remove", "lab-1-1", f"/etc/systemd/system/datasets-{name}.mount", "", Disturbs.JOBS)
            for name in sorted(self.there - self._names(cluster))
        ]
        return ChangeSet(cluster.name, (*attach, *detach, *self.other))

    def apply(self, cluster: Cluster, _: Any) -> None:
        self.there = self._names(cluster)

    @staticmethod
    def _names(cluster: Cluster) -> set[str]:
        return {dataset.name for dataset in cluster.storage.datasets if dataset.versioned}


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    (tmp_path / "state").mkdir()
    made = await server_fakes.start(tmp_path / "state", builders.Clock())
    await made.apply()
    yield made
    await made.close()


@pytest.fixture
def mounts(server: Server) -> Mounts:
    return Mounts(server)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "tiny"
    folder.mkdir()
    (folder / "a.txt").write_text("alpha")
    return folder


async def done(server: Server, answer: Any, state: str = "done") -> Any:
    """Carries out the operation of an accepted request, asserts its final state, and returns it."""
    assert answer.status_code == 202, answer.text
    await server.work_off()
    operation = await server.store.operations.get(answer.json()["id"])
    assert operation.state == state, operation.error
    return operation


async def add(server: Server, source: Path, name: str = "tiny") -> Any:
    """Adds a dataset from the folder `source` through the API."""
    client = await server.client()
    return await done(server, await client.post(API, json={"name": name, "source": str(source)}))
