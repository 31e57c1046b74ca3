"""Rules of the section `storage`: datasets, volumes and the folder of Slurm's state."""

from __future__ import annotations

from headway.clusterfile.draft import FileDraft
from headway.clusterfile.models.storage import DatasetPart
from headway.clusterfile.rules.slurm_state_folder import state_folder_faults
from headway.validation import syntax_rules, volume_mount


def check_mounts(draft: FileDraft) -> None:
    """Checks the names, folders and mount points of datasets and volumes."""
    seen_names: set[str] = set()
    seen_mounts: dict[str, str] = {}
    for index, part in enumerate(draft.file.storage.datasets):
        where = draft.item("storage.datasets", index)
        if part.name in seen_names:
            draft.fault(f"{where}.name", f"{part.name} is given twice", "give each dataset its own name")
        seen_names.add(part.name)
        _dataset_path(draft, part, where)
        mount = dataset_mount(part)
        problem = volume_mount.mount_fault(mount)
        if problem:
            draft.fault(f"{where}.mount", problem, f"for example /datasets/{part.name}")
            continue
        for other, name in seen_mounts.items():
            if f"{mount}/".startswith(f"{other}/") or f"{other}/".startswith(f"{mount}/"):
                draft.fault(f"{where}.mount", f"overlaps the mount of {name}, {other}", "use separate folders")
                break
        seen_mounts[mount] = part.name
    for index, volume in enumerate(draft.file.storage.volumes):
        where = draft.item("storage.volumes", index)
        if volume.name in seen_names:
            draft.fault(f"{where}.name", f"{volume.name} is given twice", "give each volume and dataset its own name")
        seen_names.add(volume.name)
        mount = volume.path.rstrip("/") or "/"
        problem = volume_mount.mount_fault(mount)
        if problem or mount in ("/home", "/scratch"):
            draft.fault(
                f"{where}.path", problem or f"{mount} is on every machine already", f"for example /{volume.name}"
            )
            continue
        for other, name in seen_mounts.items():
            if f"{mount}/".startswith(f"{other}/") or f"{other}/".startswith(f"{mount}/"):
                draft.fault(f"{where}.path", f"overlaps the mount of {name}, {other}", "use separate folders")
                break
        seen_mounts[mount] = volume.name


def dataset_mount(part: DatasetPart) -> str:
    """Returns the mount point of a dataset on the machines, without a slash at the end."""
    return (part.mount or f"/datasets/{part.name}").rstrip("/") or "/"


def _dataset_path(draft: FileDraft, part: DatasetPart, where: str) -> None:
    if part.path is None:
        if draft.provider.volumes_on_server and draft.is_intact("provider", f"{where}.path"):
            draft.fault(f"{where}.path", "is missing", "give the folder on this machine")
        return
    problem = syntax_rules.path_fault(part.path) or ("can't be the root folder" if part.path == "/" else "")
    if problem:
        hint = "give an absolute path" if not part.path.startswith("/") else ""
        draft.fault(f"{where}.path", problem, hint)


def check_state_folder(draft: FileDraft) -> None:
    """Checks where two heads keep Slurm's state."""
    if draft.is_intact("provider", "controllers", "storage"):
        for where, message, hint in state_folder_faults(draft.file, draft.provider):
            draft.fault(where, message, hint)
