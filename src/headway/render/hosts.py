"""/etc/hosts with every machine, and a resolver that never waits."""

from __future__ import annotations

from headway.domain.cluster import Cluster, Site
from headway.render.text import one_line, script


def hosts(cluster: Cluster, site: Site) -> str:
    """The head first, then nodes in slot order. Every look-up, reverse ones too, ends here."""
    rows = [
        "127.0.0.1 localhost",
        "::1 localhost ip6-localhost ip6-loopback",
        f"{site.head_address} {cluster.head} head",
    ]
    rows += [f"{site.addresses[name]} {name}" for name in cluster.slot_names if name in site.addresses]
    return script(*(one_line(row, "addresses") for row in rows))


def resolv_conf() -> str:
    """No name server: a dead one costs seconds at each reverse look-up."""
    return script("# Local machines know each other from /etc/hosts and reach no name server.")
