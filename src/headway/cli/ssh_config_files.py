"""The files that let ssh, scp and rsync reach a cluster: one config and one known_hosts file per cluster."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from headway import paths
from headway.errors import Refused

if TYPE_CHECKING:
    from headway.schemas.clusters import AccessOut

KEY_FILE = "id_ed25519"  # the client's own key, if it created one: without passphrase, and tried first
USUAL_KEYS = ("id_ed25519", "id_ed25519_sk", "id_ecdsa", "id_ecdsa_sk", "id_rsa")


def ssh_folder() -> Path:
    """Returns the folder of the clusters' ssh files."""
    return paths.config_dir() / "ssh"


def config_text(access: AccessOut) -> str:
    """Returns the Host blocks of a cluster: the active head under two names, a second head, and nodes through the active head.

    Raises Refused for names with characters that could add configuration lines."""
    addresses = (address for address in access.machines.values() if address)
    for word in (access.cluster, access.user, access.head, access.address, *access.machines, *addresses):
        if not word or any(c.isspace() or c in '"*?!%' for c in word):
            raise Refused(f"the server sent a name that is not valid in an ssh config: {word!r}")
    known = [
        f"  User {access.user}",
        f"  UserKnownHostsFile {_quote(known_hosts_file(access.cluster))}",
        "  GlobalKnownHostsFile /dev/null",
        "  StrictHostKeyChecking yes",
        "  CheckHostIP no",
        "  UpdateHostKeys no",
    ]
    key = paths.config_dir() / KEY_FILE
    if key.exists():  # naming an IdentityFile disables ssh's default keys
        usual = [path for name in USUAL_KEYS if (path := Path.home() / ".ssh" / name).exists()]
        known += [f"  IdentityFile {_quote(path)}" for path in (key, *usual)]
    first = _head(f"{access.cluster} {access.head}", access.head, access.address, access.port)
    lines = [*first, *known]
    for name, address in access.machines.items():
        if address and name != access.head and not _is_node(access.cluster, name):
            lines += ["", *_head(name, name, address, access.ports.get(name, 22)), *known]
    for patterns in node_patterns(access):
        # A node's name is looked up on the head, so that no address has to be known here.
        lines += ["", f"Host {' '.join(patterns)}", f"  ProxyJump {access.head}", *known]
    return "\n".join(lines) + "\n"


def _head(names: str, name: str, address: str, port: int) -> list[str]:
    return [f"Host {names}", f"  HostName {address}", f"  Port {port}", f"  HostKeyAlias {name}"]


def _is_node(cluster: str, name: str) -> bool:
    """Returns whether a name is that of a node: `lab-1-3`, or with a group `lab-gpu-1-3`."""
    return re.fullmatch(rf"{re.escape(cluster)}-([a-z][a-z0-9]*-)?[0-9]+-[0-9]+", name) is not None


def node_patterns(access: AccessOut) -> Iterable[list[str]]:
    """Yields Host patterns: `lab-1-*` for each leaf, which also match nodes added later, and exclusions.

    Excluded are heads (a head that is reached through itself would start ssh endlessly) and machines of a cluster lab-1, whose
    names have one part more."""
    nodes = [name.rpartition("-")[0] for name in access.machines if _is_node(access.cluster, name)]
    for deep in sorted({leaf.count("-") for leaf in nodes}):
        leaves = dict.fromkeys(f"{leaf}-*" for leaf in nodes if leaf.count("-") == deep)
        longer = f"!{access.cluster}{'-*' * (deep - access.cluster.count('-') + 2)}"
        yield [*leaves, "!*-head", "!*-head2", longer]


def known_hosts_file(cluster: str) -> Path:
    """Returns the path of the cluster's known_hosts file."""
    return ssh_folder() / f"{cluster}.known_hosts"


def write_ssh_config(access: AccessOut) -> Path:
    """Writes the cluster's files, and a config that includes all clusters' files and the user's own; returns its path.

    A name that two clusters' blocks match (lab-gpu-1-1: of lab's group gpu, and of a cluster lab-gpu) resolves to this one."""
    text, own = config_text(access), ssh_folder() / f"{access.cluster}.conf"
    _put(known_hosts_file(access.cluster), "".join(f"{line.strip()}\n" for line in _pinned(access)))
    _put(own, text)
    config = ssh_folder() / "config"
    _put(config, f"Include {_quote(own)}\n{include_line()}\nInclude ~/.ssh/config\n")
    return config


def _pinned(access: AccessOut) -> Iterable[str]:
    """Yields known_hosts lines with the machines' names; ssh looks a name up even if its address has changed."""
    names = {address: name for name, address in access.machines.items()} | {access.address: access.head}
    for line in access.host_keys:
        hosts, _, key = line.strip().partition(" ")
        known = dict.fromkeys(hosts.split(","))
        for host in list(known):
            bare = host.removeprefix("[").partition("]")[0]
            if bare in names:
                known[names[bare]] = None
        yield f"{','.join(known)} {key}"


def remove_ssh_config(cluster: str) -> None:
    """Removes the cluster's files, after `down`."""
    for path in (known_hosts_file(cluster), ssh_folder() / f"{cluster}.conf"):
        path.unlink(missing_ok=True)


def include_line() -> str:
    """Returns the line that includes the clusters' files in an ssh config."""
    return f"Include {_quote(ssh_folder() / '*.conf')}"


def install_include() -> tuple[Path, bool]:
    """Adds the Include line at the top of ~/.ssh/config; returns (its path, whether it was added now)."""
    target = Path.home() / ".ssh" / "config"
    old = target.read_text() if target.exists() else ""
    if include_line() in old.splitlines():
        return target, False
    target.parent.mkdir(mode=0o700, exist_ok=True)
    mode = target.stat().st_mode & 0o777 if target.exists() else 0o600
    # An Include below a Host block would belong to that block: it has to come first. A link stays a link.
    _put(target.resolve(), f"{include_line()}\n\n{old}" if old else f"{include_line()}\n", mode=mode)
    return target, True


def _put(path: Path, text: str, *, mode: int = 0o600) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    fresh.write_text(text)
    fresh.chmod(mode)
    fresh.replace(path)


def _quote(path: Path) -> str:
    """Returns a path for an ssh config: quoted if it has blanks, with %% for a percent sign."""
    text = str(path).replace("%", "%%")
    return f'"{text}"' if " " in text else text
