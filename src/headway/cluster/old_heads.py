"""Removes heads that run an old Slurm version, and names the image that a head or node is created from.

The heads are created again from the image with the new Slurm version, while jobs continue under the old slurmd.
In the order that SchedMD asks for: no controller runs while the first slurmdbd of the new version converts the records,
then the controllers start, and the nodes follow in a rollout. (Slurm's Upgrade Guide,
https://slurm.schedmd.com/upgrades.html.)"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import replace

from headway.cluster import remote_steps
from headway.cluster.active_head import active_or_stopped_head
from headway.cluster.context import ClusterContext
from headway.cluster.observe import machines_with_other_slurm
from headway.domain.changeset import REBUILD, ChangeSet
from headway.domain.cluster import Cluster
from headway.domain.machines.machine import Machine, MachineState
from headway.domain.operation_progress import ReportProgress
from headway.domain.slurm.node_reasons import ROLLOUT_REASON
from headway.errors import HeadwayError
from headway.images import build, local_images
from headway.slurm import node_commands

# Stopped in this order; each daemon saves its state before it ends.
_DAEMONS = ("slurmrestd.service", "slurmctld.service", "slurmdbd.service", "mariadb.service")
_STOP_S = 600.0


async def remove_old_heads(
    cluster: Cluster,
    context: ClusterContext,
    report: ReportProgress,
    changes: ChangeSet,
    machines: Mapping[str, Machine],
) -> frozenset[str]:
    """Deletes the machines of heads that are to be created again, once their new image exists. The active head is
    stopped last, so that no other takes over meanwhile. Nodes are drained before, because a rollout follows
    (`rollout.slurm_upgrade_rules.nodes_await_rollout`). Returns the nodes that were in service."""
    names = [
        name for name in reversed(cluster.heads) if any((c.kind, c.where) == (REBUILD, name) for c in changes.changes)
    ]
    if not names:
        return frozenset()
    info = await build.ensure_image(cluster.image, report, state_dir=context.state_dir)
    served = await _drain_nodes_in_service(cluster, context, machines)
    kept = await context.store.node_images.get(cluster.name)
    # the pinned image has the old Slurm version
    await context.store.node_images.set(cluster.name, replace(kept, pinned=""))
    for name in names:
        await report(name, f"slurmctld and the database stop in order: the machine is recreated from {info.tag}")
        if machines[name].state is MachineState.RUNNING:
            with contextlib.suppress(HeadwayError):  # a head that does not answer is stopped with its machine
                steps = [
                    remote_steps.run_step(["systemctl", "stop", unit], timeout_s=_STOP_S, ok=(0, 5))
                    for unit in _DAEMONS
                ]
                await remote_steps.run_steps(context.connections, machines[name], steps, timeout_s=_STOP_S)
    for name in names:
        if machines[name].state is MachineState.RUNNING:
            await context.provider.stop(machines[name])
    for name in names:
        await context.provider.delete(machines[name])
        await context.connections.drop(name)
    return served


async def _drain_nodes_in_service(
    cluster: Cluster, context: ClusterContext, machines: Mapping[str, Machine]
) -> frozenset[str]:
    """Drains the nodes in service and returns them. Jobs started there under the new controller, from a head with the
    new srun, would fail. Returns none if no controller answers: an earlier run may have been killed after it had
    stopped the controller."""
    with contextlib.suppress(HeadwayError):
        head = await active_or_stopped_head(cluster, context, machines)
        states = await node_commands.read_node_reasons(context.connections, head) if head else {}
        served = (
            frozenset(name for name, (word, _) in states.items() if node_commands.is_in_service(word)) & machines.keys()
        )
        if head is not None and served:
            await node_commands.drain_nodes(context.connections, head, sorted(served), ROLLOUT_REASON)
        return served
    return frozenset()


async def image_tag_of(cluster: Cluster, context: ClusterContext, name: str, tag: str) -> str:
    """Returns the tag of the image to create the machine from: `tag`, or the cluster's pinned image; "" for the present
    image. A head is never created from an image with another Slurm version, which could not read the data on the head's
    volume, or would damage it. A node never gets a newer Slurm than its head has now."""
    tag = tag or (await context.store.node_images.get(cluster.name)).pinned
    if not context.provider.traits.boots_node_images:
        return tag
    if name in cluster.heads:
        return "" if tag and (await local_images.get_image(tag)).slurm_version != cluster.slurm_version else tag
    heads = {
        machine.name: machine for machine in await context.provider.list(cluster.name) if machine.name in cluster.heads
    }
    images = {info.id: info for info in await local_images.list_images()} if heads else {}
    behind = machines_with_other_slurm(cluster.slurm_version, heads.values(), images.values())
    return tag if not behind or tag else next(images[heads[head_name].image].tag for head_name in behind)
