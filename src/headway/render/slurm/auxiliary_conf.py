"""Slurm's smaller files: gres.conf, cgroup.conf, topology.conf, plugstack.conf, slurmdbd.conf."""

from __future__ import annotations

import json

from headway.domain.cluster import Cluster, Plan, Site
from headway.domain.slurm.hostlist import compress, compress_numbers
from headway.render.escaping import MARK, pair, path, slurm_text
from headway.render.machine_paths import JWT_KEY, PMIX
from headway.render.slurm.conf_syntax import Line
from headway.render.slurm.node_hardware import Gpus, Hardware, hardware_of
from headway.render.slurm.slurm_conf import PRIVATE

SHARED_IMAGES = ".containers"  # folder on scratch: images that an administrator imported for everybody


def gres_conf(cluster: Cluster, site: Site) -> str:
    """Returns gres.conf: the device files of the GPUs in slurm.conf, and the cores next to them."""
    alike: dict[tuple[str, tuple[Gpus, ...]], list[str]] = {}
    for name in cluster.slot_names:
        node = hardware_of(cluster, site, name)
        if node.gpus:
            alike.setdefault((node.gpu_type, _places(node)), []).append(name)
    why = Line(comment="The flag sets CUDA_VISIBLE_DEVICES for jobs; without it they see no GPU.")
    lines = [Line(comment=MARK), why]
    for (gpu_type, places), names in alike.items():
        for gpus in places:
            files = compress(f"/dev/nvidia{minor}" for minor in gpus.minors)
            pairs = [("NodeName", compress(names)), ("Name", "gpu"), ("Type", gpu_type), ("File", files)]
            if gpus.cores:
                pairs.append(("Cores", compress_numbers(gpus.cores)))
            lines.append(Line((*pairs, ("Flags", "nvidia_gpu_env"))))
    return slurm_text(lines, "gres.conf")


def _places(node: Hardware) -> tuple[Gpus, ...]:
    return node.places or (Gpus(tuple(range(node.gpus))),)


def cgroup_conf(*, pretends: bool, old: bool = False) -> str:
    """Returns cgroup.conf. `old`: the host has cgroup v1. There Slurm's autodetection fails, because it looks at the
    file system on /sys/fs/cgroup, which a newer systemd has mounted for itself
    (node/image/rootfs/usr/lib/headway/init)."""
    lines = [
        Line(comment=MARK),
        *pair("CgroupPlugin", "cgroup/v1" if old else "autodetect"),
        *pair("ConstrainDevices", "yes", "A job can't open GPUs that it was not given."),
        *pair("ConstrainRAMSpace", "yes", "A job over its memory is ended alone, and does not swap instead."),
        *pair("ConstrainSwapSpace", "yes"),
    ]
    if pretends:
        lines += pair("ConstrainCores", "no", "The machine does not have the cores it is said to have.")
    else:
        lines += pair("ConstrainCores", "yes", "A job runs on the cores it was given.")
    return slurm_text(lines, "cgroup.conf")


def mpi_conf() -> str:
    """Returns mpi.conf."""
    return slurm_text(
        [
            Line(comment=MARK),
            *pair("PMIxCliTmpDirBase", PMIX, "Where tasks find it: /tmp is each job's own, slurmd's is another."),
        ],
        "mpi.conf",
    )


def topology_conf(cluster: Cluster) -> str:
    """Returns topology.conf: the switches, leaves first as in Slurm's own examples."""
    lines = [Line(comment=MARK)]
    for switch in sorted(cluster.switches, key=lambda switch: bool(switch.children)):
        kind, members = ("Switches", switch.children) if switch.children else ("Nodes", switch.nodes)
        lines.append(Line((("SwitchName", switch.name), (kind, compress(members)))))
    return slurm_text(lines, "topology.conf")


def simulated_gpus(plan: Plan) -> str:
    """Returns the data that nvidia-smi of local machines shows. JSON allows no comments."""
    shown = {"product": plan.gpu_product, "memory_mib": plan.gpu_memory_mib, "count": plan.gpus}
    return json.dumps(shown) + "\n"


def plugstack_conf(cluster: Cluster) -> str:
    """Returns plugstack.conf. node/image/spank/private_tmp.c explains why it does not use job_container/tmpfs."""
    rows = [f"# {MARK}"]
    rows += ["# Each job has its own /tmp and shared memory.", "optional /usr/lib/headway/spank/private_tmp.so"]
    if cluster.containers == "builtin":
        scratch = path(cluster.storage.scratch, "storage.scratch")
        rows += [
            "# --container-image and its companions. Required: a job must not run bare where its container can't.",
            f"required /usr/lib/headway/spank/container.so cache={scratch}/%u/.containers shared={scratch}/{SHARED_IMAGES}",
        ]
    if cluster.containers == "enroot":
        rows += [
            "# --container-image and its companions: this site's own Pyxis, from Slurm's plugin folder.",
            "required spank_pyxis.so runtime_path=/run/pyxis container_scope=job sbatch_support=1",
        ]
    return "\n".join(rows) + "\n"


def enroot_conf(cluster: Cluster) -> str:
    """Returns enroot.conf: downloaded layers are on scratch, one folder per user; running containers are on the node's
    own disk."""
    scratch = path(cluster.storage.scratch, "storage.scratch")
    rows = [
        f"# {MARK}",
        "# Layers that were fetched, on shared storage; each user's own.",
        f"ENROOT_CACHE_PATH {scratch}/$(id -un)/.enroot",
        "# Root file systems of running containers, on the node's own disk; the prolog makes the folder.",
        "ENROOT_RUNTIME_PATH /run/enroot/user-$(id -u)",
        "ENROOT_DATA_PATH /var/lib/enroot/user-$(id -u)",
        "ENROOT_SQUASH_OPTIONS -comp zstd -Xcompression-level 3 -noappend",
        "ENROOT_MOUNT_HOME no",
        "ENROOT_RESTRICT_DEV no",
        "ENROOT_ROOTFS_WRITABLE yes",
        "ENROOT_REMAP_ROOT no",
    ]
    return "\n".join(rows) + "\n"


def slurmdbd_conf(cluster: Cluster, site: Site) -> str:
    """Returns slurmdbd.conf."""
    return slurm_text(
        [
            Line(comment=MARK),
            *pair("AuthType", "auth/munge"),
            *pair("AuthAltTypes", "auth/jwt"),
            *pair("AuthAltParameters", f"jwt_key={JWT_KEY}"),
            *pair("DbdHost", cluster.head),
            *pair("DbdAddr", site.head_address),
            *pair(
                "CommunicationParameters",
                "NoInAddrAny",
                "Listens on the address of this machine's own name, which is the private one; else on all there are.",
            ),
            *pair("SlurmUser", "slurm"),
            *pair("StorageType", "accounting_storage/mysql"),
            *pair(
                "StorageHost",
                "localhost",
                "By the socket, where MariaDB knows the slurm user by its uid: there is no password.",
            ),
            *pair("StorageUser", "slurm"),
            *pair("StorageLoc", "slurm_acct_db"),
            *pair("PidFile", "/run/slurmdbd/slurmdbd.pid"),
            *pair("PrivateData", PRIVATE),
            *pair("PurgeEventAfter", "24months", "Jobs and usage are kept for good; other records are purged."),
            *pair("PurgeResvAfter", "24months"),
            *pair("PurgeStepAfter", "12months"),
            *pair("PurgeSuspendAfter", "12months"),
            *pair("PurgeTXNAfter", "24months"),
        ],
        "slurmdbd.conf",
    )
