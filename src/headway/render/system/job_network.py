"""nftables of the network policy of jobs (`network` of the cluster file).

Every machine marks the first packet of a user's connection to another machine of the cluster with a number of the user, in
the field ID of the IP header, and nodes compare it with the job whose socket is addressed: an address alone does not say
which of the jobs of a node has sent a packet. Users can't change the field, because that needs root. It is of no other use
in a packet that is not fragmented. Within a node the mark of the connection also carries the number, for IPv6.

A node knows the job of a socket by its cgroup. hooks/job_network.py adds the jobs to the rules."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from ipaddress import IPv4Network, collapse_addresses
from itertools import chain, count

from headway.domain.cluster import Cluster
from headway.domain.machines.managed_file import File
from headway.domain.machines.site import Site
from headway.domain.machines.systemd_unit import Unit
from headway.domain.network_policy import TEAM, NetworkPolicy
from headway.render.escaping import require_word, script
from headway.render.slurm.hooks import job_network as hook
from headway.render.slurm.hooks.job_network import CLUSTER_INTERNET, RULES, TABLE
from headway.render.system import nftables_unit

SERVICE = "headway-job-network.service"
# uids of people and of Debian's `nobody`; Debian's own daemons have others, Slurm's is 64030.
PEOPLE = "1000-59999, 65534-4294967294"
_SYSTEM, _STRANGER = 0, 65535  # numbers of daemons, and of people whom the cluster file does not name
_PROTOCOLS = "tcp, udp, icmp, icmpv6"
_FIRST_LARGE = 60_000  # smaller uids are their users' numbers


def files(cluster: Cluster, site: Site, *, head: bool) -> dict[str, File]:
    """Returns the files of a head or of the nodes; {} if the jobs of no team are restricted."""
    if not cluster.restricts_network:
        return {}
    rules = head_rules(cluster, site) if head else node_rules(cluster, site)
    command = "" if head else f"{hook.SCRIPT} load"
    unit = nftables_unit.unit_text("Network policy of jobs", RULES, TABLE, before=("slurmd.service",), load=command)
    script_of_node = {} if head else hook.files(cluster)
    return {RULES: File(rules, mode=0o600), nftables_unit.path_of(SERVICE): File(unit), **script_of_node}


def units(cluster: Cluster, *, head: bool) -> tuple[Unit, ...]:
    """Returns the unit that loads the rules; () if the jobs of no team are restricted."""
    if not cluster.restricts_network:
        return ()
    return (nftables_unit.unit(SERVICE, RULES, *(() if head else (hook.SCRIPT,))),)


def user_numbers(uids: Iterable[int]) -> dict[int, int]:
    """Returns the number of each uid, from 1 to 65534, no two the same: the uid itself if it is small, and of the larger
    ones the next that is free from a place given by the uid."""
    known = sorted(set(uids))
    numbers = {uid: uid for uid in known if uid < _FIRST_LARGE}
    taken = set(numbers.values())
    for uid in known:
        if uid not in numbers:
            start = uid % (_STRANGER - 1)
            numbers[uid] = next(n for n in (1 + (start + step) % (_STRANGER - 1) for step in count()) if n not in taken)
            taken.add(numbers[uid])
    return numbers


def head_rules(cluster: Cluster, site: Site) -> str:
    """Returns the rules of a head: it marks the connections of its users to nodes."""
    rows = [
        *_first_rows(cluster, site),
        *_output(),
        "        ip daddr @machines goto number",
        "    }",
        "}",
    ]
    return script(*rows)


def node_rules(cluster: Cluster, site: Site) -> str:
    """Returns the rules of the nodes. @LEVEL@ stands for the depth of the jobs' cgroups."""
    rows = [
        *_first_rows(cluster, site),
        "    # Cgroups of jobs; hooks/job_network.py adds them.",
        "    map job_ports {",
        "        typeof socket cgroupv2 level 1 : verdict",
        "    }",
        "    map job_internet {",
        "        typeof socket cgroupv2 level 1 : verdict",
        "    }",
        "    # Ports to which users connected in the last minutes.",
        *_recent("recent", "ip id"),
        *_recent("recent_local", "ct mark"),
        *_known_senders(),
        *chain.from_iterable(_team_chains(cluster, site)),
        *_internet_chain(CLUSTER_INTERNET, cluster.network.policy),
        *_output(),
        '        oifname "lo" goto number',
        "        ip daddr @machines goto number",
        "        ct direction reply accept",
        f"        meta skuid != {{ {PEOPLE} }} accept",
        "        # Also of a socket without a user, such as a subflow of MPTCP.",
        "        socket cgroupv2 level @LEVEL@ vmap @job_internet",
        f"        meta skuid {{ {PEOPLE} }} goto {CLUSTER_INTERNET}",
        "    }",
        *_input(),
        "}",
    ]
    return script(*rows)


