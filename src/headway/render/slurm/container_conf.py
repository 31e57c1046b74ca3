"""plugstack.conf, enroot.conf and oci.conf: containers of srun and sbatch."""

from __future__ import annotations

from headway.domain.cluster import Cluster
from headway.render.escaping import MARK, path

OCI = "/etc/slurm/oci.conf"
_RUNTIME = "/usr/bin/python3 -IS /usr/lib/headway/container"
_NAME = "%n.%u.%j.%s.%t"  # node, user, job, step, task
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


def oci_conf() -> str:
    """Returns oci.conf: what `srun --container=BUNDLE` runs. Slurm wants a command for each action; a container ends with its
    step's cgroup."""
    rows = [
        f"# {MARK}",
        'EnvExclude="^(SLURM_CONF|SLURM_CONF_SERVER)="',
        'RunTimeEnvExclude="^(SLURM_CONF|SLURM_CONF_SERVER)="',
        f'RunTimeRun="{_RUNTIME} oci %b {_NAME}"',
        f'RunTimeQuery="{_RUNTIME} oci-query {_NAME}"',
        'RunTimeKill="/bin/true"',
        'RunTimeDelete="/bin/true"',
    ]
    return "\n".join(rows) + "\n"
