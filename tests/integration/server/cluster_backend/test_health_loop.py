"""Machines of a cluster are created by an apply or by the server itself, never by both at once."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headway.autoscale import autoscaler
from headway.cluster.context import ClusterContext
from headway.cluster.keys.secrets import new_key
from headway.errors import Unreachable
from headway.server.cluster_backend.cluster_lifecycle import LifecycleBackend
from headway.server.cluster_backend.connections import ClusterConnections, ConnectionPool
from headway.server.cluster_backend.health_loop import HealthLoop
from headway.server.cluster_backend.slurm_state import SlurmStateBackend
from headway.server.operations.apply_wait import ApplyWait
from headway.transport.ssh import Connections
from tests.support.clusters import builders
from tests.support.clusters.incident_cluster import NODE, Ward
from tests.support.servers import server_fakes as fakes

LAB = builders.cluster(3, 0)


class Pool(ConnectionPool):
    """Has the connections of one cluster open."""

    def __init__(self, store: Any, opened: ClusterConnections) -> None:
        super().__init__(store, Path())
        self._connections = opened

    async def opened(self, _: Any) -> ClusterConnections:
        return self._connections


class Server:
    """Has one cluster open. A pass of its autoscaler lasts until `looked` and then has begun a machine that lasts
    until `made`."""

    def __init__(self, monkeypatch: Any) -> None:
        context: Any = ClusterContext(None, None, None, Path())  # type: ignore[arg-type]
        self.opened = ClusterConnections(context, None)
        self.begun, self.looked, self.made = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.opened.autoscaler = autoscaler.Autoscaler(LAB, context)
        self.pool = Pool(None, self.opened)
        self.health = HealthLoop(self.pool, SlurmStateBackend(self.pool))
        monkeypatch.setattr(autoscaler.Autoscaler, "scale", self.look)

    async def look(self, *, at_once: bool = False) -> list[tuple[str, str]]:
        self.begun.set()
        await self.looked.wait()
        assert self.opened.autoscaler is not None
        self.opened.autoscaler.tasks["lab-1-1"] = asyncio.create_task(self.make())
        return []

    async def make(self) -> None:
        await self.made.wait()


async def test_apply_waits_for_the_autoscaler_pass_and_its_machines(monkeypatch: Any) -> None:
    server = Server(monkeypatch)
    looking = asyncio.create_task(server.health._wake(LAB, server.opened))
    await server.begun.wait()
    inside = asyncio.Event()

    async def apply() -> None:
        async with server.pool.machine_lock(LAB):
            inside.set()

    applying = asyncio.create_task(apply())
    await asyncio.sleep(0)
    server.looked.set()
    await looking
    for _ in range(10):
        await asyncio.sleep(0)
    assert not inside.is_set()
    server.made.set()
    await applying
    assert inside.is_set()
    assert server.opened.autoscaler is None


async def test_cancelled_apply_leaves_the_autoscaler_running(monkeypatch: Any) -> None:
    server = Server(monkeypatch)
    server.looked.set()
    await server.health._wake(LAB, server.opened)

    async def apply() -> None:
        async with server.pool.machine_lock(LAB):
            raise AssertionError

    applying = asyncio.create_task(apply())
    for _ in range(3):
        await asyncio.sleep(0)
    applying.cancel()
    await asyncio.wait([applying])
    assert server.opened.autoscaler is not None
    assert not server.opened.autoscaler.paused
    assert not server.opened.machine_lock.locked()
    server.made.set()


async def test_autoscaler_uses_the_old_file_while_an_apply_waits(monkeypatch: Any) -> None:
    server, said = Server(monkeypatch), list[tuple[str, str]]()
    server.opened.cluster = LAB
    later = builders.cluster(2, 0)

    async def report(where: str, text: str, **_: Any) -> None:
        said.append((where, text))

    async def look(waker: autoscaler.Autoscaler) -> list[tuple[str, str]]:
        assert (waker.cluster, waker.next_file) == (LAB, later)
        waker.tasks["lab-1-1"] = asyncio.create_task(server.make())
        return [("lab-1-1", f"made, but not {min(waker.busy_nodes)}")]

    monkeypatch.setattr(autoscaler.Autoscaler, "scale", look)
    watch = ApplyWait(server.opened, report, later)
    await watch.step(["lab-1-2"])
    assert said == [("lab-1-1", "made, but not lab-1-2")]
    resting = asyncio.create_task(watch.finish_tasks())
    await asyncio.sleep(0)
    assert not resting.done()
    server.made.set()
    await resting


async def test_connections_adopt_a_key_stored_by_another_server(server: fakes.Server, monkeypatch: Any) -> None:
    connections = Connections("")
    opened = ClusterContext(None, server.store, connections, Path())  # type: ignore[arg-type]

    async def open_empty(*_: Any) -> ClusterContext:
        return opened

    monkeypatch.setattr("headway.cluster.context.open_context", open_empty)
    pool = ConnectionPool(server.store, Path())
    await pool.context(LAB)
    assert connections.keyless
    await server.store.secrets.put_if_absent(LAB.name, "bootstrap_key", new_key())
    assert await pool.context(LAB) is opened
    assert not connections.keyless


@pytest.mark.parametrize(
    ("started_at", "jobs", "since", "made"),
    [(1.0, {}, 900.0, True), (950.0, {}, 900.0, False), (950.0, {}, None, True), (950.0, {7: "RUNNING"}, None, False)],
)
async def test_replacement_skips_a_machine_recreated_by_others(
    lab: Ward, monkeypatch: Any, started_at: float, jobs: dict[int, str], since: float | None, made: bool
) -> None:
    """None: an earlier try was broken off, which may have made it and no more."""
    brought = []

    async def bring(_: Any, context: ClusterContext, name: str, report: Any, *, why: str) -> None:
        brought.append((name, why))

    async def report(*_: Any, **__: Any) -> None: ...

    assert lab.world.machine is not None
    lab.world.machine, lab.world.jobs = replace(lab.world.machine, started_at=started_at), jobs
    opened = ClusterConnections(lab.responder.cluster_context, None)
    monkeypatch.setattr("headway.cluster.scaling.provision_slot.provision_machine", bring)
    lifecycle = LifecycleBackend(Pool(lab.store, opened))
    await lifecycle.replace_machine(lab.responder.cluster, report, NODE, since)
    assert brought == ([(NODE, "the previous machine failed")] if made else [])


@pytest.mark.parametrize("fate", ["scaled", "taken out", "missing"])
async def test_replacement_skips_a_node_that_is_no_longer_wanted(lab: Ward, monkeypatch: Any, fate: str) -> None:
    """While the operation waited its turn the group was scaled, or its file changed."""
    brought, said = list[str](), list[str]()

    async def bring(_: Any, __: Any, name: str, *___: Any, **____: Any) -> None:
        brought.append(name)

    async def report(_: str, text: str, **__: Any) -> None:
        said.append(text)

    cluster, world = lab.responder.cluster, lab.world
    (group,) = cluster.groups
    world.machine = None
    if fate == "scaled":
        cluster = replace(cluster, groups=(replace(group, nodes=group.nodes - 1),))
    elif fate == "taken out":
        cluster = replace(cluster, groups=(replace(group, slots=tuple(slot for slot in group.slots if slot != NODE)),))
    opened = ClusterConnections(lab.responder.cluster_context, None)
    monkeypatch.setattr("headway.cluster.scaling.provision_slot.provision_machine", bring)
    lifecycle = LifecycleBackend(Pool(lab.store, opened))
    await lifecycle.replace_machine(cluster, report, NODE, None)
    assert brought == ([NODE] if fate == "missing" else [])
    assert said == ([] if brought else ["gets no new machine: the cluster file has no place for it now"])


async def test_dead_nodes_are_reported_despite_a_failing_incident_engine(lab: Ward, monkeypatch: Any) -> None:
    class Watch:
        cluster, stall_watchdog = None, SimpleNamespace(cluster=None)

        async def reconcile(self, *_: Any) -> list[tuple[str, str]]:
            return [("lab-1-1", "its machine is gone")]

    async def fails() -> Any:
        raise Unreachable("the provider does not answer")

    async def nothing(*_: Any) -> Any:
        return []

    watch: Any = Watch()
    opened = ClusterConnections(lab.responder.cluster_context, None, reconciler=watch, incident_engine=lab.responder)
    pool = Pool(lab.store, opened)
    acting = HealthLoop(pool, SlurmStateBackend(pool))
    for name, instead in (("_follow", nothing), ("_wake", nothing)):
        monkeypatch.setattr(acting, name, instead)
    monkeypatch.setattr(lab.responder, "handle_reclaim_notices", fails)
    died = ("lab-1-1", "its machine is gone")
    assert await acting.step(LAB, [], []) == [("lab", "the provider does not answer"), died]
    assert await acting.step(LAB, [], []) == [died], "said once"
