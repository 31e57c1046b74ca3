"""Volumes and datasets of the furnished site: one volume is nearly full, one is lost on a node, one cannot be read."""

from __future__ import annotations

import time

from headway.domain.cluster import Cluster
from headway.domain.dataset import DatasetVersion
from headway.domain.storage.folders import StorageFolders, Volume
from headway.domain.storage.quotas import ObservedQuota, UserQuota
from headway.domain.storage.volume_space import VolumeSpace
from headway.errors import Unreachable
from headway.store import Store, VolumeSpeedRow

TIB = 1 << 40
GIB = 1 << 30
STORAGE = StorageFolders(
    home_quota=100 * GIB,
    scratch_quota=2 * TIB,
    volumes=(
        Volume("projects", "/projects", "nfs4", "filer.example.org:/export/projects"),
        Volume("reference", "/reference", "lustre", "mds1@tcp:mds2@tcp:/reference", ("ro",)),
    ),
)
LOST = "volumes: /projects is not mounted"  # as a node's check reports it
_ROOMS = {
    "/home": VolumeSpace("/home", 2 * TIB, int(1.37 * TIB)),
    "/scratch": VolumeSpace("/scratch", 40 * TIB, int(2.9 * TIB)),
    "/projects": VolumeSpace("/projects", 120 * TIB, int(71.4 * TIB)),
    "/reference": VolumeSpace("/reference", None, None, "no answer for 5 s"),
}


def rooms(cluster: Cluster) -> tuple[VolumeSpace, ...]:
    """Returns how full each volume of a cluster is; raises Unreachable for `prod`."""
    if cluster.name == "prod":
        raise Unreachable("prod-head does not answer")
    return tuple(_ROOMS[path] for path in cluster.storage.paths)


def quotas(cluster: Cluster) -> dict[str, ObservedQuota]:
    """Returns quotas that no user, nearly one user and one user has reached, and a volume that has none."""
    limit = cluster.storage.home_quota or 0
    used = {"alice": limit, "ann": int(0.92 * limit), "bob": 31 * GIB, "lena": 0, "olga": 4 * GIB}
    users = {user: UserQuota(limit, held, assigned=True) for user, held in used.items()}
    return {
        "/home": ObservedQuota("xfs", "/dev/md0", True, users),
        "/scratch": ObservedQuota("ext4", "/dev/sdc1", False),
    }


async def put(store: Store) -> None:
    now = time.time()
    figures = {
        "/home": (412.0, 655.0, 318.0),
        "/scratch": (5870.0, 9120.0, 4405.0),
        "/projects": (1180.0, 1630.0, 870.0),
    }
    for name in ("demo", "grow"):
        await store.volume_speeds.record(
            VolumeSpeedRow(name, path, f"{name}-1-1", 4096, now - 5 * 3600, *found, "")
            for path, found in figures.items()
        )
    for number, (name, files, size, days, checked, damage) in enumerate(
        (
            ("fineweb", 4212, 3_480_000_000_000, 41, 6, ""),
            ("fineweb", 4480, 3_910_000_000_000, 9, None, ""),
            (
                "imagenet",
                1_331_167,
                157_300_000_000,
                120,
                2,
                "shards/000417.tar has different content than its manifest says",
            ),
        ),
        1,
    ):
        version = 2 if number == 2 else 1
        source = "s3://corpora/fineweb" if name == "fineweb" else "/srv/data/imagenet"
        at = now - days * 86400.0
        seen = None if checked is None else now - checked * 86400.0
        one = DatasetVersion("demo", name, version, f"{number}" * 64, files, size, source, "ann", at, seen, damage)
        await store.datasets.add(one)
