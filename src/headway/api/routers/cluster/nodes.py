"""One node: what is known of it, and what operators do with it."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Awaitable

from fastapi import APIRouter

from headway.api.auth.dependencies import Anyone, Operator, State
from headway.api.http.pagination import ANY, Page, States, Text, Words, fits, says
from headway.domain.cluster import Cluster
from headway.domain.incident import REBOOTS, Incident, XidClass
from headway.errors import Conflict, HeadwayError, NotFound
from headway.schemas.clusters import NodeOut
from headway.schemas.nodes import DeedOut, DoneOut, DrainIn, NodeDetailOut, NodeTestIn, RebootIn, TestOut
from headway.services.authorization import write_audit_line
from headway.services.context import AppState
from headway.services.mappers import incident_out, node_outs

router = APIRouter(prefix="/clusters/{name}/nodes", tags=["nodes"])
_BUSY = frozenset({"ALLOCATED", "MIXED", "COMPLETING"})


@router.get("")
async def nodes(
    name: str,
    state: State,
    _: Anyone,
    page: Page,
    status: States = ANY,
    role: Words = ANY,
    leaf: Words = ANY,
    partition: Words = ANY,
    usable: bool | None = None,
    q: Text = "",
) -> list[NodeOut]:
    """The head and every node of the cluster's file, as last seen."""
    cluster = await state.known(name)
    found = [
        one
        for one in node_outs(cluster, await state.seen(cluster))
        if fits(one.role, role)
        and fits(one.leaf, leaf)
        and (not status or not {word.upper() for word in status}.isdisjoint(one.states))
        and (not partition or not partition.isdisjoint(one.partitions))
        and usable in (None, one.usable)
        and says(q, one.name, one.reason)
    ]
    return page.cut(found, lambda one: (one.role != "head", *_parts(one.name)))


def _parts(name: str) -> tuple[str | int, ...]:
    """lab-1-2 before lab-1-10."""
    return tuple(int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name))


@router.get("/{node}")
async def node(name: str, node: str, state: State, _: Anyone) -> NodeDetailOut:
    """As last read."""
    cluster = await _place(state, name, node)
    incident = await _open_incident(state, name, node)
    out = next((one for one in node_outs(cluster, state.live.snapshot(name)) if one.name == node), None)
    if out is None:
        raise NotFound(f"{node} is a slot without a machine now", hint=f"headway nodes {name}")
    return NodeDetailOut(
        node=out,
        simulated_gpus=cluster.simulated_gpus and bool(out.gpus),
        incident=incident_out(await state.store.incidents.get(incident.number)) if incident else None,
        deed=state.node_actions.get((name, node)),
    )


@router.post("/{node}/drain")
async def drain(name: str, node: str, ask: DrainIn, state: State, who: Operator) -> DoneOut:
    """No new job starts there; running ones go on. It stays so until somebody returns the node."""
    cluster = await _place(state, name, node)
    done = await state.work.drain_node(cluster, node, " ".join(ask.reason.split()), who.person)
    await _did(state, who, "node.drain", name, node, done, reason=ask.reason)
    return DoneOut(done=done)


@router.post("/{node}/return")
async def bring_back(name: str, node: str, state: State, who: Operator) -> DoneOut:
    """Back to service. A node with an open incident is tested first, which takes as long as its tests do."""
    cluster = await _place(state, name, node)
    incident = await _open_incident(state, name, node)
    if incident is not None:
        over = await state.work.bring_back(cluster, incident.number, who.person, false_alarm=False)
        done = f"incident {over.number}: {over.steps[-1].text}"
    else:
        done = await state.work.return_node(cluster, node, who.person)
    await _did(state, who, "node.return", name, node, done)
    return DoneOut(done=done)


@router.post("/{node}/reboot", status_code=202)
async def reboot(name: str, node: str, ask: RebootIn, state: State, who: Operator) -> DeedOut:
    """Only without jobs there, or with `busy`. Goes on after the answer: GET the node for how it ended. One that was in
    service returns by itself once its tests have passed."""
    cluster = await _place(state, name, node)
    incident = await _open_incident(state, name, node)
    if incident is not None:
        raise Conflict(
            f"{node} is under incident {incident.number}, which repairs it: {incident.state.value}",
            hint=f"headway incident show {incident.number}",
        )
    _free(state, name, node)
    going = await state.work.reboot_node(cluster, node, who.person, busy=ask.busy)
    await _did(state, who, "node.reboot", name, node, f"{who.person} reboots it", busy=ask.busy)
    return _begin(state, name, node, DeedOut(kind="reboot", person=who.person, begun_at=state.clock()), going)


