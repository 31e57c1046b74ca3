"""Rolls a new node image out, node by node: each node is drained, created again from the image, tested and returned.
The first node has to pass its tests before others are touched; until then machines created for other reasons use the
previous image. The state of a rollout is in the nodes' reasons in Slurm and in the provider's list, so the next run
continues a killed one."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from headway.cluster.apply import apply_cluster
from headway.cluster.observe import heads_with_other_slurm, machines_with_other_slurm
from headway.cluster.owned import host_containers
from headway.cluster.readiness import wait_for_nodes
from headway.cluster.scaling.provision_slot import provision_machine
from headway.domain.changeset import ChangeSet
from headway.domain.cluster import Cluster
from headway.domain.machines.machine import Machine, MachineState
from headway.domain.operation_progress import OperationWaits, ReportProgress
from headway.domain.slurm.hostlist import compress
from headway.domain.slurm.node_reasons import ROLLOUT_REASON
from headway.errors import HeadwayError, Refused, Unreachable
from headway.health.context import HealthContext
from headway.images import build, local_images, recipe
from headway.images.local_images import ImageInfo
from headway.rollout.node_rollout import (
    CreationLock,
    NodeRollout,
    read_rollout_state,
    reason_is_rollout,
)
from headway.rollout.rollout_changes import (
    RolloutState,
    heads_to_roll,
    leader_text,
    nodes_left_out,
    nodes_to_roll,
    rollout_changes,
)
from headway.slurm import node_commands
from headway.store.db.rows import NodeImage


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
        number, tag = (found.id, found.tag) if found else ("", recipe.current_tag(cluster.image))
        version = cluster.slurm_version
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
    work = ImageRollout(context, report, alone, waits, until, image=info)
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
            await host_containers.rebuild_container(cluster, cluster_context, machine, machine.host, info.tag, report)
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
                context.cluster_context.connections, head, name, reason_is_rollout
            )
            words = f"stays out of service: {kept}" if kept else "is in service again with its former image"
            await report(name, words, done=True)
        else:
            words = "stays drained: headway roll continues with it; --back returns to the previous image"
            await report(name, words, level="warning", done=True)


@dataclass
class ImageRollout(NodeRollout):
    """The rollout of a node image; see `roll_nodes`."""

    image: ImageInfo = field(kw_only=True)
    mixed_slurm: bool | None = None  # see `_has_mixed_slurm`; None: not known yet

    @property
    def target(self) -> str:
        return self.image.tag

    @property
    def way_back(self) -> str:
        return "; --back returns to the previous image"

    async def prepare(self, seen: RolloutState) -> None:
        if self.mixed_slurm is None:
            self.mixed_slurm = await _has_mixed_slurm(self.context.cluster, seen, self.image.slurm_version)
            self.drains_all = self.mixed_slurm

    async def nodes_due(self, seen: RolloutState) -> tuple[str, ...]:
        return nodes_to_roll(self.context.cluster, seen, self.image.id)

    async def nodes_left_out(self, seen: RolloutState) -> Mapping[str, str]:
        return nodes_left_out(self.context.cluster, seen, self.image.id)

    async def first_node_passed(self) -> None:
        store, cluster = self.context.cluster_context.store, self.context.cluster.name
        kept = await store.node_images.get(cluster)
        if kept.pinned != self.image.tag:
            await store.node_images.set(cluster, NodeImage("", kept.before))

    async def nodes_failed(self, seen: RolloutState, failed: Collection[str]) -> str:
        if self.mixed_slurm and not self._image_is_in_service(seen):
            await self._return_drained(seen, failed)
        elif self.mixed_slurm:
            return f"{compress(failed)} stays drained, as do the remaining nodes with another Slurm version"
        return await super().nodes_failed(seen, failed)

    async def change_node(self, name: str) -> None:
        """Creates the machine again from the image, unless it runs from that image and its set-up has ended."""
        context = self.context
        machine = (await context.machines()).get(name)
        if machine is not None and machine.image == self.image.id and await self._is_set_up(machine):
            return
        if machine is not None:
            if machine.host is None:
                await context.cluster_context.provider.delete(machine)
            await context.cluster_context.connections.drop(name)
        await provision_machine(
            context.cluster, context.cluster_context, name, self.report, why="the node is rolled", image=self.image.tag
        )

    async def _is_set_up(self, machine: Machine) -> bool:
        """Returns whether the machine runs slurmd, which its set-up starts last. A server that was killed during the
        set-up leaves a machine of the right image without it."""
        if machine.state is not MachineState.RUNNING:
            return False
        argv, connections = ["systemctl", "is-active", "slurmd"], self.context.cluster_context.connections
        try:
            return (await connections.remote(machine, argv, timeout_s=20, check=False)).code == 0
        except Unreachable:
            return False

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
                    self.context.cluster_context.connections, await self.context.head(), name, reason_is_rollout
                )


async def has_images(context: HealthContext) -> bool:
    """Returns whether machines run from node images."""
    boots = context.cluster_context.provider.traits.boots_node_images
    return boots or any(machine.image for machine in (await context.machines()).values())


async def _check_has_images(context: HealthContext) -> None:
    """Raises Refused if no machine runs from a node image."""
    if not await has_images(context):
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