def _first_rows(cluster: Cluster, site: Site) -> list[str]:
    numbers = user_numbers(site.uids.values())
    machines = (*(site.addresses[name] for name in cluster.machine_names), *cluster.network.machine_networks)
    return [
        f"table {TABLE}",
        f"delete table {TABLE}",
        f"table {TABLE} {{",
        "    set machines {",
        "        type ipv4_addr",
        "        flags interval",
        "        auto-merge",
        f"        elements = {{ {', '.join(require_word(each, 'addresses') for each in dict.fromkeys(machines))} }}",
        "    }",
        "    # uid : number",
        *_number_map("user_numbers", "ip id", numbers),
        *_number_map("user_marks", "ct mark", numbers),
        "    chain refuse {",
        "        meta l4proto tcp reject with tcp reset",
        "        reject with icmpx admin-prohibited",
        "    }",
        "    chain number {",
        "        # Of other protocols nftables find neither socket nor job.",
        f"        meta l4proto != {{ {_PROTOCOLS} }} meta skuid {{ {PEOPLE} }} goto refuse",
        # A subflow of MPTCP has no user, so who is not known to be a daemon is a stranger. Of daemons only connections have a
        # number: a fragmented datagram needs the field ID itself.
        f"        meta l4proto tcp ip id set {_STRANGER}",
        f"        meta l4proto tcp meta skuid != {{ {PEOPLE} }} ip id set {_SYSTEM}",
        f"        meta skuid {{ {PEOPLE} }} ip id set {_STRANGER}",
        "        ip id set meta skuid map @user_numbers",
        f'        oifname "lo" ct mark set {_STRANGER}',
        f'        oifname "lo" meta skuid != {{ {PEOPLE} }} ct mark set {_SYSTEM}',
        '        oifname "lo" ct mark set meta skuid map @user_marks',
        "    }",
    ]


def _number_map(name: str, kind: str, numbers: Mapping[int, int]) -> list[str]:
    rows = [f"            {uid} : {number}," for uid, number in numbers.items()]
    elements = ["        elements = {", *rows, "        }"] if rows else []
    return [f"    map {name} {{", f"        typeof meta skuid : {kind}", *elements, "    }"]


def _recent(name: str, kind: str) -> list[str]:
    return [
        f"    set {name} {{",
        f"        typeof tcp dport . {kind}",
        "        flags dynamic,timeout",
        "        timeout 2m",
        "        size 65535",
        "    }",
    ]


def _known_senders() -> list[str]:
    """Returns the rules with which the chain of each job begins."""
    return [
        "    chain known_senders {",
        '        iifname != "lo" ip saddr != @machines goto refuse',
        '        iifname != "lo" meta nfproto ipv6 goto refuse',
        *_accept(str(_SYSTEM), str(_SYSTEM)),
        "    }",
    ]


def _accept(numbers: str, marks: str) -> list[str]:
    return [f"        {rule}" for rule in hook.accept_rules(numbers, marks)]


def _team_chains(cluster: Cluster, site: Site) -> Iterable[list[str]]:
    numbers = user_numbers(site.uids.values())
    for team in cluster.teams:
        name = require_word(team.name, "teams")
        if team.network.job_ports == TEAM:
            members = ", ".join(str(numbers[site.uids[user]]) for user in team.users if user in site.uids)
            listed = [f"        elements = {{ {members} }}"] if members else []
            yield [f"    set users_of_{name} {{", "        typeof ip id", *listed, "    }"]
            yield [f"    set marks_of_{name} {{", "        typeof ct mark", *listed, "    }"]
            accept = _accept(f"@users_of_{name}", f"@marks_of_{name}")
            yield [f"    chain ports_{name} {{", "        jump known_senders", *accept, "        goto refuse", "    }"]
        if team.network.internet is not None:
            yield _internet_chain(f"{CLUSTER_INTERNET}_{name}", team.network)


def _internet_chain(name: str, policy: NetworkPolicy) -> list[str]:
    rows = [f"    chain {name} {{"]
    if policy.internet:
        # nft refuses networks that overlap.
        networks = collapse_addresses(IPv4Network(each) for each in policy.internet)
        listed = ", ".join(map(str, networks))
        rows.append(f"        ip daddr {{ {listed} }} accept")
    if policy.internet is not None:
        rows.append("        goto refuse")
    return [*rows, "    }"]


def _output() -> list[str]:
    return [
        "    chain output {",
        "        type filter hook output priority filter - 5; policy accept;",
        "        # Only first packets of a connection matter; of a datagram the connection may be another user's by now.",
        "        meta l4proto tcp ct state established,related accept",
        "        meta l4proto tcp tcp flags & (fin | syn | rst | ack) != syn accept",
    ]


def _input() -> list[str]:
    """Returns the chain that asks whose job a socket is of.

    A former connection that is in TIME-WAIT, or a half-open one, hides the socket that listens: nft can't tell its cgroup,
    and a new connection from the same address and port would reach it, also that of another user. So such packets must
    come from a user who has connected to this port in the last minutes."""
    return [
        "    chain input {",
        "        type filter hook input priority filter - 5; policy accept;",
        "        meta l4proto tcp ct state established,related accept",
        "        meta l4proto tcp tcp flags & (fin | syn | rst | ack) != syn accept",
        "        meta l4proto { icmp, icmpv6 } accept",
        "        ct direction reply accept",
        "        socket cgroupv2 level @LEVEL@ vmap @job_ports",
        '        iifname != "lo" ip saddr != @machines accept',
        '        iifname != "lo" meta nfproto ipv6 accept',
        "        meta l4proto != tcp accept",
        "        socket wildcard { 0, 1 } update @recent { tcp dport . ip id } accept",
        "        socket wildcard { 0, 1 } meta nfproto ipv6 update @recent_local { tcp dport . ct mark } accept",
        "        socket transparent { 0, 1 } tcp dport . ip id @recent accept",
        "        socket transparent { 0, 1 } meta nfproto ipv6 tcp dport . ct mark @recent_local accept",
        "        socket transparent { 0, 1 } goto refuse",
        "    }",
    ]
