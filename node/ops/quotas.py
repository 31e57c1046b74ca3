"""Quotas of ext4 and XFS: one project for the folder of each user on a volume, with a hard limit.

A user may take own files out of a project. Where the file system limits users too, each user has a limit for all files on
it, which is the sum of the limits of the volumes there.

Uses quotactl_fd and ioctl of the kernel itself (Linux 5.14 or later): no program and no device node is needed, so that it
works inside containers too. A project's id is in each file; a new file gets that of its folder."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import stat
import struct
from collections.abc import Iterator
from typing import Any

from ops.files import StepFailed, read_text

_QUOTACTL_FD = 443  # the same number on all architectures
_USER, _PROJECT = 0, 2  # types of quota
_GET, _SET, _STATE = 0x800007, 0x800008, 0x5805  # Q_GETQUOTA, Q_SETQUOTA, Q_XGETQSTAT
_DQBLK = struct.Struct("=8QI4x")  # hard, soft, used, hard, soft and used inodes, two times, valid fields
_BLOCK = 1024  # bytes of a unit of the two limits; use is in bytes
_LIMITS_VALID = 1
_ENFORCED = {_USER: 1 << 1, _PROJECT: 1 << 5}  # FS_QUOTA_UDQ_ENFD, FS_QUOTA_PDQ_ENFD
_FSXATTR = struct.Struct("=5I8x")  # flags, extent size, extents, project, copy-on-write extent size
_GET_ATTRIBUTES, _SET_ATTRIBUTES = 0x801C581F, 0x401C5820  # FS_IOC_FSGETXATTR, FS_IOC_FSSETXATTR
_INHERIT = 0x200  # FS_XFLAG_PROJINHERIT: new entries of the folder belong to its project
_libc = ctypes.CDLL(None, use_errno=True)


def see_quotas(volumes: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Returns the quotas of each volume. `volumes`: path -> "limit" in bytes (0: none), "first_project", and "uids" of
    users; the project of PATH/USER is the first plus the uid. "enforced": whether its file system limits projects;
    "users": what each has used, its limit, and whether the folder belongs to its project ("assigned") and the limit of
    all files of the user is as it should be ("guarded")."""
    limits = {path: volume["limit"] for path, volume in volumes.items()}
    return {path: _see_volume(path, volume, limits) for path, volume in volumes.items()}


def _see_volume(path: str, goal: dict[str, Any], limits: dict[str, int]) -> dict[str, Any]:
    device, kind = _file_system(path)
    found: dict[str, Any] = {"type": kind, "device": device, "enforced": False, "users": {}}
    try:
        volume = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return found
    try:
        found["enforced"] = _is_enforced(volume, _PROJECT)
        if found["enforced"]:
            # Without any quota of Headway's, limits of users are the administrator's own.
            guards, whole = any(limits.values()) and _is_enforced(volume, _USER), _whole_limit(path, limits)
            for user, uid in goal["uids"].items():
                project = goal["first_project"] + uid
                limit, used = _usage(volume, _PROJECT, project)
                found["users"][user] = {
                    "limit": limit,
                    "used": used,
                    "assigned": _belongs(f"{path}/{user}", project),
                    "guarded": not guards or _usage(volume, _USER, uid)[0] == whole,
                }
    finally:
        os.close(volume)
    return found


def set_quotas(path: str, goal: dict[str, Any], limits: dict[str, int]) -> None:
    """Sets the quotas of a volume; `goal` as in `see_quotas`, `limits`: those of all volumes. Raises StepFailed if the
    file system does not limit projects."""
    volume = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        if not _is_enforced(volume, _PROJECT):
            raise StepFailed(f"quotas of {path}: its file system does not limit projects; headway plan says what to do")
        guards, whole = _is_enforced(volume, _USER), _whole_limit(path, limits)
        failed = []
        for user, uid in goal["uids"].items():
            folder, project = f"{path}/{user}", goal["first_project"] + uid
            try:  # limits first: a folder that can't be read keeps no other limit from being set
                _set_limit(volume, _PROJECT, project, goal["limit"])
                if guards:
                    _set_limit(volume, _USER, uid, whole)
                if goal["limit"] and os.path.isdir(folder) and not _belongs(folder, project):
                    _assign(folder, project)
            except OSError as error:
                failed.append(f"{user}: {error.strerror}")
            except RecursionError:  # os.fwalk calls itself for each level
                failed.append(f"{user}: the folders in {folder} are nested too deep")
    finally:
        os.close(volume)
    if failed:
        raise StepFailed(f"quotas of {path}: {'; '.join(failed)[:400]}")


