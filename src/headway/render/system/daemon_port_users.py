"""Which users of a machine reach ports of Headway's daemons that have no passwords.

- Prometheus, Alertmanager and the agents' metrics answer root (as which Headway's server signs in), on heads the person who
  applied the cluster, and Prometheus itself.
- Only root connects to a head's agent, from which nodes fetch the secrets of jobs: it serves few connections at the same time,
  which the users of a node could take.
- Only programs of the system answer at the port of services: clients send keys to it also while the cluster has no service.

Every user of the head and every job can connect to ports. So nftables refuse the connections of other users on the machine
itself, and to metrics those of machines that are not a head. The rules are in a table of their own."""

from __future__ import annotations

from headway.domain.cluster import Cluster
from headway.domain.machines.managed_file import File
from headway.domain.machines.site import Site
from headway.domain.machines.systemd_unit import Unit
from headway.domain.serving.service_proxy import SERVICE_PORT
from headway.render.escaping import require_word, script
from headway.render.monitoring.prometheus import ALERTS_PORT, PROMETHEUS_PORT, USER
from headway.render.system import nftables_unit
from headway.render.system.agent_config import AGENT_PORT, METRICS_PORT
from headway.validation.field_types import FIRST_UID_OF_PEOPLE

RULES = "/etc/headway/port-access.nft"
SERVICE = "headway-port-access.service"
_TABLE = "inet headway_ports"
_DAEMONS = ("prometheus.service", "prometheus-alertmanager.service", "headway-agent.service")


def files(cluster: Cluster, site: Site, name: str = "") -> dict[str, File]:
    """Returns the files of a head, or those of the nodes if `name` is ""."""
    unit = nftables_unit.unit_text("Access of users to ports of Headway", RULES, _TABLE, before=_DAEMONS)
    return {RULES: File(rules(cluster, site, name), mode=0o600), nftables_unit.path_of(SERVICE): File(unit)}


def units() -> tuple[Unit, ...]:
    """Returns the unit that loads the rules."""
    return (nftables_unit.unit(SERVICE, RULES),)


def rules(cluster: Cluster, site: Site, name: str = "") -> str:
    """Returns the nftables rules of a head, or those of the nodes if `name` is ""."""
    heads = ", ".join(require_word(site.addresses[head], "addresses") for head in cluster.heads)
    local_ports = [METRICS_PORT, *((PROMETHEUS_PORT, ALERTS_PORT) if name == cluster.head else ())]
    admins = [site.uids[user.name] for user in cluster.users if name and user.admin and user.name in site.uids]
    users = [*map(str, sorted({0, *admins})), *([f'"{USER}"'] if name == cluster.head else [])]
    refuse = f"meta skuid != {{ {', '.join(users)} }} reject with tcp reset"
    rows = [
        f"table {_TABLE}",
        f"delete table {_TABLE}",
        f"table {_TABLE} {{",
        "    chain input {",
        "        type filter hook input priority filter - 5; policy accept;",
        '        iifname "lo" accept',
        "        # Prometheus runs on a head.",
        f"        tcp dport {METRICS_PORT} ip saddr != {{ {heads} }} drop",
        f"        meta nfproto ipv6 tcp dport {METRICS_PORT} drop",
        "    }",
        "    chain output {",
        "        type filter hook output priority filter - 5; policy accept;",
        "        # The prolog, as root, fetches secrets from the agent of a head.",
        f"        ip daddr {{ {heads} }} tcp dport {AGENT_PORT} meta skuid != 0 reject with tcp reset",
        "        # Other users of this machine.",
        f'        oifname "lo" tcp dport {{ {", ".join(map(str, local_ports))} }} {refuse}',
    ]
    if name:
        rows += [
            "        # Nodes accept connections from this machine.",
            f"        tcp dport {METRICS_PORT} {refuse}",
            "        # Clients send the keys of services to this port.",
            f"        tcp sport {SERVICE_PORT} meta skuid >= {FIRST_UID_OF_PEOPLE} drop",
        ]
    return script(*rows, "    }", "}")
