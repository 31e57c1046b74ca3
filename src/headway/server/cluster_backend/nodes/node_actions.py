"""Actions of people on nodes: drain, return, reboot, test, and injected faults."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable
from typing import TYPE_CHECKING

from headway.domain.cluster import Cluster
from headway.domain.incident import IncidentState
from headway.domain.injected_fault import Daemon
from headway.errors import Conflict
from headway.schemas.nodes.incidents import FaultIn
from headway.server.cluster_backend.connections import ConnectionPool

if TYPE_CHECKING:
    from headway.domain.incident import Incident

_LOOK_S = 0.5
_LAST_WORD_S = 0.3  # seconds until the server kills itself; the HTTP response is sent before


class NodeActionsBackend:
    """Implements services.cluster_backend.ClusterNodeActions."""

    def __init__(self, pool: ConnectionPool) -> None:
        self._pool = pool

    async def drain_node(self, cluster: Cluster, node: str, reason: str, person: str) -> str:
        """Drains a node in the person's name. Returns the result as a sentence."""
        from headway.health.manual_node_actions import drain_node

        opened = await self._pool.opened(cluster)
        async with self._pool.fault_lock(cluster, opened):
            return await drain_node(opened.engine_for(cluster).context, node, reason, person)

    async def return_node(self, cluster: Cluster, node: str, person: str) -> str:
        """Resumes a node in the person's name. Returns the result as a sentence."""
        from headway.health.manual_node_actions import return_node

        opened = await self._pool.opened(cluster)
        async with self._pool.fault_lock(cluster, opened):
            return await return_node(opened.engine_for(cluster).context, node, person)

    async def return_incident_node(self, cluster: Cluster, number: int, person: str, *, false_alarm: bool) -> Incident:
        """Tests the node of an incident and resumes it. Returns the closed incident. If another server leads, the
        leader runs the tests. Raises Conflict if the node stays out of service."""
        opened = await self._pool.opened(cluster)
        engine = opened.engine_for(cluster)
        leads = self._pool.store.server_locks.leads
        async with self._pool.fault_lock(cluster, opened):
            tests = await engine.return_node(number, person, false_alarm=false_alarm, begin=leads)
        if tests is not None:
            await asyncio.wait([tests])
        if leads:
            async with self._pool.fault_lock(cluster, opened):
                await engine.resume_open()
        found = await self._pool.store.incidents.get(number) if leads else await self._tested_elsewhere(number)
        if not found.state.closed:
            raise Conflict(
                f"{found.node} stays out of service: {found.steps[-1].text}", hint=f"headway incident show {number}"
            )
        return found

    async def _tested_elsewhere(self, number: int) -> Incident:
        """Returns the incident after the leading server has finished its tests. Polls the store every _LOOK_S seconds."""
        while True:
            found = await self._pool.store.incidents.get(number)
            if found.state is not IncidentState.TESTING:
                return found
            await asyncio.sleep(_LOOK_S)

    async def reboot_node(self, cluster: Cluster, node: str, person: str, *, busy: bool) -> Awaitable[str]:
        """Returns an awaitable that reboots the node and returns the error as text, "" after success. Raises Conflict
        while jobs run on the node, unless `busy`."""
        from headway.health.manual_node_actions import check_reboot

        await check_reboot(await self._pool.health_context(cluster), node, end_jobs=busy)
        return self._rebooted(cluster, node, person, busy=busy)

    async def resume_reboot(self, cluster: Cluster, node: str) -> tuple[str, Awaitable[str]] | None:
        """Returns (person, awaitable as in `reboot_node`) for a reboot that a stopped server left unfinished; None if
        no reboot is unfinished or another server continues it."""
        from headway.health.manual_node_actions import person_rebooting

        if await self._pool.store.server_locks.is_locked(f"reboot/{cluster.name}/{node}"):
            return None
        person = await person_rebooting(await self._pool.health_context(cluster), node)
        return (person, self._rebooted(cluster, node, person, busy=False)) if person else None

    async def _rebooted(self, cluster: Cluster, node: str, person: str, *, busy: bool) -> str:
        from headway.health.manual_node_actions import reboot_node

        async with self._pool.store.server_locks.lock(f"reboot/{cluster.name}/{node}"):
            return await reboot_node(await self._pool.health_context(cluster), node, person, end_jobs=busy)

    async def test_node(self, cluster: Cluster, node: str, *, hard: bool) -> tuple[tuple[str, bool, str], ...]:
        """Runs a node's tests. Returns (name, passed, text) for each. `hard` adds the tests that need an idle node. A
        skipped test counts as passed, and its text says what is missing."""
        from headway.health.node_tests import run_node_tests

        tools = await self._pool.health_context(cluster)
        found = (await run_node_tests(tools, node, thorough=hard, long=hard)).results
        texts = (result.text.removeprefix(f"{result.name}: ") for result in found)
        return tuple(
            (result.name, result.ok, f"skipped: {text}" if result.skipped else text)
            for result, text in zip(found, texts, strict=True)
        )

    async def inject_fault(self, cluster: Cluster, fault: FaultIn) -> str:
        """Injects a fault into a cluster of local machines, or removes it. Returns the result as a sentence."""
        from headway.health.fault_injection import inject_fault

        if fault.daemon is Daemon.SERVER:
            if fault.heal:
                return "the server runs"
            asyncio.get_running_loop().call_later(_LAST_WORD_S, os.kill, os.getpid(), signal.SIGKILL)
            return "the server is killed; headway server start starts it again"
        return await inject_fault(cluster, (await self._pool.opened(cluster)).context, fault)
