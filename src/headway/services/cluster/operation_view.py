"""What a person sees of an operation: paths of the server's own folders are for admins. What everyone sees of it (activity,
recent events, the stream) has file names only. All texts about files of the server pass through this module."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

from headway.domain.operation_kinds import OperationKind
from headway.services.access.role_rights import Principal, Right
from headway.store import Operation
from headway.store.db.rows import OperationEvent

# Their texts name folders of the server; those of other kinds name folders of the cluster.
_ON_SERVER = frozenset({OperationKind.BACKUP, OperationKind.RESTORE, OperationKind.DOWN})
_BACKS_UP_FIRST = frozenset({OperationKind.APPLY, OperationKind.SCALE})  # before an upgrade of Slurm
_NAMES_SERVER_PATHS = _ON_SERVER | _BACKS_UP_FIRST
_BACKUP_STEP = "backup"
# Names of folders may contain blanks: everything up to the last slash of a phrase goes.
_FOLDERS = re.compile(r"(?<![\w./:-])/(?:[^/\n'\",;:]+/)+(?=[^/\s'\",;:])")


def shows_server_paths(who: Principal) -> bool:
    """Returns whether the person sees where the server keeps files."""
    return who.may(Right.ADMIN)


def visible_operation(operation: Operation, *, paths: bool) -> Operation:
    """Returns the operation. Without `paths`, file names stand for paths on the server."""
    if paths or operation.kind not in _NAMES_SERVER_PATHS:
        return operation
    folders = _folders_of(operation)
    error = _without(folders, operation.error) if operation.error else None
    return replace(operation, kept=tuple(_without(folders, text) for text in operation.kept), error=error)


def visible_event(event: OperationEvent, operation: Operation, *, paths: bool) -> OperationEvent:
    """Returns a line of the operation's progress. Without `paths`, file names stand for paths on the server."""
    failure = operation.kind in _BACKS_UP_FIRST and event.step == operation.kind
    if paths or not (operation.kind in _ON_SERVER or event.step == _BACKUP_STEP or failure):
        return event
    return replace(event, text=_without(_folders_of(operation), event.text))


def failure_for_everyone(kind: OperationKind, error: Mapping[str, Any] | None) -> str:
    """Returns why an operation failed, in one line without paths on the server; "" if it did not."""
    if not error:
        return ""
    line = next(
        (text for text in str(error.get("message", "")).splitlines() if text.strip()), str(error.get("kind", ""))
    )
    return without_server_paths(line) if kind in _NAMES_SERVER_PATHS else line


def without_server_paths(text: str, *folders: Path) -> str:
    """Returns the text with file names for paths, also those of these folders, for recent events, which everyone sees."""
    return str(_without(sorted(map(str, folders), key=len, reverse=True), text))


def _folders_of(operation: Operation) -> list[str]:
    """Returns the folders that the operation itself names, the longest first: their names may contain blanks."""
    rule = operation.document.get("spec", {}).get("backup") or {}
    named = [
        operation.params.get("to"),
        operation.params.get("path"),
        rule.get("to"),
        rule.get("key_file"),
        *operation.kept,
    ]
    files = [PurePosixPath(text) for text in named if isinstance(text, str) and text.startswith("/")]
    return sorted({str(folder) for file in files for folder in (file.parent,) if folder != file}, key=len, reverse=True)


def _without(folders: Sequence[str], value: Any) -> Any:
    """Returns texts with "/var/backups/lab.hwb" shortened to "lab.hwb", also those in lists and maps."""
    if isinstance(value, Mapping):
        return {key: _without(folders, part) for key, part in value.items()}
    if isinstance(value, list):
        return [_without(folders, part) for part in value]
    if not isinstance(value, str):
        return value
    for folder in folders:
        value = value.replace(f"{folder}/", "")
    return _FOLDERS.sub("", value)
