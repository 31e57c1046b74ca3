"""Which paths on the server's machine a request or a cluster file may name."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from headway.domain.cluster import Cluster
from headway.domain.dataset import FOLDER, conflicting_field
from headway.errors import Fault, HeadwayError, NotAllowed, Refused
from headway.services.app_state import AppState
from headway.services.cluster_backend import ResolvedCluster

# A dataset is visible to every user of a cluster, so it must not come from the host's own folders.
SYSTEM_FOLDERS = tuple(
    Path(p) for p in ("/boot", "/dev", "/etc", "/proc", "/root/.ssh", "/run", "/sys", "/usr", "/var/lib/headway")
)
OWN_FOLDER = Path("/etc/headway")  # also holds the keys of backups and of HTTPS
KEY_FOLDERS = (Path("/etc/munge"), OWN_FOLDER)


def require_allowed_path(
    state: AppState, path: str, hint: str = "keep backups in a separate folder, best on a separate disk"
) -> Path:
    """Returns the real path, for backups. Raises Refused for a relative path, NotAllowed for a protected folder."""
    if not path.startswith("/") or "\0" in path:
        raise Refused(f"{path!r} is not an absolute path", hint="name a folder on the server's machine")
    real = Path(os.path.realpath(path))
    if real == Path("/") or any(real.is_relative_to(folder) for folder in _protected_folders(state)):
        raise NotAllowed(
            f"{real} is a system folder of the server's machine",
            hint=hint,
        )
    return real


async def path_faults(state: AppState, resolved: ResolvedCluster) -> list[Fault]:
    """Returns the faults of all paths on the server's machine that a cluster file names."""
    names = await state.store.datasets.names(resolved.cluster.name)
    return [
        *dataset_faults(state, resolved),
        *_library_faults(resolved, names),
        *_backup_faults(state, resolved),
        *_key_faults(state, resolved),
    ]


def moved_dataset_faults(before: Cluster, cluster: Cluster) -> Iterator[Fault]:
    """Yields faults for datasets of a local cluster whose folder changed: its machines have the old folder mounted,
    with files open."""
    if not (before.provider.volumes_on_server and cluster.provider.volumes_on_server):
        return
    known = {dataset.name: dataset.source for dataset in before.storage.datasets if not dataset.versioned}
    for number, dataset in enumerate(cluster.storage.datasets):
        if not dataset.versioned and dataset.source and known.get(dataset.name, dataset.source) != dataset.source:
            source = known[dataset.name]
            message = f"the dataset {dataset.name} is mounted from {source}; a mounted dataset can't change its folder"
            yield Fault(
                f"storage.datasets[{number}].path",
                message,
                "remove it, apply, then add it again; or give it another name",
            )


def _library_faults(resolved: ResolvedCluster, names: Iterable[str]) -> Iterator[Fault]:
    for name in names:
        field = conflicting_field(resolved.cluster.storage, name)
        if field:
            message = f"{FOLDER}/{name} holds versions of the dataset {name} already"
            yield Fault(field, message, f"give it another name and place, or remove those: headway dataset ls {name}")


def require_dataset_source(state: AppState, path: str) -> Path:
    """Returns the real path of a folder from which a dataset may be imported. Raises Refused or NotAllowed."""
    real = require_allowed_path(state, path, "keep the data in a separate folder")
    roots = state.settings.dataset_roots
    if any(folder.is_relative_to(real) for folder in _protected_folders(state)):
        raise NotAllowed(
            f"{real} contains system folders of the server's machine", hint="name a folder with only the data"
        )
    if roots and not any(real.is_relative_to(root) for root in roots):
        raise NotAllowed(
            f"{real} is not under a folder this server allows", hint=f"allowed: {', '.join(map(str, roots))}"
        )
    return real


def _backup_faults(state: AppState, resolved: ResolvedCluster) -> Iterator[Fault]:
    rule = resolved.cluster.backup
    if rule is None:
        return
    try:
        require_allowed_path(state, rule.to)
    except HeadwayError as error:
        yield Fault("backup.to", error.message, error.hint)


def _key_faults(state: AppState, resolved: ResolvedCluster) -> Iterator[Fault]:
    """Yields faults of the MUNGE key's file. The key is copied to every machine, so the file must not be another secret
    of the server."""
    source = resolved.cluster.munge_key
    if source is None or not source.file:
        return
    real = Path(os.path.realpath(source.file))
    inside = any(real.is_relative_to(folder) for folder in KEY_FOLDERS)
    if not inside and any(real.is_relative_to(folder) for folder in _protected_folders(state)):
        yield Fault(
            "secrets.munge.file", f"{real} is a system folder of the server's machine", "keep the key in /etc/munge"
        )
    elif real.is_relative_to(OWN_FOLDER) and "munge" not in real.name:
        yield Fault(
            "secrets.munge.file", f"{real} may be another secret of the server", f"name it {OWN_FOLDER}/munge.key"
        )


def _protected_folders(state: AppState) -> tuple[Path, ...]:
    """Returns the host's own folders, and those of this server's state and data."""
    return (*SYSTEM_FOLDERS, state.settings.state_dir.resolve(), state.settings.data.resolve())


def dataset_faults(state: AppState, resolved: ResolvedCluster) -> list[Fault]:
    """Returns faults of dataset folders. Datasets are the only paths of a file that the server opens: each must be a
    folder that its settings allow."""
    faults = []
    for index, dataset in enumerate(resolved.cluster.storage.datasets):
        if not dataset.source or dataset.versioned:
            continue
        path = f"storage.datasets[{index}].path"
        try:
            real = require_dataset_source(state, dataset.source)
        except HeadwayError as error:
            faults.append(Fault(path, error.message, error.hint))
            continue
        if resolved.cluster.provider.volumes_on_server and not os.path.isdir(real):  # noqa: PTH112 (never raises)
            what = "is not a folder" if os.path.lexists(real) else "is not there"
            faults.append(Fault(path, f"{real} {what} on the server's machine", "name a folder that exists"))
    return faults
