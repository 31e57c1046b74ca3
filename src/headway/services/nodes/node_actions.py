"""Actions of operators on a node: drain, return, reboot, test."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable

from headway.domain.cluster import Cluster
from headway.domain.slurm.node_reasons import rebooting_person
from headway.domain.slurm.nodes_and_jobs import BUSY
from headway.errors import Conflict, HeadwayError
from headway.schemas.nodes.nodes import DoneOut, NodeActionOut, TestOut
from headway.services.access.audit import write_audit_line
from headway.services.access.role_rights import Principal
from headway.services.app_state import AppState
from headway.services.nodes.node_details import cluster_with_node, open_incident


async def drain_node(state: AppState, who: Principal, name: str, node: str, reason: str) -> DoneOut:
    """Drains the node: running jobs continue, and no new job starts until the node is returned to service."""
    cluster = await cluster_with_node(state, name, node)
    done = await state.backend.nodes.drain_node(cluster, node, " ".join(reason.split()), who.person)
    await _record_action(state, who, "node.drain", name, node, done, reason=reason)
    return DoneOut(done=done)


async def return_node(state: AppState, who: Principal, name: str, node: str) -> DoneOut:
    """Returns the node to service. With an open incident its tests run first, and this waits for them."""
    cluster = await cluster_with_node(state, name, node)
    incident = await open_incident(state, name, node)
    if incident is not None:
        closed = await state.backend.nodes.return_incident_node(cluster, incident.number, who.person, false_alarm=False)
        done = f"incident {closed.number}: {closed.steps[-1].text}"
    else:
        done = await state.backend.nodes.return_node(cluster, node, who.person)
    await _record_action(state, who, "node.return", name, node, done)
    return DoneOut(done=done)


async def start_reboot(state: AppState, who: Principal, name: str, node: str, *, busy: bool) -> NodeActionOut:
    """Starts a reboot in the background; `load_node_details` shows its result. A node that was in service is returned to service
    once its tests pass. Raises Conflict during an incident or another reboot or test, and for running jobs unless
    `busy`."""
    cluster = await cluster_with_node(state, name, node)
    incident = await open_incident(state, name, node)
    if incident is not None:
        raise Conflict(
            f"{node} is under incident {incident.number}, which repairs it: {incident.state.value}",
            hint=f"headway incident show {incident.number}",
        )
    _require_idle(state, name, node)
    work = await state.backend.nodes.reboot_node(cluster, node, who.person, busy=busy)
    await _record_action(state, who, "node.reboot", name, node, f"{who.person} reboots it", busy=busy)
    return _run_in_background(
        state, name, node, NodeActionOut(kind="reboot", person=who.person, begun_at=state.clock()), work
    )


async def resume_reboots(state: AppState, cluster: Cluster) -> None:
    """Continues the reboots that an earlier server process began: their nodes are drained, and their machines may be
    off."""
    for node in state.live.snapshot(cluster.name).nodes:
        action = state.node_actions.get((cluster.name, node.name))
        if not rebooting_person(node.reason) or (action is not None and action.ended_at is None):
            continue
        found = await state.backend.nodes.resume_reboot(cluster, node.name)
        if found is not None:
            person, work = found
            state.live.add_recent_event(cluster.name, f"resuming the reboot that {person} requested", where=node.name)
            action = NodeActionOut(kind="reboot", person=person, begun_at=state.clock())
            _run_in_background(state, cluster.name, node.name, action, work)


async def start_tests(state: AppState, who: Principal, name: str, node: str, *, hard: bool) -> NodeActionOut:
    """Starts the node's tests in the background; they change nothing. Raises Conflict for `hard` tests while jobs run
    there."""
    cluster = await cluster_with_node(state, name, node)
    _require_idle(state, name, node)
    known = next((state_now for state_now in state.live.snapshot(name).nodes if state_now.name == node), None)
    if hard and known is not None and BUSY.intersection(known.states):
        raise Conflict(f"jobs run on {node}: hard tests would disturb them", hint="drain it and wait")
    await write_audit_line(state, who, "node.test", f"{name}/{node}", hard=hard)
    action = NodeActionOut(kind="test", person=who.person, begun_at=state.clock())
    return _run_in_background(state, name, node, action, _run_tests(state, cluster, node, action, hard=hard))


async def _run_tests(state: AppState, cluster: Cluster, node: str, action: NodeActionOut, *, hard: bool) -> str:
    found = await state.backend.nodes.test_node(cluster, node, hard=hard)
    action.tests = [TestOut(name=name, ok=ok, text=text) for name, ok, text in found]
    return next((test.text or f"{test.name} failed" for test in action.tests if not test.ok), "")


def _run_in_background(
    state: AppState, name: str, node: str, action: NodeActionOut, work: Awaitable[str]
) -> NodeActionOut:
    """Runs `work` (which returns a fault or "") after the response. The result is stored in `AppState.node_actions`."""

    async def run() -> None:
        try:
            action.fault = await work
        except HeadwayError as error:
            action.fault = error.first_line
        finally:
            action.ended_at = state.clock()
        words = action.fault or ("it is running again" if action.kind == "reboot" else "all tests passed")
        level = "error" if action.fault else "info"
        state.live.add_recent_event(
            name, f"{action.kind} requested by {action.person}: {words}", level=level, where=node
        )
        with contextlib.suppress(HeadwayError):
            _, cluster = await state.clusters.get(name)
            await state.readings.refresh(cluster, max_age_s=0)

    state.node_actions[name, node] = action
    task = asyncio.create_task(run(), name=f"{action.kind} {node}")
    state.background_tasks.add(task)
    task.add_done_callback(state.background_tasks.discard)
    return action.model_copy()


def _require_idle(state: AppState, name: str, node: str) -> None:
    """Raises Conflict while a reboot or test of the node is running."""
    action = state.node_actions.get((name, node))
    if action is not None and action.ended_at is None:
        raise Conflict(
            f"a {action.kind} of {node}, requested by {action.person}, is under way", hint="wait until it has ended"
        )


async def _record_action(
    state: AppState, who: Principal, action: str, name: str, node: str, words: str, **detail: str | bool
) -> None:
    """Writes the audit entry and the event, and reads the cluster again so that pages show the change."""
    await write_audit_line(state, who, action, f"{name}/{node}", **detail)
    state.live.add_recent_event(name, words, where=node)
    with contextlib.suppress(HeadwayError):
        _, cluster = await state.clusters.get(name)
        await state.readings.refresh(cluster, max_age_s=0)
