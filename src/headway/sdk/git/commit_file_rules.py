"""What a cluster file of a Git commit may name: files next to it, no command, and no other file of this machine. Who may
push to the repository must not thereby run commands or read files on the machine of the command."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

from headway.errors import Fault
from headway.validation.error_paths import path_text
from headway.validation.ssh_keys import looks_like_path

_INSIDE = "name a file in the folder of the cluster file, or give the key itself"
_ABSOLUTE = "give an absolute path: it is a path on the server's machine"


def faults_of_commit_file(spec: Mapping[str, Any]) -> Iterator[Fault]:
    """Yields the faults of a file as it was written."""
    yield from _hosts(spec.get("hosts"))
    yield from _keys(spec, "ssh_keys")
    for name, user in _mapping(spec.get("users")).items():
        yield from _keys(_mapping(user), f"users.{name}.ssh_keys")
    repository = _mapping(_mapping(spec.get("gpu")).get("repository"))
    yield from _inside(repository.get("key"), "gpu.repository.key")
    registries = _mapping(_mapping(_mapping(spec.get("containers")).get("signatures")).get("registries"))
    for scope, rule in registries.items():
        place = path_text(("containers", "signatures", "registries", str(scope), "sigstore_key"))
        yield from _inside(_mapping(rule).get("sigstore_key"), place)
    yield from _absolute(spec)


def _hosts(hosts: Any) -> Iterator[Fault]:
    if not isinstance(hosts, Mapping):
        return
    if "from" in hosts:
        hint = "list the machines, or run the command in CI and commit its output for hosts.file"
        yield Fault("hosts.from", "a file of a commit runs no command", hint)
    yield from _inside(hosts.get("file"), "hosts.file", "commit the file next to the cluster file")


def _keys(holder: Mapping[str, Any], place: str) -> Iterator[Fault]:
    keys = holder.get("ssh_keys")
    for index, key in enumerate(keys if isinstance(keys, list) else ()):
        if isinstance(key, str) and looks_like_path(key):
            yield from _inside(key, f"{place}[{index}]")


def _inside(value: Any, place: str, hint: str = _INSIDE) -> Iterator[Fault]:
    """Yields a fault for the path of a file that is not in the folder of the cluster file. Text of several lines is a key."""
    if not isinstance(value, str) or "\n" in value.strip() or not value.strip():
        return
    path = PurePosixPath(value.strip())
    if path.is_absolute() or value.strip().startswith("~") or ".." in path.parts:
        yield Fault(place, f"a file of a commit does not name {value.strip()}, which is not next to it", hint)


def _absolute(spec: Mapping[str, Any]) -> Iterator[Fault]:
    """Yields a fault for each path on the server's machine that is relative: the folder of the file does not remain."""
    storage, secrets = _mapping(spec.get("storage")), _mapping(spec.get("secrets"))
    hosts = spec.get("hosts")
    listed = [_mapping(host) for host in hosts] if isinstance(hosts, list) else []
    datasets = storage.get("datasets")
    places = [("backup", _mapping(spec.get("backup")), name) for name in ("to", "key_file")]
    places += [("secrets.munge", _mapping(secrets.get("munge")), "file")]
    places += [
        (f"storage.datasets[{index}]", _mapping(dataset), "path")
        for index, dataset in enumerate(datasets if isinstance(datasets, list) else ())
    ]
    for index, host in enumerate(listed):
        places += [(f"hosts[{index}]", host, name) for name in ("key", "sudo_password")]
        places += [(f"hosts[{index}].jump", _mapping(host.get("jump")), "key")]
    for place, holder, name in places:
        path = holder.get(name)
        if isinstance(path, str) and path and "://" not in path and not path.startswith(("/", "~")):
            yield Fault(f"{place}.{name}", f"{path} is relative, and the folder of a commit does not remain", _ABSOLUTE)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