async def go_on_with_reboots(state: AppState, cluster: Cluster) -> None:
    """Those that a server was ended under: their nodes are drained for nothing else, and their machines may be off."""
    for node in state.live.snapshot(cluster.name).nodes:
        deed = state.node_actions.get((cluster.name, node.name))
        if not node.reason.endswith(f": {REBOOTS}") or (deed is not None and deed.ended_at is None):
            continue
        found = await state.work.reboot_again(cluster, node.name)
        if found is not None:
            person, going = found
            state.live.note(cluster.name, f"the reboot that {person} asked for goes on", where=node.name)
            deed = DeedOut(kind="reboot", person=person, begun_at=state.clock())
            _begin(state, cluster.name, node.name, deed, going)


@router.post("/{node}/test", status_code=202)
async def test(name: str, node: str, ask: NodeTestIn, state: State, who: Operator) -> DeedOut:
    """Runs the node's tests and changes nothing. `hard` ones only where no job runs. Goes on after the answer."""
    cluster = await _place(state, name, node)
    _free(state, name, node)
    known = next((one for one in state.live.snapshot(name).nodes if one.name == node), None)
    if ask.hard and known is not None and _BUSY.intersection(known.states):
        raise Conflict(f"jobs run on {node}: hard tests would disturb them", hint="drain it and wait")
    await write_audit_line(state, who, "node.test", f"{name}/{node}", hard=ask.hard)
    deed = DeedOut(kind="test", person=who.person, begun_at=state.clock())
    return _begin(state, name, node, deed, _test(state, cluster, node, deed, hard=ask.hard))


async def _test(state: AppState, cluster: Cluster, node: str, deed: DeedOut, *, hard: bool) -> str:
    found = await state.work.test_node(cluster, node, hard=hard)
    deed.tests = [TestOut(name=name, ok=ok, text=text) for name, ok, text in found]
    return next((one.text or f"{one.name} failed" for one in deed.tests if not one.ok), "")


def _begin(state: AppState, name: str, node: str, deed: DeedOut, work: Awaitable[str]) -> DeedOut:
    """Goes on beside; its result stays with the node."""

    async def go_on() -> None:
        try:
            deed.fault = await work
        except HeadwayError as error:
            deed.fault = error.message.splitlines()[0]
        finally:
            deed.ended_at = state.clock()
        words = deed.fault or ("it runs again" if deed.kind == "reboot" else "all tests passed")
        level = "error" if deed.fault else "info"
        state.live.note(name, f"{deed.kind} asked by {deed.person}: {words}", level=level, where=node)
        with contextlib.suppress(HeadwayError):
            _, cluster = await state.cluster(name)
            await state.read(cluster, max_age_s=0)

    state.node_actions[name, node] = deed
    task = asyncio.create_task(go_on(), name=f"{deed.kind} {node}")
    state.beside.add(task)
    task.add_done_callback(state.beside.discard)
    return deed.model_copy()


def _free(state: AppState, name: str, node: str) -> None:
    deed = state.node_actions.get((name, node))
    if deed is not None and deed.ended_at is None:
        raise Conflict(
            f"a {deed.kind} of {node} is under way since {deed.person} asked for it", hint="wait for its end"
        )


async def _did(
    state: AppState, who: Operator, action: str, name: str, node: str, words: str, **detail: str | bool
) -> None:
    """Noted, and the cluster read anew, so that the next look shows it."""
    await write_audit_line(state, who, action, f"{name}/{node}", **detail)
    state.live.note(name, words, where=node)
    with contextlib.suppress(HeadwayError):
        _, cluster = await state.cluster(name)
        await state.read(cluster, max_age_s=0)


async def _place(state: AppState, name: str, node: str) -> Cluster:
    _, cluster = await state.cluster(name)
    if node not in cluster.slot_names:
        raise NotFound(f"{name} has no node {node}", hint=f"headway nodes {name}")
    return cluster


async def _open_incident(state: AppState, name: str, node: str) -> Incident | None:
    """A fault of the node's: that a machine can't be made, or given back, is none."""
    found = await state.store.incidents.search(name, node=node, unfinished=True)
    return next((one for one in found if one.action is not XidClass.MAKE), None)
