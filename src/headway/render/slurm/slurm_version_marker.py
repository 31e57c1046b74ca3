"""Records which Slurm version wrote the data on a head's volume, so that a new head does not run an older one. Owned
machines keep the Slurm of their packages and need no record."""

from __future__ import annotations

from headway.domain.cluster import SLURM_STATE_FOLDER, STATE_VERSION_FILE, Cluster
from headway.domain.machines.managed_file import File

PATH = f"{SLURM_STATE_FOLDER.rpartition('/')[0]}/{STATE_VERSION_FILE}"


def files(cluster: Cluster, *, first: bool) -> dict[str, File]:
    """Returns the record for the head that has the database (`first`)."""
    if not (cluster.provider.volumes_on_server and first):
        return {}
    return {PATH: File(f"{cluster.slurm_version}\n")}
