"""What must hold before a cluster is restored from a backup. The checks change nothing."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from headway.backup.archive import Header
from headway.errors import Conflict, Refused
from headway.store import Store


def require_backup_of(cluster: str, path: Path, header: Header) -> None:
    """Raises Refused if the file is a backup of another cluster."""
    if header.cluster != cluster:
        raise Refused(
            f"{path} is a backup of the cluster {header.cluster}, not of {cluster}",
            hint=f"headway restore {header.cluster} --from {path}",
        )


def require_same_slurm(cluster: str, header: Header, present: str, *, has_machines: bool) -> None:
    """Raises Refused if the cluster's machines run another Slurm version than the backup's. `present`: that version,
    "" = the cluster does not exist."""
    if has_machines and present not in ("", header.slurm_version):
        raise Refused(
            f"{cluster} runs Slurm {present} and this backup is of {header.slurm_version}: a backup can be restored only"
            " to the same Slurm version",
            hint=f"headway down {cluster}, then restore again",
        )


async def require_matching_uids(cluster: str, store: Store, uids: Mapping[str, int]) -> None:
    """Raises Conflict if users of the backup have other uids on this server: files would belong to the wrong user.
    `uids`: those of the backup, by user."""
    conflicts = await store.cluster_records.uid_conflicts(dict(uids))
    if conflicts:
        raise Conflict(
            f"users of {cluster} would get files of other users on this server: {'; '.join(conflicts[:5])}",
            hint="restore it on another server; nothing was changed",
        )
