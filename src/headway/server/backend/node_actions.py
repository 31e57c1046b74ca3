"""Actions on nodes: the health loop, events from the node agents, and manual actions (drain, return, reboot, test)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import TYPE_CHECKING

from headway.domain.cluster import Cluster
from headway.domain.fault import Daemon
from headway.domain.incident import FaultAction, IncidentState
from headway.domain.slurm.state import JobState, NodeState
from headway.errors import Conflict, HeadwayError
from headway.schemas.incidents import FaultIn
from headway.server.backend.connections import ClusterConnections, ConnectionPool

if TYPE_CHECKING:
    from headway.domain.incident import Incident, Signal
    from headway.health.context import HealthContext
    from headway.health.detection.dead_nodes import Messages
    from headway.health.detection.event_stream import Heartbeats, OfflineAction
    from headway.health.incidents.engine import IncidentEngine

_LOOK_S = 0.5
_LAST_WORD_S = 0.3  # seconds until the server kills itself, so that the HTTP response is sent first


class NodeActions(ConnectionPool):
    """Actions on nodes. Only one caller at a time acts on the faults of a cluster (`_turn`)."""

    @contextlib.asynccontextmanager
    async def _turn(self, cluster: Cluster, held: ClusterConnections) -> AsyncIterator[None]:
        """Holds the lock for acting on a cluster's faults, in this server and across all servers of the database."""
        async with held.acting, self._store.presence.turn(f"acting/{cluster.name}"):
            yield

    async def step(
        self, cluster: Cluster, nodes: Iterable[NodeState], jobs: Iterable[JobState]
    ) -> list[tuple[str, str]]:
        """Runs one pass of the cluster's health loop, which acts on faults. Returns what was done, as (node or job, text)."""
        from headway.health.context import fault_text
        from headway.health.jobs.stall_watchdog import StallWatchdog
        from headway.health.reconciler import HealthReconciler

        held = await self._held(cluster)
        held.cluster = cluster
        responder = self._responder(cluster, held)
        if held.reconciler is None:
            held.reconciler = HealthReconciler(cluster, held.env, responder, StallWatchdog(cluster, held.env))
        held.reconciler.cluster = held.reconciler.stall_watchdog.cluster = cluster
        held.jobs = tuple(jobs)
        async with self._turn(cluster, held):
            try:
                said = await responder.handle_reclaim_notices() + await responder.resume_open()
                responder.last_faults.pop(0, None)
            except HeadwayError as error:  # dead nodes are handled even if this fails
                said = responder.report_once(0, cluster.name, fault_text(error))
            said += await held.reconciler.reconcile(nodes, held.jobs)
            await self._follow(cluster, held)
        return said + await self._wake(cluster, held)

    async def hurry(self, cluster: Cluster) -> list[tuple[str, str]]:
        """Handles what can't wait until an operation has ended: machines that the provider reclaims."""
        held = await self._held(cluster)
        async with self._turn(cluster, held):
            responder = self._responder(cluster, held)
            return await responder.handle_reclaim_notices() + await responder.resume_open(only=FaultAction.RECLAIM)

    async def _wake(
        self, cluster: Cluster, held: ClusterConnections, *, at_once: bool = False
    ) -> list[tuple[str, str]]:
        """Creates and releases machines as Slurm requests, in groups with autoscaling. Does nothing while another
        task creates machines."""
        from headway.autoscale.executor import Autoscaler

        if held.making.locked():
            return []
        async with held.making:
            if held.autoscaler is None:
                held.autoscaler = Autoscaler(cluster, held.env)
            held.autoscaler.cluster = cluster
            return await held.autoscaler.scale(at_once=at_once)

    @contextlib.asynccontextmanager
    async def _alone(self, cluster: Cluster) -> AsyncIterator[ClusterConnections]:
        """Holds the lock for creating machines: no other task of this server creates machines of the cluster meanwhile."""
        held = await self._held(cluster)
        async with held.making:  # take the lock first: a running autoscaler pass may start another machine
            if held.autoscaler is not None:
                await held.autoscaler.pause()
                held.autoscaler = None
            yield held

    async def _follow(self, cluster: Cluster, held: ClusterConnections) -> None:
        """Records when jobs that were moved run again, and when they have made progress again."""
        from headway.health.incidents.recovery_tracking import track_recovery
        from headway.jobs.view.progress import jobs_to_read

        tools = self._responder(cluster, held).context
        if not await track_recovery(tools, held.jobs, {}):
            return
        some = jobs_to_read(held.jobs, time.time())
        with contextlib.suppress(HeadwayError):
            progress = (await self._slurm(cluster)).progress
            await progress.read_jobs(some)
            known = {job.id: progress.progress_of(job.id) for job in some}
            await track_recovery(tools, held.jobs, {number: one.at for number, one in known.items() if one is not None})

    async def hear(
        self, cluster: Cluster, calm: Callable[[], bool], turned: Callable[[tuple[int, ...], bool], None]
    ) -> AsyncIterator[Messages]:
        """Acts on events from the node agents as they arrive and yields what was done, as text for people. Ends, or
        raises, when the connection to the head is lost.

        `calm` returns whether no operation is running (an operation may restart machines itself). `turned` is called
        with the jobs that begin or end on a node (True), and with those that the controller's log names (False)."""
        from headway.health.detection.event_stream import JobEvents, PowerRequest, stream_events

        slurm, held = await self._slurm(cluster), await self._held(cluster)
        async with contextlib.aclosing(stream_events(slurm.links, slurm.head)) as heard:  # type: ignore[type-var]
            before: Messages = []
            async for news in heard:
                if isinstance(news, JobEvents):
                    turned(news.jobs, news.certain)
                    continue
                newest = held.cluster or cluster
                if isinstance(news, PowerRequest):
                    if calm():
                        yield await self._wake(newest, held, at_once=True)
                    continue
                said = await self._act(newest, held, news, calm())
                if said and said != before:  # the report that many nodes are silent is not repeated
                    yield said
                    yield await self._settle(newest)
                before = said or before

    async def _act(
        self, cluster: Cluster, held: ClusterConnections, news: Signal | Heartbeats | OfflineAction, calm: bool
    ) -> Messages:
        from headway.domain.incident import Signal
        from headway.health.detection.event_stream import Heartbeats

        responder = self._responder(cluster, held)
        if isinstance(news, Heartbeats):
            responder.silent_s = news.silent_s
            if not (calm and (news.silent_s or responder.tasks.has_finished)):
                return []
        async with self._turn(cluster, held):
            if isinstance(news, Signal):
                return await responder.handle_signal(news, held.jobs)
            if isinstance(news, Heartbeats):
                return await responder.handle_heartbeats(news, time.time()) + (
                    await responder.resume_open() if responder.tasks.has_finished else []
                )
            return await responder.handle_offline_action(news)

    async def _settle(self, cluster: Cluster) -> Messages:
        """Runs the health loop at once after a node was drained, so that the spare takes over without waiting for
        the next pass."""
        reading = await self.read(cluster)
        return await self.step(cluster, reading.nodes, reading.jobs)

    def _responder(self, cluster: Cluster, held: ClusterConnections) -> IncidentEngine:
        from headway.health.incidents.engine import IncidentEngine

        if held.incident_engine is None:
            held.incident_engine = IncidentEngine(cluster, held.env)
        held.incident_engine.cluster = cluster
        return held.incident_engine

    async def _tools(self, cluster: Cluster) -> HealthContext:
        return self._responder(cluster, await self._held(cluster)).context

    async def bring_back(self, cluster: Cluster, number: int, person: str, *, false_alarm: bool) -> Incident:
        """Returns the closed incident after its node has passed its tests and is back in service. If another server
        leads, that one runs the tests. Raises Conflict if the node stays out of service."""
        held = await self._held(cluster)
        responder = self._responder(cluster, held)
        leads = self._store.presence.leads
        async with self._turn(cluster, held):
            tests = await responder.return_node(number, person, false_alarm=false_alarm, begin=leads)
        if tests is not None:
            await asyncio.wait([tests])
        if leads:
            async with self._turn(cluster, held):
                await responder.resume_open()
        found = await self._store.incidents.get(number) if leads else await self._tested_elsewhere(number)
        if not found.state.closed:
            raise Conflict(
                f"{found.node} stays out of service: {found.steps[-1].text}", hint=f"headway incident show {number}"
            )
        return found

    async def _tested_elsewhere(self, number: int) -> Incident:
        """Returns the incident after the leading server has finished its tests. Polls the store every _LOOK_S seconds."""
        while True:
            found = await self._store.incidents.get(number)
            if found.state is not IncidentState.TESTING:
                return found
            await asyncio.sleep(_LOOK_S)

    async def drain_node(self, cluster: Cluster, node: str, reason: str, person: str) -> str:
        """Drains a node in the name of a person. Returns what was done."""
        from headway.health.manual_actions import drain_node

        held = await self._held(cluster)
        async with self._turn(cluster, held):
            return await drain_node(self._responder(cluster, held).context, node, reason, person)

    async def return_node(self, cluster: Cluster, node: str, person: str) -> str:
        """Returns a node to service in the name of a person. Returns what was done."""
        from headway.health.manual_actions import return_node

        held = await self._held(cluster)
        async with self._turn(cluster, held):
            return await return_node(self._responder(cluster, held).context, node, person)

    async def reboot_node(self, cluster: Cluster, node: str, person: str, *, busy: bool) -> Awaitable[str]:
        """Returns the reboot as an awaitable, which returns what went wrong, "" if it succeeded. `busy` allows it
        while jobs run."""
        from headway.health.manual_actions import check_reboot

        await check_reboot(await self._tools(cluster), node, end_jobs=busy)
        return self._rebooted(cluster, node, person, busy=busy)

    async def reboot_again(self, cluster: Cluster, node: str) -> tuple[str, Awaitable[str]] | None:
        """Returns (person, reboot) for a reboot that a stopped server has not finished; None if there is none or it
        is running."""
        from headway.health.manual_actions import person_rebooting

        if await self._store.presence.in_turn(f"reboot/{cluster.name}/{node}"):
            return None
        person = await person_rebooting(await self._tools(cluster), node)
        return (person, self._rebooted(cluster, node, person, busy=False)) if person else None

    async def _rebooted(self, cluster: Cluster, node: str, person: str, *, busy: bool) -> str:
        from headway.health.manual_actions import reboot_node

        async with self._store.presence.turn(f"reboot/{cluster.name}/{node}"):
            return await reboot_node(await self._tools(cluster), node, person, end_jobs=busy)

    async def test_node(self, cluster: Cluster, node: str, *, hard: bool) -> tuple[tuple[str, bool, str], ...]:
        """Runs a node's tests. Returns (name, passed, text) for each. `hard` adds the tests that need an idle node."""
        from headway.health.incidents.verification import run_node_tests

        tools = self._responder(cluster, await self._held(cluster)).context
        return tuple((one.name, one.ok, one.text) for one in (await run_node_tests(tools, node, thorough=hard)).results)

    async def inject(self, cluster: Cluster, fault: FaultIn) -> str:
        """Injects a fault into a local cluster, or removes it. Returns what was done."""
        from headway.health.fault_injection import inject_fault

        if fault.daemon is Daemon.SERVER:
            if fault.heal:
                return "the server runs"
            asyncio.get_running_loop().call_later(_LAST_WORD_S, os.kill, os.getpid(), signal.SIGKILL)
            return "the server is killed; headway server start brings it back"
        return await inject_fault(cluster, (await self._held(cluster)).env, fault)
