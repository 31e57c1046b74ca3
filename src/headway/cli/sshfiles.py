"""The files that let ssh, scp and rsync reach a cluster: one config and one known_hosts file per cluster."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from headway import paths
from headway.errors import Refused

if TYPE_CHECKING:
    from headway.wire.people import AccessOut

KEY_FILE = "id_ed25519"  # the client's own key, where it made one


def folder() -> Path:
    return paths.config_dir() / "ssh"


def config_text(access: AccessOut) -> str:
    """The Host blocks of a cluster: the head under two names, nodes through the head. Raises Refused for an answer that
    could add lines of its own."""
    for word in (access.cluster, access.user, access.head, access.address, *access.machines):
        if not word or any(c.isspace() or c in '"*?!%' for c in word):
            raise Refused(f"the server gave a name that does not fit an ssh config: {word!r}")
    known = [
        f"  User {access.user}",
        f"  UserKnownHostsFile {_quote(known_hosts_file(access.cluster))}",
        "  GlobalKnownHostsFile /dev/null",
        "  StrictHostKeyChecking yes",
        "  CheckHostIP no",
        "  UpdateHostKeys no",
    ]
    key = paths.config_dir() / KEY_FILE
    if key.exists():
        known.append(f"  IdentityFile {_quote(key)}")
    lines = [
        f"Host {access.cluster} {access.head}",
        f"  HostName {access.address}",
        f"  Port {access.port}",
        f"  HostKeyAlias {access.head}",
        *known,
    ]
    patterns = node_patterns(access)
    if patterns:
        # A node's name is looked up on the head, so that no address has to be known here.
        lines += ["", f"Host {' '.join(patterns)}", f"  ProxyJump {access.head}", *known]
    return "\n".join(lines) + "\n"


def node_patterns(access: AccessOut) -> list[str]:
    """`lab-1-*` for each leaf: never a pattern that another cluster's machines could match."""
    nodes = (name for name in access.machines if name != access.head)
    return list(dict.fromkeys(f"{name.rpartition('-')[0]}-*" for name in nodes))


def known_hosts_file(cluster: str) -> Path:
    return folder() / f"{cluster}.known_hosts"


def write(access: AccessOut) -> Path:
    """Writes the cluster's files, and the config that includes all of them and the person's own; returns its path."""
    text = config_text(access)
    _put(known_hosts_file(access.cluster), "".join(f"{line.strip()}\n" for line in _pinned(access)))
    _put(folder() / f"{access.cluster}.conf", text)
    config = folder() / "config"
    _put(config, f"{include_line()}\nInclude ~/.ssh/config\n")
    return config


def _pinned(access: AccessOut) -> Iterable[str]:
    """known_hosts lines under the names ssh will look for: the machine's name, whatever address it has now."""
    names = {address: name for name, address in access.machines.items()} | {access.address: access.head}
    for line in access.host_keys:
        hosts, _, key = line.strip().partition(" ")
        known = dict.fromkeys(hosts.split(","))
        for host in list(known):
            bare = host.removeprefix("[").partition("]")[0]
            if bare in names:
                known[names[bare]] = None
        yield f"{','.join(known)} {key}"


def forget(cluster: str) -> None:
    """After `down`: the cluster's files are of no use."""
    for path in (known_hosts_file(cluster), folder() / f"{cluster}.conf"):
        path.unlink(missing_ok=True)


def include_line() -> str:
    return f"Include {_quote(folder() / '*.conf')}"


def install() -> tuple[Path, bool]:
    """Puts the Include line at the top of ~/.ssh/config; (its path, whether it was written now)."""
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
    """A path in an ssh config: quotes for blanks, %% for a percent sign."""
    text = str(path).replace("%", "%%")
    return f'"{text}"' if " " in text else text
