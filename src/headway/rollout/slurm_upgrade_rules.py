"""Decides which Slurm version can take over from which, and whether the rollout of an upgrade is due. slurmdbd,
slurmctld and slurmd read the state of the few releases before their own and of no later one (SchedMD's Upgrade
Guide)."""

from __future__ import annotations

import contextlib

from headway.catalog.slurm_releases import STATE_READ_BACK
from headway.cluster.active_head import active_or_stopped_head
from headway.cluster.context import ClusterContext
from headway.cluster.observe import machines_with_other_slurm
from headway.domain.changeset import Change
from headway.domain.cluster import Cluster
from headway.domain.slurm.node_reasons import ROLLOUT_REASON
from headway.errors import Fault, HeadwayError
from headway.images import local_images
from headway.slurm import node_commands


def upgrade_fault(written: str, after: Cluster, *, exists: bool) -> Fault | None:
    """Returns why this cluster can't go from Slurm `written` ("": no state yet) to the version of `after`; None if it
    can. `exists`: the cluster is up and can be backed up."""
    old, new = written, after.slurm_version
    if old in ("", new):
        return None
    releases = list(STATE_READ_BACK)
    if old not in releases or new not in releases:
        return Fault("image", f"it is unknown whether Slurm {new} reads the state of Slurm {old}", "keep the image")
    steps = releases.index(new) - releases.index(old)
    most = STATE_READ_BACK[new]
    elsewhere = f"keep the image with Slurm {old}, or create another cluster with {after.image}"
    if steps < 0:
        words = f"Slurm {new} can't read the state of Slurm {old}: SchedMD supports no downgrade"
        return Fault("image", words, elsewhere)
    if steps > most:
        reads = ", ".join(releases[releases.index(new) - most : releases.index(new)])
        words = f"Slurm {new} can be upgraded from {reads}, not from {old}: jobs and accounting of {after.name} would be lost"
        return Fault("image", words, elsewhere)
    return _unready(old, after, there=exists)


def _unready(old: str, after: Cluster, *, there: bool) -> Fault | None:
    """Returns why the upgrade can't start in spite of suitable versions, None if it can: own machines, a cluster that
    is down, or no backup."""
    new = after.slurm_version
    if not after.provider.boots_node_images:
        return Fault(
            "image",
            f"the machines of {after.name} are your own and run Slurm {old}; Headway does not replace it",
            f"keep the image with Slurm {old}, or create a cluster of other machines with {after.image}",
        )
    if not there:
        return Fault(
            "image",
            f"the kept data of {after.name} is of Slurm {old}, and a cluster that is down can't be backed up first",
            f"apply it with the image of Slurm {old}, then change the image; or run headway down {after.name} --delete-data",
        )
    if after.backup is None:
        return Fault(
            "backup",
            f"Slurm {old} becomes {new} only after a backup, the only way back, and the file has no backup field",
            "backup: {to: DIR, key_file: FILE}",
        )
    return None


def is_upgrade(written: str, before: Cluster | None, after: Cluster) -> bool:
    """Returns whether applying `after` changes the Slurm version."""
    changes = before is not None and before.slurm_version != after.slurm_version
    return changes and written not in ("", after.slurm_version)


def backup_before_upgrade(written: str, before: Cluster | None, after: Cluster) -> tuple[Change, ...]:
    """Returns the backup that an apply makes before it changes the Slurm version."""
    if after.backup is None or not is_upgrade(written, before, after):
        return ()
    why = f"Slurm {written} becomes {after.slurm_version}: a backup is made first, the only way back"
    return (Change("backup.make", "cluster", str(after.backup.to), why),)


async def nodes_await_rollout(cluster: Cluster, context: ClusterContext) -> bool:
    """Returns whether the heads run the file's Slurm version while nodes drained for the upgrade run another."""
    if not context.provider.traits.boots_node_images:
        return False
    with contextlib.suppress(HeadwayError):
        machines = await context.machines(cluster.name)
        other = machines_with_other_slurm(cluster.slurm_version, machines.values(), await local_images.list_images())
        if not other or other.keys() & set(cluster.heads):
            return False
        head = await active_or_stopped_head(cluster, context, machines)
        if head is not None:
            reasons = await node_commands.read_node_reasons(context.connections, head)
            return any(reasons.get(name, ("", ""))[1] == ROLLOUT_REASON for name in other)
    return False
