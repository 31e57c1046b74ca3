"""Actions on nodes: the health loop, events of the agents, and what people do to a node (drain, return, reboot, test)."""

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
_LAST_WORD_S = 0.3  # the answer goes out before a server kills itself


class NodeActions(ConnectionPool):
    """One who acts on a cluster's faults at a time (`_turn`)."""

    @contextlib.asynccontextmanager
    async def _turn(self, cluster: Cluster, held: ClusterConnections) -> AsyncIterator[None]:
        """Here, and of all servers on the database."""
        async with held.acting, self._store.presence.turn(f"acting/{cluster.name}"):
            yield

    async def step(
        self, cluster: Cluster, nodes: Iterable[NodeState], jobs: Iterable[JobState]
    ) -> list[tuple[str, str]]:
        """One look of the cluster's watch, which acts on faults."""
        from headway.health.context import fault_text
        from headway.health.jobs.stall_watchdog import StallWatchdog
        from headway.health.reconciler import HealthReconciler

        held = await self._held(cluster)
        held.cluster = cluster
        responder = self._responder(cluster, held)
        if held.watch is None:
            held.watch = HealthReconciler(cluster, held.env, responder, StallWatchdog(cluster, held.env))
        held.watch.cluster = held.watch.stall_watchdog.cluster = cluster
        held.jobs = tuple(jobs)
        async with self._turn(cluster, held):
            try:
                said = await responder.handle_reclaim_notices() + await responder.resume_open()
                responder.last_faults.pop(0, None)
            except HeadwayError as error:  # nodes that die are seen to all the same
                said = responder.report_once(0, cluster.name, fault_text(error))
            said += await held.watch.reconcile(nodes, held.jobs)
            await self._follow(cluster, held)
        return said + await self._wake(cluster, held)

    async def hurry(self, cluster: Cluster) -> list[tuple[str, str]]:
        """What can't wait until an operation has ended: machines that are taken back."""
        held = await self._held(cluster)
        async with self._turn(cluster, held):
            responder = self._responder(cluster, held)
            return await responder.handle_reclaim_notices() + await responder.resume_open(only=FaultAction.RECLAIM)

    async def _wake(
        self, cluster: Cluster, held: ClusterConnections, *, at_once: bool = False
    ) -> list[tuple[str, str]]:
        """Makes and gives back machines as Slurm wishes, where groups scale by themselves."""
        from headway.autoscale.executor import Autoscaler

        if held.making.locked():
            return []
        async with held.making:
            if held.waker is None:
                held.waker = Autoscaler(cluster, held.env)
            held.waker.cluster = cluster
            return await held.waker.scale(at_once=at_once)

    @contextlib.asynccontextmanager
    async def _alone(self, cluster: Cluster) -> AsyncIterator[ClusterConnections]:
        """Nobody else makes machines of the cluster meanwhile."""
        held = await self._held(cluster)
        async with held.making:  # first: a look that is under way may begin another machine
            if held.waker is not None:
                await held.waker.pause()
                held.waker = None
            yield held

    async def _follow(self, cluster: Cluster, held: ClusterConnections) -> None:
        """When jobs that were moved run again, and have done something again."""
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
        """Acts on what the nodes' agents say, as it comes; yields what was done, for people to read. Ends, or raises, when
        the head can't be heard any more. `calm`: whether no operation is at work, which may restart machines itself.
        `turned` is told the jobs that begin or end on a node (True), and those that the controller's log names (False)."""
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
                if said and said != before:  # that many nodes are silent is said once
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
            if not (calm and (news.silent_s or responder.has_finished_tasks)):
                return []
        async with self._turn(cluster, held):
            if isinstance(news, Signal):
                return await responder.handle_signal(news, held.jobs)
            if isinstance(news, Heartbeats):
                return await responder.handle_heartbeats(news, time.time()) + (
                    await responder.resume_open() if responder.has_finished_tasks else []
                )
            return await responder.handle_offline_action(news)

    async def _settle(self, cluster: Cluster) -> Messages:
        """A node was taken out: the spare takes over now, not with the next look."""
        reading = await self.read(cluster)
        return await self.step(cluster, reading.nodes, reading.jobs)

    def _responder(self, cluster: Cluster, held: ClusterConnections) -> IncidentEngine:
        from headway.health.incidents.engine import IncidentEngine

        if held.responder is None:
            held.responder = IncidentEngine(cluster, held.env)
        held.responder.cluster = cluster
        return held.responder

    async def _tools(self, cluster: Cluster) -> HealthContext:
        return self._responder(cluster, await self._held(cluster)).context

    async def bring_back(self, cluster: Cluster, number: int, person: str, *, false_alarm: bool) -> Incident:
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
        """The incident once the server that leads has its tests behind it."""
        while True:
            found = await self._store.incidents.get(number)
            if found.state is not IncidentState.TESTING:
                return found
            await asyncio.sleep(_LOOK_S)

    async def drain_node(self, cluster: Cluster, node: str, reason: str, person: str) -> str:
        from headway.health.manual_actions import drain_node

        held = await self._held(cluster)
        async with self._turn(cluster, held):
            return await drain_node(self._responder(cluster, held).context, node, reason, person)

    async def return_node(self, cluster: Cluster, node: str, person: str) -> str:
        from headway.health.manual_actions import return_node

        held = await self._held(cluster)
        async with self._turn(cluster, held):
            return await return_node(self._responder(cluster, held).context, node, person)

    async def reboot_node(self, cluster: Cluster, node: str, person: str, *, busy: bool) -> Awaitable[str]:
        from headway.health.manual_actions import check_reboot

        await check_reboot(await self._tools(cluster), node, end_jobs=busy)
        return self._rebooted(cluster, node, person, busy=busy)

    async def reboot_again(self, cluster: Cluster, node: str) -> tuple[str, Awaitable[str]] | None:
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
        from headway.health.incidents.verification import run_node_tests

        tools = self._responder(cluster, await self._held(cluster)).context
        return tuple((one.name, one.ok, one.text) for one in (await run_node_tests(tools, node, thorough=hard)).results)

    async def inject(self, cluster: Cluster, fault: FaultIn) -> str:
        from headway.health.fault_injection import inject_fault

        if fault.daemon is Daemon.SERVER:
            if fault.heal:
                return "the server runs"
            asyncio.get_running_loop().call_later(_LAST_WORD_S, os.kill, os.getpid(), signal.SIGKILL)
            return "the server is killed; headway server start brings it back"
        return await inject_fault(cluster, (await self._held(cluster)).env, fault)
