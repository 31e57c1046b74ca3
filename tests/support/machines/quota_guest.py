"""The first process of a Linux kernel with quotas (tests.process.node.test_quotas): limits users on a real file system,
and prints what happened as JSON.

    quota_guest.py FOLDER_OF_NODE DEVICE ext4|xfs"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path("/mnt")
HOME, SCRATCH = ROOT / "home", ROOT / "scratch"
MIB = 1 << 20
UIDS = {"alice": 20_000, "bob": 20_001}
POWER_OFF = 0x4321FEDC
FINIT_MODULE = 313  # of x86-64, the only one that User-mode Linux runs on
MAKE = {"ext4": ["mkfs.ext4", "-q"], "xfs": ["mkfs.xfs", "-q", "-f"]}
GET_ATTRIBUTES, SET_ATTRIBUTES, FSXATTR = 0x801C581F, 0x401C5820, struct.Struct("=5I8x")
libc = ctypes.CDLL(None, use_errno=True)


def run(*argv: str) -> None:
    subprocess.run(argv, check=True, capture_output=True)


def load_quota_modules() -> None:
    """Loads the kernel's code for ext4's quotas, without modprobe."""
    folder = next(Path("/usr/lib/uml/modules").glob(f"{os.uname().release}/kernel/fs/quota"))
    for name in ("quota_tree", "quota_v2"):
        with (folder / f"{name}.ko").open("rb") as file:
            libc.syscall(FINIT_MODULE, file.fileno(), b"", 0)


def as_user(uid: int, act: Callable[[], None]) -> str:
    """Does something as the user; returns the text of the error, or ""."""
    child = os.fork()
    if child == 0:
        os.setgid(uid)
        os.setuid(uid)
        try:
            act()
        except OSError as error:
            os._exit(error.errno or 1)
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return os.strerror(code) if code else ""


def write(user: str, path: Path, mib: int) -> str:
    """Writes a file as the user; returns the text of the error, or ""."""

    def act() -> None:
        with path.open("wb", buffering=0) as file:
            for _ in range(mib):
                file.write(bytes(MIB))
            os.fsync(file.fileno())

    return as_user(UIDS[user], act)


def leave_project(user: str, path: Path) -> str:
    """Takes a file out of its project as its owner may, like chattr -p 0."""

    def act() -> None:
        with path.open("rb") as file:
            flags, size, extents, _, copy = FSXATTR.unpack(fcntl.ioctl(file, GET_ATTRIBUTES, bytes(FSXATTR.size)))
            fcntl.ioctl(file, SET_ATTRIBUTES, FSXATTR.pack(flags, size, extents, 0, copy))

    return as_user(UIDS[user], act)


def main(node: str, device: str, kind: str) -> dict[str, Any]:
    """Returns what happened on a new file system of this kind, first without and then with quotas."""
    sys.path.insert(0, node)
    from ops import quotas
    from ops.files import StepFailed

    goals: dict[str, dict[str, Any]] = {}

    def see() -> Any:
        return quotas.see_quotas(goals)[str(HOME)]

    def limit(home_mib: int, scratch_mib: int) -> None:
        for path, first, mib in ((HOME, 1 << 30, home_mib), (SCRATCH, 2 << 30, scratch_mib)):
            goals[str(path)] = {"limit": mib * MIB, "first_project": first, "uids": UIDS}
        limits = {path: goal["limit"] for path, goal in goals.items()}
        for path, goal in goals.items():
            quotas.set_quotas(path, goal, limits)

    run("mount", "-t", "proc", "proc", "/proc")
    load_quota_modules()
    run(*MAKE[kind], device)
    run("mount", device, str(ROOT))
    for volume in (HOME, SCRATCH):
        for user, uid in UIDS.items():
            (volume / user / "sub").mkdir(parents=True)
            run("chown", "-R", f"{uid}:{uid}", str(volume / user))
    told: dict[str, Any] = {}
    try:
        limit(8, 4)
    except StepFailed as error:
        told["refused"] = str(error)
    told["without"] = see()
    run("umount", str(ROOT))

    if kind == "ext4":
        run("tune2fs", "-O", "project,quota", device)
    run("mount", "-o", "usrquota,prjquota", device, str(ROOT))
    write("alice", HOME / "alice/sub/old", 4)
    (HOME / "alice/link").symlink_to("/etc/passwd")
    os.mkfifo(HOME / "alice/pipe")
    told["before"] = see()
    limit(8, 4)
    told["limited"] = see()
    told["fits"] = write("alice", HOME / "alice/sub/new", 3)
    told["exceeds"] = write("alice", HOME / "alice/more", 4)
    told["bob"] = write("bob", HOME / "bob/file", 5)
    told["on_scratch"] = write("alice", SCRATCH / "alice/file", 2)
    told["full"] = see()
    space = os.statvfs(HOME / "alice")
    told["df_mib"] = space.f_frsize * space.f_blocks // MIB
    told["leaves"] = leave_project("alice", HOME / "alice/sub/old")
    told["after_leaving"] = write("alice", HOME / "alice/sub/evades", 4)
    limit(16, 4)
    told["after_raise"] = write("alice", HOME / "alice/sub/again", 3)
    run("umount", str(ROOT))
    run("mount", "-o", "usrquota,prjquota", device, str(ROOT))
    told["after_boot"] = see()
    limit(0, 0)
    told["removed"] = see()
    told["unlimited"] = write("alice", HOME / "alice/big", 20)
    return told


if __name__ == "__main__":
    os.environ["PATH"] = "/usr/sbin:/usr/bin:/sbin:/bin"
    try:
        answer = main(*sys.argv[1:4])
    except BaseException as error:  # the kernel must be switched off in any case
        answer = {"error": repr(error), "stderr": str(getattr(error, "stderr", ""))}
    sys.stdout.write(f"\nANSWER {json.dumps(answer)}\n")
    sys.stdout.flush()
    os.sync()
    libc.reboot(POWER_OFF)
