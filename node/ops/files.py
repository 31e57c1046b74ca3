"""Reads and writes files, their owners and their modes."""

from __future__ import annotations

import contextlib
import fcntl
import grp
import json
import os
import pwd
import stat
from collections.abc import Iterator
from typing import Any

STAMPS = "/run/headway/loaded"  # one file for each unit, with the digest of the files that the unit has read
MANAGED = "/var/lib/headway/managed.json"
BEFORE = "/var/lib/headway/before"  # copies of the files that Headway replaced, on machines that the user owns
BEGIN, END = "# >>> Headway: Headway rewrites what is between these lines", "# <<< Headway"


class StepFailed(Exception):
    """A step failed; the message says why."""


@contextlib.contextmanager
def lock_folder(folder: str) -> Iterator[None]:
    """Waits until no other program that uses this function changes files of the folder."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def read_text(path: str) -> str:
    """Returns the file's text; "" if it can't be read."""
    try:
        with open(path, errors="surrogateescape") as file:
            return file.read()
    except OSError:
        return ""


def read_json(path: str, missing: Any) -> Any:
    """Returns the file's JSON value; `missing` if the file does not exist."""
    try:
        return json.loads(read_text(path))
    except ValueError:
        return missing


def make_parents(path: str) -> None:
    """Creates the folders above `path`."""
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)


def block_of(text: str) -> str:
    """Returns Headway's lines in a file that belongs to someone else; "" if there are none."""
    _, begin, rest = text.partition(BEGIN + "\n")
    inside, end, _ = rest.partition(END + "\n")
    return inside if begin and end else ""


def without_block(text: str) -> str:
    """Returns the text without Headway's lines."""
    before, begin, rest = text.partition(BEGIN + "\n")
    return before + rest.partition(END + "\n")[2] if begin else text


def is_taken_by_other(path: str, owner: str | None) -> bool:
    """Returns whether `path`, in a folder to which all users may write, is taken by something that is not this owner's
    folder."""
    above = os.path.dirname(path)
    try:
        info = os.lstat(path)
        open_to_all = os.stat(above).st_mode & 0o002
    except OSError:
        return False
    if owner is None or not open_to_all:
        return False
    return not stat.S_ISDIR(info.st_mode) or info.st_uid not in (0, uid_of(owner))


def uid_of(name: str) -> int:
    """Returns the uid of a user's name or number. Raises StepFailed for an unknown user."""
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError:
        if name.isdigit():
            return int(name)
        raise StepFailed(f"this machine has no user {name!r}") from None


def gid_of(name: str) -> int:
    """Returns the gid of a group's name or number. Raises StepFailed for an unknown group."""
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        if name.isdigit():
            return int(name)
        raise StepFailed(f"this machine has no group {name!r}") from None


def name_of(number: int, look_up: Any) -> str:
    """Returns the name of a uid or gid; the number as text if it has no name."""
    try:
        return str(look_up(number)[0])
    except KeyError:
        return str(number)
