"""The connection pool keeps one context per cluster file, opens a temporary one for other files, and reopens everything
after losing leadership."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headway.catalog.providers import SSH
from headway.domain.cluster import Cluster, Host
from headway.server.cluster_backend.connections import ConnectionPool
from tests.support.clusters import builders

OWN = builders.cluster(provider=SSH, hosts=(Host("lab-head", "10.0.0.1"),))
MORE = replace(OWN, hosts=(*OWN.hosts, Host("lab-head2", "10.0.0.2")))


class Opened:
    def __init__(self, cluster: Cluster) -> None:
        self.hosts, self.closed = cluster.hosts, False
        self.connections = SimpleNamespace(keyless=False)

    async def close(self) -> None:
        self.closed = True


@pytest.fixture
def holding(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ConnectionPool:
    async def opens(cluster: Cluster, *_: Any) -> Any:
        return Opened(cluster)

    monkeypatch.setattr("headway.cluster.context.open_context", opens)
    return ConnectionPool(None, tmp_path)  # type: ignore[arg-type]


async def test_inspection_with_other_file_keeps_cluster_connections_open(holding: ConnectionPool) -> None:
    kept: Any = await holding.context(OWN)
    async with holding.context_for_plan(MORE) as context:
        other: Any = context
        assert other.hosts == MORE.hosts
        assert await holding.context(OWN) is kept
    assert (other.closed, kept.closed) == (True, False)


async def test_inspection_with_own_file_reuses_open_connections(holding: ConnectionPool) -> None:
    kept: Any = await holding.context(OWN)
    async with holding.context_for_plan(OWN) as context:
        assert context is kept
    assert not kept.closed


async def test_connections_are_reopened_after_losing_leadership(holding: ConnectionPool) -> None:
    """Another one leads, which may change keys before anybody here follows it."""
    gone = replace(OWN, name="gone")
    before: list[Any] = [await holding.context(cluster) for cluster in (OWN, gone)]
    await holding.stand_by()
    async with holding.context_for_plan(OWN) as context:
        look: Any = context
        assert look not in before
    after: Any = await holding.context(OWN)
    assert after not in before
    assert [one.closed for one in (*before, after)] == [True, True, False]
    assert await holding.context(OWN) is after


async def test_stand_by_closes_engines_of_all_clusters(holding: ConnectionPool) -> None:
    ended: list[str] = []

    def acts(name: str) -> Any:
        async def close() -> None:
            await holding.context(replace(OWN, name=f"new-{name}"))
            ended.append(name)

        return SimpleNamespace(close=close, tasks=SimpleNamespace(close=close))

    for name in ("one", "two"):
        held = await holding.opened(replace(OWN, name=name))
        held.incident_engine, held.autoscaler = acts(f"{name} responds"), acts(f"{name} wakes")
    await holding.stand_by()
    assert sorted(ended) == ["one responds", "one wakes", "two responds", "two wakes"]
