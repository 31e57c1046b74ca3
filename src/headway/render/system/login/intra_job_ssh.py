"""SSH between the nodes of one job, for launchers that start their processes by SSH, as the user and without a key of
the user.

A node vouches for its users with its own host key (host-based authentication). Only nodes trust nodes; the head does
not, and a user who signs in still needs a job on the node (pam_slurm_adopt)."""

from __future__ import annotations

from headway.domain.cluster import Cluster
from headway.domain.machines.managed_file import File
from headway.domain.machines.site import Site
from headway.render.escaping import one_line, script

SSHD = "/etc/ssh/sshd_config.d/20-headway-inside.conf"
CLIENT = "/etc/ssh/ssh_config.d/10-headway-inside.conf"
KNOWN = "/etc/ssh/ssh_known_hosts"
TRUSTED = "/etc/ssh/shosts.equiv"
_KEY = "ssh_host_ed25519_key"


def files(cluster: Cluster, site: Site) -> dict[str, File]:
    """Returns the SSH files of a node."""
    return {
        SSHD: File(_sshd()),
        CLIENT: File(_client(cluster, site)),
        KNOWN: File(_known(cluster, site)),
        TRUSTED: File(script(*cluster.slot_names)),
    }


def tmpfiles(cluster: Cluster) -> list[str]:
    """Returns tmpfiles rows for local machines, whose host keys are not in the only place where ssh looks for them."""
    if not cluster.provider.boots_node_images:
        return []
    boot = f"/etc/headway/boot/{_KEY}"
    return [
        "# The machine's host key, at the path where ssh between the nodes of a job reads it.",
        f"L+ /etc/ssh/{_KEY} - - - - {boot}",
        f"C /etc/ssh/{_KEY}.pub 0644 root root - {boot}.pub",
    ]


def _sshd() -> str:
    return script(
        "# Host-based authentication: a node of this cluster authenticates its users with its host key.",
        "HostbasedAuthentication yes",
        "HostbasedUsesNameFromPacketOnly yes",
        "# Trusted hosts and keys come from /etc only, never from home folders.",
        "IgnoreRhosts yes",
        "IgnoreUserKnownHosts yes",
    )


def _client(cluster: Cluster, site: Site) -> str:
    ports = site.own.machine_ports if site.own else {}
    return script(
        "EnableSSHKeysign yes",
        *(
            row
            for name in cluster.machine_names
            if name in ports
            for row in (f"Host {name}", f"    Port {ports[name]}")
        ),
        f"Host {cluster.name}-*",
        "    HostbasedAuthentication yes",
        "    PreferredAuthentications hostbased,publickey",
        "    StrictHostKeyChecking yes",
        "    UserKnownHostsFile /dev/null",
    )


def _known(cluster: Cluster, site: Site) -> str:
    rows = []
    for name in cluster.machine_names:
        if name in site.host_keys:
            port = site.own.machine_ports.get(name, 22) if site.own else 22
            known = (name, site.addresses[name]) if name in site.addresses else (name,)
            names = ",".join(known if port == 22 else (f"[{one}]:{port}" for one in known))
            rows.append(one_line(f"{names} {site.host_keys[name]}", "host_keys"))
    return script(*rows)
