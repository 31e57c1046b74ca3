"""Connections kept open for a cluster belong to its own file: another file of the same name opens its own and closes
it, and nothing opened while a server led is used afterwards."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headway.catalog.providers import SSH
from headway.domain.cluster import Cluster, Host
from headway.server.backend.connections import ConnectionPool
from tests.support import builders

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


async def test_a_look_by_another_file_leaves_open_what_the_cluster_goes_on_with(holding: ConnectionPool) -> None:
    kept: Any = await holding.context(OWN)
    async with holding.context_for_plan(MORE) as env:
        other: Any = env
        assert other.hosts == MORE.hosts
        assert await holding.context(OWN) is kept
    assert (other.closed, kept.closed) == (True, False)


async def test_a_look_by_the_clusters_own_file_goes_by_what_is_open(holding: ConnectionPool) -> None:
    kept: Any = await holding.context(OWN)
    async with holding.context_for_plan(OWN) as env:
        assert env is kept
    assert not kept.closed


async def test_what_was_open_while_this_server_led_is_opened_anew(holding: ConnectionPool) -> None:
    """Another one leads, which may change keys before anybody here follows it."""
    gone = replace(OWN, name="gone")
    before: list[Any] = [await holding.context(cluster) for cluster in (OWN, gone)]
    await holding.stand_by()
    async with holding.context_for_plan(OWN) as env:
        look: Any = env
        assert look not in before
    after: Any = await holding.context(OWN)
    assert after not in before
    assert [one.closed for one in (*before, after)] == [True, True, False]
    assert await holding.context(OWN) is after


async def test_what_acts_ends_for_every_cluster_also_when_one_is_opened_meanwhile(holding: ConnectionPool) -> None:
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
