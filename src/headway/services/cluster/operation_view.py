"""What a person sees of an operation: paths of the server's own folders are for admins."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

from headway.domain.operation_kinds import OperationKind
from headway.services.access.role_rights import Principal, Right
from headway.store import Operation
from headway.store.db.rows import OperationEvent

# Their texts name folders of the server; those of other kinds name folders of the cluster.
_ON_SERVER = frozenset({OperationKind.BACKUP, OperationKind.RESTORE, OperationKind.DOWN})
_BACKUP_STEP = "backup"  # of an apply or upgrade that makes a backup first
_FOLDERS = re.compile(r"(?<![\w./:-])/(?:[^/\s'\",;:]+/)+(?=[^/\s'\",;:])")


def shows_server_paths(who: Principal) -> bool:
    """Returns whether the person sees where the server keeps files."""
    return who.may(Right.ADMIN)


def visible_operation(operation: Operation, *, paths: bool) -> Operation:
    """Returns the operation. Without `paths`, file names stand for paths on the server."""
    if paths or operation.kind not in _ON_SERVER:
        return operation
    folders = _folders_of(operation)
    error = {key: _without(folders, value) for key, value in operation.error.items()} if operation.error else None
    return replace(operation, kept=tuple(_without(folders, text) for text in operation.kept), error=error)


def visible_event(event: OperationEvent, operation: Operation, *, paths: bool) -> OperationEvent:
    """Returns a line of the operation's progress. Without `paths`, file names stand for paths on the server."""
    if paths or (operation.kind not in _ON_SERVER and event.step != _BACKUP_STEP):
        return event
    return replace(event, text=_without(_folders_of(operation), event.text))


def _folders_of(operation: Operation) -> list[str]:
    """Returns the folders that the operation itself names, the longest first: their names may contain blanks."""
    named = [operation.params.get("to"), operation.params.get("path"), *operation.kept]
    files = [PurePosixPath(text) for text in named if isinstance(text, str) and text.startswith("/")]
    return sorted({str(folder) for file in files for folder in (file.parent,) if folder != file}, key=len, reverse=True)


def _without(folders: Sequence[str], value: Any) -> Any:
    """Returns texts with "/var/backups/lab.hwb" shortened to "lab.hwb"; other values unchanged."""
    if not isinstance(value, str):
        return value
    for folder in folders:
        value = value.replace(f"{folder}/", "")
    return _FOLDERS.sub("", value)
