"""Renders /etc/hosts with every machine, and a resolv.conf without name servers."""

from __future__ import annotations

from collections.abc import Mapping

from headway.domain.cluster import Cluster
from headway.domain.machines.site import Site
from headway.render.escaping import one_line, script


def hosts(cluster: Cluster, site: Site) -> str:
    """Returns /etc/hosts: the heads first, then nodes in slot order. It answers every look-up, reverse ones too."""
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
    """Returns the names of a machine. Headway's name comes first, because reverse look-ups return the first one; the
    machine's earlier name follows."""
    return " ".join(dict.fromkeys((name, known_as.get(name, name))))


def resolv_conf() -> str:
    """Returns resolv.conf. It names no server, because a dead one costs seconds at each reverse look-up."""
    return script("# Local machines find each other in /etc/hosts and can reach no name server.")
