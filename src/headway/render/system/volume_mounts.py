"""Mount units of the volumes: home, scratch and datasets that Headway provides, volumes from other servers with the
options of the cluster file, and exports of the head."""

from __future__ import annotations

from collections.abc import Iterable

from headway.domain.cluster import Cluster
from headway.domain.environment import FOLDER
from headway.domain.machines.managed_file import File
from headway.domain.machines.site import Site
from headway.domain.storage.folders import Volume
from headway.render.escaping import MARK, path, require_word
from headway.render.system import nfs_exports
from headway.render.system.daemon_units import UNITS


def files(cluster: Cluster, site: Site, *, head: bool) -> dict[str, File]:
    """Returns the files of the mount units by path."""
    return {f"{UNITS}/{name}": File(text) for name, text in mount_units(cluster, site, head=head).items()}


def mount_units(cluster: Cluster, site: Site, *, head: bool) -> dict[str, str]:
    """Returns the text of each mount unit by its name. Volumes are bind mounts from the parent mount; on nodes of owned
    clusters, the head's exports are NFS mounts."""
    bound = {unit_name(where): _bind_mount(what, where, ro) for what, where, ro in provided_volumes(cluster, site)}
    from_head = () if head else nfs_exports.exported(site)
    outside = {unit_name(volume.path): _outside(volume) for volume in cluster.storage.volumes}
    return {**bound, **outside, **{unit_name(where): _head_export(site, where) for where in from_head}}


def provided_volumes(cluster: Cluster, site: Site) -> list[tuple[str, str, bool]]:
    """Returns home, scratch, datasets and environments that Headway provides: (folder on the machine, mount point,
    read-only). Owned machines have their own home and scratch, and mount datasets without versions themselves."""
    storage = cluster.storage
    environments = (path(cluster.environment_folder, "storage.scratch"), FOLDER, True)
    if site.own:
        own = [(path(d.source, "storage.datasets"), d.mount, True) for d in storage.datasets if d.versioned]
        return [*own, environments]
    below = "/srv/headway"
    return [
        (f"{below}/home", storage.home, False),
        (f"{below}/scratch", storage.scratch, False),
        *(
            (f"{below}/datasets/{require_word(d.name, 'storage.datasets')}", d.mount, d.read_only)
            for d in storage.datasets
            if d.source
        ),
        environments,
    ]


def volume_units(cluster: Cluster) -> dict[str, str]:
    """Returns the mount points of volumes from other servers by their unit names."""
    return {unit_name(volume.path): volume.path for volume in cluster.storage.volumes}


def _mount_word(text: str) -> str:
    """Returns a mount source or option, which may contain colons: filer:/export. Raises InvalidSpec for any other
    special character."""
    for part in text.split(":"):
        require_word(part or "-", "storage.volumes")
    return text


def _outside(volume: Volume) -> str:
    options = ",".join(_mount_word(option) for option in (*volume.options, "nosuid", "nodev"))
    return f"""\
# {MARK}
[Unit]
Description=Headway volume {require_word(volume.name, "storage.volumes")}
After=network-online.target
Wants=network-online.target
Before=slurmd.service ssh.service systemd-user-sessions.service
[Mount]
What={_mount_word(volume.source)}
Where={path(volume.path, "storage.volumes")}
Type={require_word(volume.type, "storage.volumes")}
Options={options}
# A file server that does not answer does not stop the boot: the node is drained, and the mount is tried again.
TimeoutSec=30
# A lazy unmount, also of a file system in use: programs keep their open files.
LazyUnmount=yes
[Install]
WantedBy=multi-user.target
"""


def _bind_mount(what: str, where: str, read_only: bool) -> str:
    options = "bind,ro" if read_only else "bind"
    note = "# Read-only, so that jobs can't change it.\n" if read_only else ""
    return f"""\
# {MARK}
[Unit]
Description=Headway volume {path(where, "storage")}
# Mounted before any daemon that may write below it.
Before=slurmd.service ssh.service systemd-user-sessions.service
ConditionPathIsDirectory={what}
[Mount]
What={what}
Where={path(where, "storage")}
Type=none
{note}Options={options}
[Install]
WantedBy=multi-user.target
"""


def _head_export(site: Site, where: str) -> str:
    """Returns the unit that mounts an export of the head on a node."""
    return f"""\
# {MARK}
[Unit]
Description=Headway volume {path(where, "storage")} of the head
After=network-online.target
Wants=network-online.target
Before=slurmd.service systemd-user-sessions.service
[Mount]
What={require_word(site.head_address, "address")}:{path(where, "storage")}
Where={path(where, "storage")}
Type=nfs
# hard: a program that reads during a restart of the head waits and then continues.
Options=vers=4.2,hard,noatime,_netdev
[Install]
WantedBy=multi-user.target
"""


def unit_name(where: str) -> str:
    r"""Returns the name of a mount point's unit, as systemd escapes it: /datasets/my-set gives
    datasets-my\x2dset.mount."""
    name = path(where, "storage").strip("/")
    text = "".join(
        "-"
        if c == "/"
        else c
        if (c.isalnum() and c.isascii()) or c in "_.:"
        else "".join(f"\\x{b:02x}" for b in c.encode())
        for c in name
    )
    return f"\\x2e{text[1:]}.mount" if text.startswith(".") else f"{text}.mount"


def in_mount_order(units: Iterable[str]) -> tuple[str, ...]:
    """Returns unit names in the order in which they must be mounted: parents first."""
    return tuple(sorted(units, key=lambda unit: (unit.count("-"), unit)))
