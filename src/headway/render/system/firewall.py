"""nftables of owned machines: only the cluster's machines reach the ports of Slurm, the database and the agent; SSH is
as in the cluster file.

The rules are in a table of their own that affects nothing else, so the site's own filters stay as they are. Local
machines have a private network instead."""

from __future__ import annotations

from headway.domain.cluster import Cluster
from headway.domain.machines.managed_file import File
from headway.domain.machines.site import Site
from headway.domain.machines.systemd_unit import Unit
from headway.render.escaping import require_word, script
from headway.render.monitoring.prometheus import ALERTS_PORT, PROMETHEUS_PORT
from headway.render.slurm.slurm_conf import SRUN_PORTS
from headway.render.system import nftables_unit
from headway.render.system.agent_config import AGENT_PORT, METRICS_PORT
from headway.render.system.package_sources import PROXY_PORT

RULES = "/etc/headway/firewall.nft"
SERVICE = "headway-firewall.service"
# NFS, MariaDB, slurmctld, slurmd, slurmdbd, slurmrestd if a site opens it, messages between agents (heartbeats, leases, secrets
# of jobs), their metrics, Prometheus and Alertmanager, the head's proxy for package indexes, the tests between nodes: 29655 for
# all-reduce and RDMA (node/agent/node_tests/nccl.py), 29656 for ib_write_bw (node/agent/node_tests/rdma.py).
_SLURM_PORTS = (6817, 6818, 6819, 6820)
_TEST_PORTS = (29655, 29656)
PORTS = (2049, 3306, *_SLURM_PORTS, AGENT_PORT, METRICS_PORT, PROMETHEUS_PORT, ALERTS_PORT, PROXY_PORT, *_TEST_PORTS)
_TABLE = "inet headway"
_DAEMONS = ("slurmd.service", "slurmctld.service", "slurmdbd.service")


def files(cluster: Cluster, site: Site) -> dict[str, File]:
    """Returns the files of the firewall; none for local machines."""
    if not site.own:
        return {}
    unit = nftables_unit.unit_text("Headway firewall", RULES, _TABLE, before=_DAEMONS)
    return {RULES: File(rules(cluster, site), mode=0o600), nftables_unit.path_of(SERVICE): File(unit)}


def units(site: Site) -> tuple[Unit, ...]:
    """Returns the unit of the firewall; none for local machines."""
    return (nftables_unit.unit(SERVICE, RULES),) if site.own else ()


def rules(cluster: Cluster, site: Site) -> str:
    """Returns the nftables rules of owned machines."""
    own = site.own
    assert own is not None
    machines = ", ".join(require_word(site.addresses[name], "addresses") for name in cluster.machine_names)
    ports = ", ".join([*map(str, PORTS), f"{SRUN_PORTS[0]}-{SRUN_PORTS[1]}"])
    rows = [
        f"table {_TABLE}",
        f"delete table {_TABLE}",
        f"table {_TABLE} {{",
        "    set machines {",
        "        type ipv4_addr",
        f"        elements = {{ {machines} }}",
        "    }",
        *_ways_in(cluster, own.server_addresses),
        "    chain input {",
        "        type filter hook input priority filter - 5; policy accept;",
        '        iifname "lo" accept',
        "        ct state established,related accept",
        "        # Only machines of this cluster can reach the ports of Slurm, storage and metrics.",
        f"        ip saddr != @machines meta l4proto {{ tcp, udp }} th dport {{ {ports} }} drop",
        f"        meta nfproto ipv6 meta l4proto {{ tcp, udp }} th dport {{ {ports} }} drop",
    ]
    if cluster.firewall.ssh_from:
        ssh = ", ".join(map(str, own.ssh_ports))
        rows += [
            "        # SSH is open to the cluster's machines, Headway's server, and the networks in the cluster file.",
            "        ip saddr @machines accept",
            f"        tcp dport {{ {ssh} }} ip saddr != @ways_in drop",
            f"        meta nfproto ipv6 tcp dport {{ {ssh} }} drop",
        ]
    return script(*rows, "    }", "}")


def _ways_in(cluster: Cluster, server: tuple[str, ...]) -> list[str]:
    allowed = (*cluster.firewall.ssh_from, *server)
    if not cluster.firewall.ssh_from:
        return []
    listed = ", ".join(require_word(item, "firewall.ssh_from") for item in allowed)
    head = ["    set ways_in {", "        type ipv4_addr", "        flags interval", "        auto-merge"]
    return [*head, f"        elements = {{ {listed} }}", "    }"]
