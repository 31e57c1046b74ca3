"""Checks of the cluster's volumes: mounted, answering, writable."""

from __future__ import annotations

import os
import tempfile

from agent.checks.disk_checks import DISK_FULL_ERRORS
from agent.checks.runner import DRAIN, MOUNT, REBOOT, CheckResult, MachineReading, bad, check, warn
from agent.config import ExpectedMount
from agent.metrics.host import read_text


def _mounted(seen: MachineReading) -> dict[str, list[str]]:
    """Returns mount point -> mount options."""
    rows = (line.split() for line in read_text(f"{seen.proc}/self/mounts").splitlines())
    return {row[1]: row[3].split(",") for row in rows}


@check(every_s=2, prolog=True)
def volumes(seen: MachineReading) -> CheckResult | None:
    """Returns bad when a volume of the cluster is not mounted. Runs every 2 s, because a job that starts without its
    volume fails at once."""
    there = _mounted(seen)
    for mount in seen.config.mounts:
        # If the source is missing, this is a machine that the user owns and that provides the folder in another way.
        if mount.path not in there and os.path.isdir(mount.source):
            return bad(f"{mount.path} is not mounted", MOUNT if mount.outside else REBOOT)
    return None


@check(every_s=15, limit_s=10, prolog=True)
def mounts(seen: MachineReading) -> CheckResult | None:
    """Returns bad when a mounted volume does not answer, or is read-only although it should be writable."""
    return _answering(seen, REBOOT, outside=False)


@check(every_s=15, limit_s=10, prolog=True, hangs=MOUNT)
def remote_volumes(seen: MachineReading) -> CheckResult | None:
    """Does the same as `mounts` for volumes that another machine serves: they work again when that machine is back."""
    return _answering(seen, MOUNT, outside=True)


def _answering(seen: MachineReading, action: str, *, outside: bool) -> CheckResult | None:
    there = _mounted(seen)
    for mount in seen.config.mounts:
        options = there.get(mount.path)
        if options is None or mount.outside != outside:
            continue
        try:
            stats = os.statvfs(mount.path)
        except PermissionError:  # the volume answers; the server maps root to another user (root_squash)
            continue
        except OSError as error:  # for example a stale NFS handle, or the FUSE program has died
            return bad(f"{mount.path}: {error.strerror}", action)
        if not mount.read_only and ("ro" in options or stats.f_flag & os.ST_RDONLY):
            return bad(f"{mount.path} is read-only", action)
    return None


def _scratch(seen: MachineReading) -> ExpectedMount | None:
    return next((mount for mount in seen.config.mounts if mount.path == "/scratch" and not mount.read_only), None)


def _scratch_hangs(seen: MachineReading) -> str:
    mount = _scratch(seen)
    return MOUNT if mount is not None and mount.outside else REBOOT


@check(every_s=300, idle=True, limit_s=20, hangs=_scratch_hangs)
def scratch_writes(seen: MachineReading) -> CheckResult | None:
    """Returns bad when a small file on /scratch can't be written, read back and removed; warns when /scratch is
    full."""
    mount = _scratch(seen)
    if mount is None:
        return None
    place = mount.path
    try:
        with tempfile.TemporaryFile(dir=place) as file:
            file.write(b"headway" * 1000)
            file.flush()
            os.fsync(file.fileno())
            file.seek(0)
            same = file.read() == b"headway" * 1000
    except OSError as error:
        if error.errno in DISK_FULL_ERRORS:  # users have filled it; the node is not at fault
            return warn(f"{place} is full")
        return bad(f"{place} can't be written to: {error.strerror}", MOUNT if mount.outside else DRAIN)
    return None if same else bad(f"{place} returns other data than was written", DRAIN)
