"""plugstack.conf and enroot.conf: the container plugin of srun and sbatch."""

from __future__ import annotations

from headway.domain.cluster import Cluster
from headway.render.escaping import MARK, path

SHARED_IMAGES = ".containers"  # folder on scratch: images that an administrator imported for all users


def plugstack_conf(cluster: Cluster) -> str:
    """Returns plugstack.conf. node/image/spank/private_tmp.c explains why it does not use job_container/tmpfs."""
    rows = [f"# {MARK}"]
    rows += ["# Each job has its own /tmp and shared memory.", "optional /usr/lib/headway/spank/private_tmp.so"]
    if cluster.containers == "builtin":
        scratch = path(cluster.storage.scratch, "storage.scratch")
        rows += [
            "# The --container-* options. Required: a job must fail if its container can't start, not run without it.",
            f"required /usr/lib/headway/spank/container.so cache={scratch}/%u/.containers shared={scratch}/{SHARED_IMAGES}",
        ]
    if cluster.containers == "enroot":
        rows += [
            "# The --container-* options: the site's Pyxis from Slurm's plugin folder.",
            "required spank_pyxis.so runtime_path=/run/pyxis container_scope=job sbatch_support=1",
        ]
    return "\n".join(rows) + "\n"


def enroot_conf(cluster: Cluster) -> str:
    """Returns enroot.conf: downloaded layers are on scratch, one folder per user; running containers are on the node's
    own disk."""
    scratch = path(cluster.storage.scratch, "storage.scratch")
    rows = [
        f"# {MARK}",
        "# Downloaded layers: on shared storage, one folder per user.",
        f"ENROOT_CACHE_PATH {scratch}/$(id -un)/.enroot",
        "# Root file systems of running containers: on the node's disk; the prolog creates the folder.",
        "ENROOT_RUNTIME_PATH /run/enroot/user-$(id -u)",
        "ENROOT_DATA_PATH /var/lib/enroot/user-$(id -u)",
        "ENROOT_SQUASH_OPTIONS -comp zstd -Xcompression-level 3 -noappend",
        "ENROOT_MOUNT_HOME no",
        "ENROOT_RESTRICT_DEV no",
        "ENROOT_ROOTFS_WRITABLE yes",
        "ENROOT_REMAP_ROOT no",
    ]
    return "\n".join(rows) + "\n"
