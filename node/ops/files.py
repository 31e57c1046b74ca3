"""Reads and writes files, their owners and their modes."""

from __future__ import annotations

import grp
import json
import os
import pwd
import stat
from typing import Any

STAMPS = "/run/headway/loaded"  # a file a unit: the digest of what it has read
MANAGED = "/var/lib/headway/managed.json"
BEFORE = "/var/lib/headway/before"  # what stood where Headway wrote files, on machines that somebody owns
BEGIN, END = "# >>> Headway: what is between these lines is written anew by it", "# <<< Headway"


class StepFailed(Exception):
    """What went wrong in a step, in words for a person."""


def read_text(path: str) -> str:
    try:
        with open(path, errors="surrogateescape") as file:
            return file.read()
    except OSError:
        return ""


def read_json(path: str, missing: Any) -> Any:
    try:
        return json.loads(read_text(path))
    except ValueError:
        return missing


def make_parents(path: str) -> None:
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)


def block_of(text: str) -> str:
    """Headway's lines in a file that is somebody else's; "" when there are none."""
    _, begin, rest = text.partition(BEGIN + "\n")
    inside, end, _ = rest.partition(END + "\n")
    return inside if begin and end else ""


def without_block(text: str) -> str:
    before, begin, rest = text.partition(BEGIN + "\n")
    return before + rest.partition(END + "\n")[2] if begin else text


def squatted(path: str, owner: str | None) -> bool:
    """Whether something of somebody else's has the name of this owner's folder, where everybody may make files."""
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
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError:
        if name.isdigit():
            return int(name)
        raise StepFailed(f"this machine has no user {name!r}") from None


def gid_of(name: str) -> int:
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        if name.isdigit():
            return int(name)
        raise StepFailed(f"this machine has no group {name!r}") from None


def name_of(number: int, look_up: Any) -> str:
    try:
        return str(look_up(number)[0])
    except KeyError:
        return str(number)
