"""NFS from the head, where machines one owns don't all mount one /home and /scratch already."""

from __future__ import annotations

from headway.domain.cluster import Cluster, Site
from headway.domain.managed_file import File
from headway.domain.systemd_unit import Unit
from headway.render.escaping import MARK, path, script, word

EXPORTS = "/etc/exports.d/headway.exports"
SERVER = "nfs-server.service"


def exported(site: Site) -> tuple[str, ...]:
    return site.own.nfs if site.own else ()


def head_files(cluster: Cluster, site: Site) -> dict[str, File]:
    """Nodes' root is nobody there: only the head makes homes."""
    where = exported(site)
    if not where:
        return {}
    options = "(rw,sync,no_subtree_check,root_squash)"
    clients = " ".join(f"{word(site.addresses[name], 'addresses')}{options}" for name in cluster.slot_names)
    return {EXPORTS: File(script(*(f"{path(place, 'storage')} {clients}" for place in where)))}


def head_units(site: Site) -> tuple[Unit, ...]:
    reload = ("exportfs", "-ra")
    return (Unit(SERVER, reload_on=(EXPORTS,), reload=reload),) if exported(site) else ()


def mount(site: Site, where: str) -> str:
    """A node's mount unit."""
    return f"""\
# {MARK}
[Unit]
Description=Headway volume {path(where, "storage")} of the head
After=network-online.target
Wants=network-online.target
Before=slurmd.service systemd-user-sessions.service
[Mount]
What={word(site.head_address, "address")}:{path(where, "storage")}
Where={path(where, "storage")}
Type=nfs
# A program that reads while the head restarts waits, and goes on.
Options=vers=4.2,hard,noatime,_netdev
[Install]
WantedBy=multi-user.target
"""
