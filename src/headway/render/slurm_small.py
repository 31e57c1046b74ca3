"""The short files beside slurm.conf: gres.conf, cgroup.conf, topology.conf, plugstack.conf, slurmdbd.conf."""

from __future__ import annotations

import json

from headway.domain.cluster import Cluster, Site
from headway.domain.hostlist import compress
from headway.render.conf import Line
from headway.render.hardware import Hardware
from headway.render.slurm_conf import JWT_KEY
from headway.render.text import MARK, pair, slurm_text


def gres_conf(cluster: Cluster, node: Hardware) -> str:
    """The devices behind the GPUs that slurm.conf promises."""
    last = node.gpus - 1
    pairs = (
        ("NodeName", compress(cluster.slot_names)),
        ("Name", "gpu"),
        ("Type", node.gpu_type),
        ("File", f"/dev/nvidia[0-{last}]" if last else "/dev/nvidia0"),
        ("Flags", "nvidia_gpu_env"),
    )
    why = Line(comment="The flag sets CUDA_VISIBLE_DEVICES for jobs; without it they see no GPU.")
    return slurm_text([Line(comment=MARK), why, Line(pairs)], "gres.conf")


def cgroup_conf(node: Hardware) -> str:
    lines = [
        Line(comment=MARK),
        *pair("CgroupPlugin", "autodetect"),
        *pair("ConstrainDevices", "yes", "A job can't open GPUs that it was not given."),
        *pair("ConstrainRAMSpace", "yes", "A job over its memory is ended alone, and does not swap instead."),
        *pair("ConstrainSwapSpace", "yes"),
    ]
    if node.pretended:
        lines += pair("ConstrainCores", "no", "The machine does not have the cores it is said to have.")
    else:
        lines += pair("ConstrainCores", "yes", "A job runs on the cores it was given.")
    return slurm_text(lines, "cgroup.conf")


def topology_conf(cluster: Cluster) -> str:
    """The switches, leaves first as Slurm's own examples have them."""
    lines = [Line(comment=MARK)]
    for switch in sorted(cluster.switches, key=lambda switch: bool(switch.children)):
        kind, members = ("Switches", switch.children) if switch.children else ("Nodes", switch.nodes)
        lines.append(Line((("SwitchName", switch.name), (kind, compress(members)))))
    return slurm_text(lines, "topology.conf")


def simulated_gpus(cluster: Cluster) -> str:
    """What the nvidia-smi of local machines shows; JSON, so it carries no comment."""
    shown = {"product": cluster.plan.gpu_product, "memory_mib": cluster.plan.gpu_memory_mib, "count": cluster.plan.gpus}
    return json.dumps(shown) + "\n"


def plugstack_conf(cluster: Cluster) -> str:
    """Not job_container/tmpfs: see node/image/spank/private_tmp.c. Machines that Headway's image did not make lack the
    plugin, and Slurm complains at every command about one that is missing, even an optional one."""
    if cluster.provider != "local":
        return f"# {MARK}\n"
    return f"# {MARK}\n# Each job has its own /tmp and shared memory.\noptional /usr/lib/headway/spank/private_tmp.so\n"


def slurmdbd_conf(cluster: Cluster, site: Site) -> str:
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
            *pair("PurgeEventAfter", "24months", "Jobs and usage are kept for good; what grows beside them is not."),
            *pair("PurgeResvAfter", "24months"),
            *pair("PurgeStepAfter", "12months"),
            *pair("PurgeSuspendAfter", "12months"),
            *pair("PurgeTXNAfter", "24months"),
        ],
        "slurmdbd.conf",
    )
