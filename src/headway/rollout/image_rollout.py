"""Rolls a new node image out, node by node: each node is drained, created again from the image, tested and returned.
The first node has to pass its tests before others are touched; until then machines created for other reasons use the
previous image. The state of a rollout is in the nodes' reasons in Slurm and in the provider's list, so the next run
continues a killed one."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

from headway.cluster.apply import apply_cluster
from headway.cluster.changeset_execution import MAKE_AT_ONCE
from headway.cluster.observe import heads_with_other_slurm, machines_with_other_slurm
from headway.cluster.owned import host_containers
from headway.cluster.readiness import wait_for_nodes
from headway.cluster.scaling.job_eviction import JobEviction, format_jobs
from headway.cluster.scaling.provision_slot import provision_machine
from headway.domain.changeset import ChangeSet
from headway.domain.cluster import Cluster
from headway.domain.machines.machine import MachineState
from headway.domain.machines.slots import ROLLOUT_REASON, choose_slots
from headway.domain.progress import ReportProgress
from headway.domain.slurm.hostlist import compress
from headway.domain.slurm.state import OUT
from headway.errors import HeadwayError, Refused
from headway.health.context import HealthContext, fault_text
from headway.health.incidents.node_tests import run_node_tests
from headway.health.incidents.repair import BOOT_S, wait_until_registered
from headway.images import build, local_images, recipe
from headway.images.local_images import ImageInfo
from headway.rollout.rollout_changes import (
    RolloutState,
    heads_to_roll,
    leader_text,
    nodes_left_out,
    nodes_to_roll,
    rollout_changes,
)
from headway.slurm import node_commands, node_jobs
from headway.store.db.rows import NodeImage

POLL_S = 2.0
NODES_PER_SLOT = 10  # one node per this many is out of service at a time

CreationLock = Callable[[], AbstractAsyncContextManager[object]]
OperationWaits = Callable[[], Awaitable[bool]]


async def plan_rollout(context: HealthContext, *, back: bool, head: bool, by: bool) -> ChangeSet:
    """Returns what a rollout would do now. Builds no image."""
    await _check_has_images(context)
    cluster = context.cluster
    if back:
        info = await _previous_image(context)
        if head:
            _check_way_back(cluster, info)
        number, tag, version = info.id, info.tag, info.slurm_version
    else:
        found = await local_images.find_current_image(cluster.image)
        number, tag, version = found.id if found else "", recipe.current_tag(cluster.image), cluster.slurm_version
    seen = await read_rollout_state(context)
    apart = await _has_mixed_slurm(cluster, seen, version)
    return rollout_changes(cluster, seen, number, tag, head=head, deadline=by, mixed_slurm=apart)


async def roll_nodes(
    context: HealthContext,
    report: ReportProgress,
    alone: CreationLock,
    waits: OperationWaits,
    *,
    back: bool,
    until: float | None,
) -> bool:
    """Rolls all nodes in service to the current image, with `back` to the previous one. Returns False if another
    operation has to go first (`waits`). `until`: unix seconds from which jobs are requeued. `alone`: lock under which
    no other code creates machines. Raises Refused when a node fails its tests; that node stays drained, the others stay
    as they were."""
    await _check_has_images(context)
    await _check_heads(context)
    store, name = context.cluster_context.store, context.cluster.name
    kept = await store.node_images.get(name)
    if back:
        info = await _previous_image(context)
        await store.node_images.set(name, NodeImage(info.tag, info.tag))
    else:
        info = await build.ensure_image(context.cluster.image, report, state_dir=context.cluster_context.state_dir)
        before = await _most_common_image(context, info) or kept.before
        # No machine may be created with a Slurm version other than the heads', except when rolling back: see
        # `_has_mixed_slurm`.
        same = any(
            image.tag == before and image.slurm_version == info.slurm_version
            for image in await local_images.list_images()
        )
        await store.node_images.set(name, NodeImage(before if same else "", before))
    work = NodeRollout(context, report, info, alone, waits, until)
    if not await work.roll_all():
        return False
    if not back:
        await store.node_images.set(name, NodeImage("", (await store.node_images.get(name)).before))
    return True


async def roll_heads(context: HealthContext, report: ReportProgress, *, back: bool) -> None:
    """Rolls the heads, after their nodes. Jobs on nodes continue. The second head is rolled first, and no head is
    rolled while the other is missing."""
    cluster, cluster_context = context.cluster, context.cluster_context
    if back:
        _check_way_back(cluster, await _previous_image(context))
    info = await (
        _previous_image(context)
        if back
        else build.ensure_image(cluster.image, report, state_dir=cluster_context.state_dir)
    )
    machines = await context.machines()
    imaged = {name: machine for name, machine in machines.items() if machine.image}
    due = heads_to_roll(cluster, RolloutState(imaged), info.id)
    served = await _nodes_in_service(context) if due else frozenset()

    async def set_up() -> None:
        await apply_cluster(cluster, cluster_context, report)
        await wait_for_nodes(cluster, cluster_context, await context.head(), served)

    if not due or not set(cluster.heads) <= machines.keys():
        await set_up()
    for name in due:
        machine = machines[name]
        await report(name, f"its machine is recreated from {info.tag}; {leader_text(cluster, name)}")
        if machine.host is not None:
            await host_containers.rebuild(cluster, cluster_context, machine, machine.host, info.tag, report)
        else:
            if machine.state is MachineState.RUNNING:
                await cluster_context.provider.stop(machine)
            await cluster_context.provider.delete(machine)
        await cluster_context.connections.drop(name)
        await set_up()


async def _nodes_in_service(context: HealthContext) -> frozenset[str]:
    """Returns the nodes in service, none if the head does not answer, because such a head is created again all the
    same."""
    with contextlib.suppress(HeadwayError):
        seen = await read_rollout_state(context)
        return frozenset(seen.machines) & frozenset(context.cluster.slot_names) - seen.out.keys() - seen.rolling
    return frozenset()


async def halt_rollout(context: HealthContext, report: ReportProgress) -> None:
    """Stops a rollout: returns drained nodes to service that were not created again. A node with an untested image
    stays drained."""
    seen, head = await read_rollout_state(context), await context.head()
    reasons = await node_commands.read_node_reasons(context.cluster_context.connections, head)
    nodes = {name: node_machine for name, node_machine in seen.machines.items() if name in context.cluster.group_of}
    serves = {machine.image for name, machine in nodes.items() if name not in seen.rolling and name not in seen.out}
    before = (await context.cluster_context.store.node_images.get(context.cluster.name)).before
    serves |= {info.id for info in await local_images.list_images() if info.tag == before}
    if not serves and len(seen.rolling) > 1:
        # A rollout creates one node again before all others, so the image of most nodes is the previous one.
        serves = {number for number, _ in Counter(node.image for node in nodes.values()).most_common(1)}
    for name in sorted(seen.rolling):
        machine = seen.machines.get(name)
        there = machine is not None and machine.state is MachineState.RUNNING
        if there and reasons[name][1] == ROLLOUT_REASON and (name in seen.busy or seen.machines[name].image in serves):
            kept = await node_commands.resume_node_if(
                context.cluster_context.connections, head, name, _reason_is_rollout
            )
            words = f"stays out of service: {kept}" if kept else "is in service again with its former image"
            await report(name, words, done=True)
        else:
            words = "stays drained: headway roll continues with it; --back returns to the previous image"
            await report(name, words, level="warning", done=True)


async def read_rollout_state(context: HealthContext) -> RolloutState:
    """Returns the facts that a rollout decides by. Raises Unreachable if the controller does not answer."""
    connections, head = context.cluster_context.connections, await context.head()
    machines = {name: machine for name, machine in (await context.machines()).items() if machine.image}
    states = await node_commands.read_node_reasons(connections, head)
    busy = await node_jobs.jobs_by_node(connections, head)
    rolling = {name for name, (_, reason) in states.items() if reason.startswith(ROLLOUT_REASON)}
    out = {
        name: reason if reason != "none" else word
        for name, (word, reason) in states.items()
        if name not in rolling and not node_commands.is_in_service(word)
    }
    return RolloutState(machines, busy, frozenset(rolling), out)


@dataclass
class NodeRollout:
    """The rollout of a cluster's nodes; see `roll_nodes`."""

    context: HealthContext
    report: ReportProgress
    image: ImageInfo
    lock: CreationLock
    other_operation_waits: OperationWaits
    until: float | None = None
    mixed_slurm: bool | None = None  # see `_has_mixed_slurm`; None: not known yet
    image_tested: bool = False  # one node has passed its tests on this image
    controller_away: bool = False  # the controller did not answer when it was last asked
    reported_waits: tuple[object, ...] = ()
    eviction: JobEviction | None = None

    async def roll_all(self) -> bool:
        """Rolls all nodes. Returns False if another operation waits, True when all are done."""
        while True:
            seen = await self._read_state()
            if await self.other_operation_waits():
                await self.report("roll", "another operation runs first", level="warning", done=True)
                return False
            if seen is not None:
                left = nodes_to_roll(self.context.cluster, seen, self.image.id)
                if not left:
                    await self._report_left_out(seen)
                    return True
                if await self._step(seen, left):
                    continue
            await self.context.sleep(POLL_S)

    async def _read_state(self) -> RolloutState | None:
        """Returns the rollout state, None while the controller does not answer. A rollout may take days, and a head may
        be restarted meanwhile."""
        try:
            seen = await read_rollout_state(self.context)
        except HeadwayError as error:
            await self._report_controller_away(error)
            return None
        if self.mixed_slurm is None:
            self.mixed_slurm = await _has_mixed_slurm(self.context.cluster, seen, self.image.slurm_version)
        return seen

    async def _report_controller_away(self, error: HeadwayError) -> None:
        if not self.controller_away:
            await self.report("roll", f"waits for the controller: {error.first_line}", level="warning")
        self.controller_away = True

    async def _step(self, seen: RolloutState, left: Sequence[str]) -> bool:
        """Does what is due now. Returns whether anything was done, so that the state has to be read again at once."""
        width = self._nodes_at_once(len(self.context.cluster.slot_names))
        going = [name for name in left if name in seen.rolling]
        empty = [name for name in going if name not in seen.busy][:width]
        if empty:
            self.controller_away = False
            await self._rebuild(empty)
            return True
        try:
            done = await self._drain_and_evict(seen, left, going, width)
        except HeadwayError as error:
            await self._report_controller_away(error)
            return False
        self.controller_away = False
        return done

    async def _drain_and_evict(self, seen: RolloutState, left: Sequence[str], going: Sequence[str], width: int) -> bool:
        """Drains the next nodes and, after the deadline, requeues their jobs. Returns whether anything was done."""
        late = self.until is not None and self.context.clock() >= self.until
        drained = self._to_drain(seen, left, going, width, late=late)
        if drained:
            await node_commands.drain_nodes(
                self.context.cluster_context.connections, await self.context.head(), drained, ROLLOUT_REASON
            )
            return True
        jobs = {name: seen.busy[name] for name in left if name in seen.busy}
        away = await self._job_eviction()
        if late:
            return not await away.evict_jobs({name: jobs[name] for name in going[:width]})
        if self.until is not None:
            await away.warn_jobs(jobs, self.until)
        await self._report_waits({name: jobs[name] for name in going})
        return False

    def _to_drain(
        self, seen: RolloutState, left: Sequence[str], going: Sequence[str], width: int, *, late: bool
    ) -> list[str]:
        """Returns the nodes to drain now: idle nodes first, otherwise as many busy ones as may be out of service at a
        time. Returns all nodes after the deadline, so that requeued jobs never start on a node that is still to be
        rolled, and with mixed Slurm versions, so that no job gets nodes of both."""
        others = [name for name in left if name not in seen.rolling]
        idle = [name for name in others if name not in seen.busy]
        if self.mixed_slurm or (late and self.image_tested):
            return others
        return idle[:width] or others[: max(0, width - len(going))]

    def _nodes_at_once(self, count: int) -> int:
        """Returns how many nodes may be out of service at a time."""
        if not self.image_tested:
            return 1
        return MAKE_AT_ONCE if self.mixed_slurm else max(1, min(MAKE_AT_ONCE, count // NODES_PER_SLOT))

    async def _job_eviction(self) -> JobEviction:
        head = await self.context.head()
        if self.eviction is None or self.eviction.head != head:
            context = self.context
            why = "its node is rebuilt"
            self.eviction = JobEviction(
                context.cluster, context.cluster_context, self.report, head, why, context.clock, context.sleep
            )
        return self.eviction

    async def _rebuild(self, names: Sequence[str]) -> None:
        """Rolls those of the nodes that are still drained for the rollout and idle, under the lock for creating
        machines. While it waited for the lock, other code may have returned a node to service. Raises Refused naming
        the nodes that failed."""
        async with self.lock():
            seen = await self._read_state()
            if seen is None:
                return
            names = [name for name in names if name in seen.rolling and name not in seen.busy]
            faults = await asyncio.gather(*(self._roll_node(name, seen) for name in names), return_exceptions=True)
        for fault in faults:  # all tasks have ended here, so no task works on a machine after the lock is released
            if isinstance(fault, BaseException):
                raise fault
        failed = {name: fault for name, fault in zip(names, faults, strict=True) if fault}
        if failed:
            alone = f"{compress(failed)} stays drained, no other node is changed"
            if self.mixed_slurm and not self._image_is_in_service(seen):
                await self._return_drained(seen, failed.keys())
            elif self.mixed_slurm:
                alone = f"{compress(failed)} stays drained, as do the remaining nodes with another Slurm version"
            raise Refused(
                f"the roll stops: on {self.image.tag} "
                + "; ".join(f"{name}: {fault}" for name, fault in failed.items()),
                hint=f"{alone}; headway roll {self.context.cluster.name} "
                "tries again; --back returns to the previous image",
            )
        if names and not self.image_tested:
            self.image_tested = True
            store, cluster = self.context.cluster_context.store, self.context.cluster.name
            kept = await store.node_images.get(cluster)
            if kept.pinned != self.image.tag:
                await store.node_images.set(cluster, NodeImage("", kept.before))

    def _image_is_in_service(self, seen: RolloutState) -> bool:
        """Returns whether a node of the image is in service."""
        out = seen.rolling | seen.out.keys()
        nodes = (
            machine
            for name, machine in seen.machines.items()
            if name in self.context.cluster.group_of and name not in out
        )
        return any(machine.image == self.image.id for machine in nodes)

    async def _return_drained(self, seen: RolloutState, failed: Collection[str]) -> None:
        """Returns nodes to service that were drained only so that no job shares nodes with the failed one."""
        for name in sorted(seen.rolling - set(failed)):
            machine = seen.machines.get(name)
            if machine is not None and machine.image != self.image.id and machine.state is MachineState.RUNNING:
                await node_commands.resume_node_if(
                    self.context.cluster_context.connections, await self.context.head(), name, _reason_is_rollout
                )

    async def _roll_node(self, name: str, seen: RolloutState) -> str:
        """Rolls one node. Returns what went wrong, "" once the node is done."""
        context, began = self.context, self.context.clock()
        if not self._machine_is_wanted(name, seen):
            run, head = context.cluster_context.connections, await context.head()
            await node_commands.set_removed_nodes_down(run, head, [name], "headway: no machine")
            return ""
        try:
            fault = await self._recreate_machine(name) or await wait_until_registered(context, name, BOOT_S)
        except HeadwayError as error:
            fault = fault_text(error)
        if not fault:
            await self.report(name, "is being tested")
            fault = (await run_node_tests(context, name, thorough=not self.image_tested)).fault
        connections, head = context.cluster_context.connections, await context.head()
        if fault:
            states, reason = await context.node_state(name)
            if not states & OUT or _reason_is_rollout(reason):
                await node_commands.drain_node(connections, head, name, f"{ROLLOUT_REASON}: {fault}")
            await self.report(name, fault, level="error", done=True)
            return fault
        kept = await node_commands.resume_node_if(connections, head, name, _reason_is_rollout)
        if kept:
            words = f"is of {self.image.tag} and has passed its tests; it stays out of service: {kept}"
            await self.report(name, words, level="warning", done=True)
            return ""
        # slurmctld may set a node that comes back quickly down only now, because a request to its old machine was never
        # answered.
        await wait_until_registered(context, name, BOOT_S)
        words = f"is of {self.image.tag}, has passed its tests and is in service"
        await self.report(name, words, done=True, seconds=context.clock() - began)
        return ""

    def _machine_is_wanted(self, name: str, seen: RolloutState) -> bool:
        """Returns whether the slot should have a machine. If a killed rollout had deleted the machine, the cluster may
        have enough machines by now."""
        return name in seen.machines or name in choose_slots(self.context.cluster, {*seen.machines, name})

    async def _recreate_machine(self, name: str) -> str:
        """Creates the machine again from the image, unless it runs from that image already. Returns ""."""
        context = self.context
        machine = (await context.machines()).get(name)
        if machine is not None and machine.image == self.image.id and machine.state is MachineState.RUNNING:
            return ""
        if machine is not None:
            if machine.host is None:
                await context.cluster_context.provider.delete(machine)
            await context.cluster_context.connections.drop(name)
        await provision_machine(
            context.cluster, context.cluster_context, name, self.report, why="the node is rolled", image=self.image.tag
        )
        return ""

    async def _report_waits(self, jobs: dict[str, tuple[int, ...]]) -> None:
        if self.reported_waits == (found := tuple(jobs.items())):
            return
        self.reported_waits = found
        left = "" if self.until is None else f", {max(0, round(self.until - self.context.clock()))} s at most"
        for name, numbers in jobs.items():
            await self.report(name, f"drained; waits for {format_jobs(numbers)}{left}")

    async def _report_left_out(self, seen: RolloutState) -> None:
        for name, reason in nodes_left_out(self.context.cluster, seen, self.image.id).items():
            await self.report(name, f"is out of service and stays unchanged: {reason}", level="warning", done=True)
        await self.report("roll", f"every node in service is of {self.image.tag}", done=True)


def _reason_is_rollout(reason: str) -> bool:
    return reason.startswith(ROLLOUT_REASON)


async def _check_has_images(context: HealthContext) -> None:
    """Raises Refused if no machine runs from a node image."""
    owned = not context.cluster_context.provider.traits.creates_machines
    if owned and not any(machine.image for machine in (await context.machines()).values()):
        raise Refused(
            f"the machines of {context.cluster.name} are your own: they have no node image",
            hint="headway apply updates them",
        )


async def _has_mixed_slurm(cluster: Cluster, seen: RolloutState, version: str) -> bool:
    """Returns whether nodes run another Slurm version than `version`. srun inside an allocation uses its own Slurm's
    protocol, which an older slurmd does not understand ("protocol_version not supported"; 26.05.5 and 24.11.5), so no
    job may have nodes of both."""
    nodes = [machine for name, machine in seen.machines.items() if name in cluster.group_of and name not in seen.out]
    return bool(machines_with_other_slurm(version, nodes, await local_images.list_images()))


async def _check_heads(context: HealthContext) -> None:
    """Raises Refused if a head has another Slurm version than the cluster file: a slurmd may be older than its
    slurmctld, never newer."""
    for name, version in (await heads_with_other_slurm(context.cluster, (await context.machines()).values())).items():
        raise Refused(
            f"{name} still runs Slurm {version}, and a node may not have a newer one",
            hint=f"run headway apply first: it updates the heads to {context.cluster.slurm_version}",
        )


def _check_way_back(cluster: Cluster, info: ImageInfo) -> None:
    """Raises Refused if the image's Slurm can't read the state that the cluster's present Slurm has written."""
    if info.slurm_version != cluster.slurm_version:
        raise Refused(
            f"Slurm {info.slurm_version} of {info.tag} can't read the state of Slurm {cluster.slurm_version}: the heads of "
            f"{cluster.name} stay",
            hint=f"roll back the nodes without --head; or run headway down {cluster.name}, then headway restore from "
            "the previous backup",
        )


async def _previous_image(context: HealthContext) -> ImageInfo:
    """Returns the image before the last rollout. Raises Refused if the cluster was never rolled."""
    tag = (await context.cluster_context.store.node_images.get(context.cluster.name)).before
    if not tag:
        raise Refused(f"{context.cluster.name} has not been rolled: it has no previous image", hint="headway image ls")
    return await local_images.get_image(tag)


async def _most_common_image(context: HealthContext, present: ImageInfo) -> str:
    """Returns the tag of the image, other than the present one, that most machines have, or ""."""
    tags = {info.id: info.tag for info in await local_images.list_images()}
    others = Counter(
        machine.image for machine in (await context.machines()).values() if machine.image not in ("", present.id)
    )
    return next((tags[number] for number, _ in others.most_common() if number in tags), "")