def _whole_limit(path: str, limits: dict[str, int]) -> int:
    """Returns the limit in bytes of all files of a user on the file system of the path; 0 if one of the volumes there
    has none."""
    device = os.stat(path).st_dev
    same = [limit for other, limit in limits.items() if os.path.isdir(other) and os.stat(other).st_dev == device]
    return sum(same) if all(same) else 0


def _file_system(path: str) -> tuple[str, str]:
    """Returns (device, type) of the file system that the path is on; ("", "") if it does not exist."""
    try:
        device = os.stat(path).st_dev
    except OSError:
        return "", ""
    number = f"{os.major(device)}:{os.minor(device)}"
    for line in read_text("/proc/self/mountinfo").splitlines():
        words = line.split()
        if words[2] == number:
            kind, source = words[words.index("-") + 1 :][:2]
            return source, kind
    return "", ""


def _is_enforced(volume: int, kind: int) -> bool:
    answer = ctypes.create_string_buffer(256)
    try:
        _quotactl(volume, _STATE, kind, 0, answer)
    except OSError:
        return False
    return bool(struct.unpack_from("=H", answer, 2)[0] & _ENFORCED[kind])


def _usage(volume: int, kind: int, number: int) -> tuple[int, int]:
    """Returns (limit, use) of a project or user in bytes."""
    answer = ctypes.create_string_buffer(_DQBLK.size)
    try:
        _quotactl(volume, _GET, kind, number, answer)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ESRCH):  # it has neither limit nor files
            return 0, 0
        raise
    hard, _, used, *_ = _DQBLK.unpack(answer.raw)
    return hard * _BLOCK, used


def _set_limit(volume: int, kind: int, number: int, limit: int) -> None:
    asked = ctypes.create_string_buffer(_DQBLK.pack(limit // _BLOCK, 0, 0, 0, 0, 0, 0, 0, _LIMITS_VALID), _DQBLK.size)
    _quotactl(volume, _SET, kind, number, asked)


def _quotactl(volume: int, command: int, kind: int, number: int, data: ctypes.Array[ctypes.c_char]) -> None:
    code = ctypes.c_uint((command << 8) | kind)
    if _libc.syscall(_QUOTACTL_FD, volume, code, ctypes.c_uint(number), data) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _belongs(folder: str, project: int) -> bool:
    """Returns whether a folder and its new entries belong to the project. A symbolic link counts as one that does: an
    administrator keeps that folder elsewhere."""
    if os.path.islink(folder):
        return True
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        flags, _, _, found, _ = _attributes(handle)
    except OSError:
        return False
    finally:
        os.close(handle)
    return found == project and bool(flags & _INHERIT)


def _attributes(handle: int) -> tuple[int, int, int, int, int]:
    return _FSXATTR.unpack(fcntl.ioctl(handle, _GET_ATTRIBUTES, bytes(_FSXATTR.size)))


def _give(handle: int, project: int, more_flags: int) -> None:
    """Gives an open file or folder to the project."""
    flags, size, extents, found, copy_size = _attributes(handle)
    if (found, flags | more_flags) != (project, flags):
        fcntl.ioctl(handle, _SET_ATTRIBUTES, _FSXATTR.pack(flags | more_flags, size, extents, project, copy_size))


def _assign(folder: str, project: int) -> None:
    """Gives the folder and everything in it to the project; other file systems below it stay. The folder itself comes
    last, so that an interrupted run begins again, and then what users made meanwhile."""
    _assign_content(folder, project)
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        _give(handle, project, _INHERIT)
    finally:
        os.close(handle)
    _assign_content(folder, project)


def _assign_content(folder: str, project: int) -> None:
    device = os.stat(folder).st_dev
    for root, names, files, handle in os.fwalk(folder, follow_symlinks=False):
        if os.fstat(handle).st_dev != device:
            names.clear()
            continue
        if root != folder:
            _give(handle, project, _INHERIT)
        for file in _open_files(files, handle):
            _give(file, project, 0)


def _open_files(names: list[str], folder: int) -> Iterator[int]:
    """Yields the regular files among these entries of a folder, open one after the other. Symbolic links have no project
    of their own to set."""
    for name in names:
        with contextlib.suppress(FileNotFoundError):
            if not stat.S_ISREG(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
                continue
            # Not blocked by a named pipe that replaces the file meanwhile, nor led away by a symbolic link
            handle = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
            try:
                yield handle
            finally:
                os.close(handle)
