"""Adds one user of the cluster, refuses their sign-in and allows it. The files get the lines that they have after an apply of
a cluster file without the user, or with them (render/system/login/users.py)."""

from __future__ import annotations

import contextlib
import os

from ops.files import lock_folder, read_text

FOLDER = "/var/lib/extrausers"  # passwd, group and shadow of the cluster's users
# By file the fields of a user's line: shell; password, and the day on which the account expires
LOCKED = {"passwd": {6: "/usr/sbin/nologin"}, "shadow": {1: "!", 7: "1"}}
OPEN = {"passwd": {6: "/bin/bash"}, "shadow": {1: "*", 7: ""}}


def lock(user: str, folder: str = FOLDER) -> None:
    """Refuses sign-ins of the user. A user whom the machine does not know stays unknown."""
    with lock_folder(folder):
        for name, fields in LOCKED.items():
            _set_fields(f"{folder}/{name}", user, fields)


def unlock(user: str, folder: str = FOLDER) -> None:
    """Allows sign-ins of the user."""
    with lock_folder(folder):
        for name, fields in OPEN.items():
            _set_fields(f"{folder}/{name}", user, fields)


def add_user(user: str, uid: int, home: str, folder: str = FOLDER) -> None:
    """Adds the user, or allows the sign-in of one who is there."""
    lines = {
        "passwd": f"{user}:x:{uid}:{uid}:{user}:{home}:/bin/bash",
        "group": f"{user}:x:{uid}:",
        "shadow": f"{user}:*:19000:0:99999:7:::",
    }
    with lock_folder(folder):  # several users are added at the same time
        for name, line in lines.items():
            path = f"{folder}/{name}"
            text = read_text(path)
            rows = text.splitlines(keepends=True)
            if not any(row.partition(":")[0] == user for row in rows):
                rows = sorted([*rows, f"{line}\n"], key=lambda row: row.partition(":")[0])
                _replace(path, text, "".join(rows))
    unlock(user, folder)


def _set_fields(path: str, user: str, values: dict[int, str]) -> None:
    """Sets fields of the user's line."""
    text = read_text(path)
    lines = text.splitlines(keepends=True)
    for number, line in enumerate(lines):
        fields = line.rstrip("\n").split(":")
        if fields[0] == user:
            lines[number] = ":".join(values.get(index, field) for index, field in enumerate(fields)) + "\n"
    _replace(path, text, "".join(lines))


def _replace(path: str, text: str, changed: str) -> None:
    """Replaces the file's text. The file keeps its owner and mode."""
    if changed == text:
        return
    found, temporary = os.stat(path), f"{path}.headway-lock"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(temporary)
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w") as file:
        file.write(changed)
    os.chown(temporary, found.st_uid, found.st_gid)
    os.chmod(temporary, found.st_mode & 0o7777)
    os.replace(temporary, path)
