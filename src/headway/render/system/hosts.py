"""/etc/hosts with every machine, and a resolver that never waits."""

from __future__ import annotations

from collections.abc import Mapping

from headway.domain.cluster import Cluster, Site
from headway.render.escaping import one_line, script


def hosts(cluster: Cluster, site: Site) -> str:
    """The heads first, then nodes in slot order. Every look-up, reverse ones too, ends here."""
    known_as = site.own.known_as if site.own else {}
    rows = [
        "127.0.0.1 localhost",
        "::1 localhost ip6-localhost ip6-loopback",
        *(f"{site.addresses[name]} {_names(name, known_as)} {cluster.role_of(name)}" for name in cluster.heads),
    ]
    rows += [
        f"{site.addresses[name]} {_names(name, known_as)}" for name in cluster.slot_names if name in site.addresses
    ]
    return script(*(one_line(row, "addresses") for row in rows))


def _names(name: str, known_as: Mapping[str, str]) -> str:
    """Ours first: a look-up by address gives it. The one the machine had before leads there too."""
    return " ".join(dict.fromkeys((name, known_as.get(name, name))))


def resolv_conf() -> str:
    """No name server: a dead one costs seconds at each reverse look-up."""
    return script("# Local machines know each other from /etc/hosts and reach no name server.")
