"""NFS exports of the head, for owned machines that do not already share /home and /scratch."""

from __future__ import annotations

from headway.domain.cluster import Cluster
from headway.domain.machines.managed_file import File
from headway.domain.machines.site import Site
from headway.domain.machines.systemd_unit import Unit
from headway.render.escaping import path, require_word, script

EXPORTS = "/etc/exports.d/headway.exports"
SERVER = "nfs-server.service"


def exported(site: Site) -> tuple[str, ...]:
    """Returns the paths that the head exports."""
    return site.own.nfs if site.own else ()


def head_files(cluster: Cluster, site: Site) -> dict[str, File]:
    """Returns the head's exports. root_squash maps root of a node to nobody, so only the head can create homes."""
    where = exported(site)
    if not where:
        return {}
    options = "(rw,sync,no_subtree_check,root_squash)"
    clients = " ".join(f"{require_word(site.addresses[name], 'addresses')}{options}" for name in cluster.slot_names)
    return {EXPORTS: File(script(*(f"{path(place, 'storage')} {clients}" for place in where)))}


def head_units(site: Site) -> tuple[Unit, ...]:
    """Returns the NFS server of the head, if it exports anything."""
    reload = ("exportfs", "-ra")
    return (Unit(SERVER, reload_on=(EXPORTS,), reload=reload),) if exported(site) else ()
