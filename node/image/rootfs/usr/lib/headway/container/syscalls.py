"""System calls that Python 3.11 does not offer."""

from __future__ import annotations

import ctypes
import os

_libc = ctypes.CDLL(None, use_errno=True)
_NEW_USER, _NEW_MOUNTS = 0x10000000, 0x00020000
_REC, _SLAVE = 0x4000, 0x80000
_SET_PDEATHSIG, _KILL = 1, 9


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def own_namespaces() -> None:
    """Moves this process to new user and mount namespaces, in which it is root with the rights of its user."""
    uid, gid = os.getuid(), os.getgid()
    _check(_libc.unshare(_NEW_USER | _NEW_MOUNTS), "no namespaces for the container")
    for name, text in (("setgroups", "deny"), ("uid_map", f"0 {uid} 1"), ("gid_map", f"0 {gid} 1")):
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
            file.write(text)
    _check(_libc.mount(b"none", b"/", None, _REC | _SLAVE, None), "mount namespace")


def mount(kind: str, target: str, options: str) -> None:
    """Mounts a file system without a device, such as tmpfs or proc, at `target`. Raises OSError."""
    _check(
        _libc.mount(kind.encode(), os.fsencode(target), kind.encode(), 0, os.fsencode(options)), f"{kind} on {target}"
    )


def die_with_parent() -> None:
    """Called in a child process: the kernel kills it when its parent ends."""
    _libc.prctl(_SET_PDEATHSIG, _KILL, 0, 0, 0)
