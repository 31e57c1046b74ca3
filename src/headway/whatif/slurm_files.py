"""The files with which slurmctld runs in a container: those that the cluster would have, except for what concerns machines,
keys and other programs. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from headway.cluster.slurm_export import account_scripts
from headway.domain.cluster import Cluster
from headway.domain.machines.site import Site
from headway.domain.slurm.hostlist import compress
from headway.errors import Refused
from headway.render.files_by_role import render_files
from headway.render.slurm.conf_syntax import ConfLine, format_lines, parse_lines

SLURM = "24.11"  # whose messages node/whatif/nodes.c knows
IMAGE = "debian13"  # has that version
_FIRST_UID = 20_000
_LOOPBACK = "127.0.0.1"
# Keys that concern other programs and machines. Without an epilog a node is free as soon as its job has ended.
_LEFT_OUT = frozenset(
    ("authalttypes", "authaltparameters", "authinfo", "communicationparameters", "clifilterplugins", "prolog", "epilog",
     "prologslurmctld", "epilogslurmctld", "slurmctldprimaryonprog", "slurmctldprimaryoffprog", "resumeprogram",
     "suspendprogram", "resumefailprogram", "suspendtime", "suspendexcnodes", "suspendexcstates", "maildomain",
     "healthcheckprogram", "healthcheckinterval", "healthchecknodestate", "srunportrange", "accountingstoragepass")
)  # fmt: skip
_SET = {
    "authtype": "auth/none",
    "credtype": "cred/none",
    "statesavelocation": "/run/replay/state",
    "slurmctldpidfile": "/run/slurmctld.pid",
    "accountingstoragehost": _LOOPBACK,
    "mailprog": "/bin/true",
    "jobcomptype": "jobcomp/filetxt",
    "jobcomploc": "/run/replay/jobcomp",
}
_DBD_SET = {"authtype": "auth/none", "dbdaddr": _LOOPBACK}


@dataclass(frozen=True)
class ReplayFiles:
    """What a replay of one cluster needs. `files`: name below /run/replay -> text; `absent`: nodes that have no machine or are
    spares, as a hostlist; `uids`: user -> uid."""

    files: dict[str, str]
    head: str
    absent: str
    uids: dict[str, int]


def replay_files(cluster: Cluster) -> ReplayFiles:
    """Returns the files. Raises Refused for a cluster of another Slurm version than 24.11."""
    if cluster.slurm_version != SLURM:
        raise Refused(
            f"what-if replays with Slurm {SLURM}; {cluster.name} has Slurm {cluster.slurm_version}",
            hint=f"set image: {IMAGE} in a copy of the cluster file, and ask with that file",
        )
    uids = {user.name: _FIRST_UID + number for number, user in enumerate(cluster.users)}
    site = _site(cluster, uids)
    rendered = render_files(cluster, site)["head"]
    conf = _replaced(rendered["/etc/slurm/slurm.conf"].text, cluster, _SET)
    files = {
        "etc/slurm.conf": conf,
        "etc/slurmdbd.conf": _replaced(rendered["/etc/slurm/slurmdbd.conf"].text, cluster, _DBD_SET),
        "etc/plugstack.conf": "",
        "qos.sh": account_scripts.qos_script(cluster),
        "accounts.sh": account_scripts.accounts_script(cluster),
        "passwd": "".join(f"{name}:x:{uid}:{uid}::/:/bin/sh\n" for name, uid in uids.items()),
        "group": "".join(f"{name}:x:{uid}:\n" for name, uid in uids.items()),
    }
    for name in ("gres.conf", "topology.conf", "cgroup.conf", "job_submit.lua"):
        if f"/etc/slurm/{name}" in rendered:
            files[f"etc/{name}"] = rendered[f"/etc/slurm/{name}"].text
    absent = [
        name for group in cluster.groups for name in group.slots[_present(group.nodes, group.most, group.autoscaled) :]
    ]
    return ReplayFiles(files, cluster.head, compress(absent), uids)


def _present(nodes: int, most: int, autoscaled: bool) -> int:
    """Returns how many slots of a group have a machine: all that it may have, if it grows by itself."""
    return most if autoscaled else nodes


def _site(cluster: Cluster, uids: dict[str, int]) -> Site:
    """Returns a site whose nodes have the hardware of their plan."""
    return Site(
        subnet="127.0.0.0/8",
        gateway=_LOOPBACK,
        head_address=_LOOPBACK,
        addresses=dict.fromkeys((*cluster.heads, *cluster.slot_names), _LOOPBACK),
        uids=uids,
        simulated_gpus=True,
        gpu_devices=cluster.largest_plan.gpus,
    )


def _replaced(text: str, cluster: Cluster, changes: dict[str, str]) -> str:
    """Returns the file with the replay's own values."""
    left = dict(changes)
    lines: list[ConfLine] = []
    for line in parse_lines(text):
        if line.first == "slurmctldhost" and (line.get("SlurmctldHost") or "").partition("(")[0] != cluster.head:
            continue
        pairs = []
        for key, value in line.pairs:
            if key.lower() in _LEFT_OUT:
                continue
            if line.first == "nodename" and key.lower() == "state":
                value = "UNKNOWN"
            pairs.append((key, left.pop(key.lower(), changes.get(key.lower(), value))))
        if line.first == "nodename":
            pairs.append(("NodeAddr", _LOOPBACK))
        if pairs or not line.pairs:
            lines.append(ConfLine(tuple(pairs), line.comment, line.include))
    lines += [ConfLine(((key, value),)) for key, value in left.items()]
    return format_lines(lines)
