"""Checks of the machine's own disks: space, inodes, writes."""

from __future__ import annotations

import errno
import os
import tempfile
import time

from agent.checks.disk_owners import jobs_filling_disk, users_of_jobs
from agent.checks.runner import HOST_DISK, MOUNT, WARN, CheckResult, MachineReading, bad, check, warn
from agent.metrics.host import read_text

SLOW_S = 5.0
FREE_MIB = {"/": 500, "/var/lib/headway": 500, "/tmp": 200}  # folder -> MiB below which jobs fail
FREE_INODES = 1000  # below which jobs fail
_WARN_FREE = 0.03  # share of a disk below which the check warns
_LEAVES_S = 600.0  # so long after the end of a user's last job the epilog may still be deleting its files
_HOST_ADVICE = (
    "all local machines share it, and no node is drained for it: free space on the host "
    "(headway image rm --unused removes old node images)"
)
DISK_FULL_ERRORS = (errno.ENOSPC, errno.EDQUOT)


@check(every_s=15, limit_s=20, prolog=True, times=2)
def disk(seen: MachineReading) -> CheckResult | None:
    """Returns bad when the machine's own disks have too little space or too few inodes, and warns when less than
    _WARN_FREE is free. Space that jobs have filled is treated like a volume that is away: no job starts here, running
    jobs go on, and the node recovers by itself."""
    had = {uid: entry for uid, entry in seen.kept.get("people", {}).items() if seen.now - entry[1] < _LEAVES_S}
    seen.kept["people"] = had | {uid: (job, seen.now) for uid, job in users_of_jobs().items()}
    owners = {uid: job for uid, (job, _) in seen.kept["people"].items()}
    for place, least_mib in FREE_MIB.items():
        if not os.path.isdir(place):
            continue
        stats = os.statvfs(place)
        free = stats.f_bavail * stats.f_frsize
        why, lacks, lacks_files = "", (least_mib << 20) - free, 0
        if lacks > 0:
            why = f"{free >> 20} MiB free in {place}"
        elif stats.f_files and stats.f_favail < FREE_INODES:
            why, lacks_files = f"no inodes left in {place}: {stats.f_favail} free", FREE_INODES - stats.f_favail
        if why:
            jobs = jobs_filling_disk(place, lacks, lacks_files, owners=owners, proc=seen.proc)
            holders = f"{'jobs' if len(jobs) > 1 else 'job'} {', '.join(map(str, jobs))}"
            if jobs:
                return bad(f"{why}, held by {holders}", MOUNT)
            if not seen.config.own_hardware and not _is_in_memory(place):
                return CheckResult(WARN, f"the disk of the host is full, {why}; {_HOST_ADVICE}", HOST_DISK)
            return bad(why)
        if stats.f_blocks and stats.f_bavail < stats.f_blocks * _WARN_FREE:
            return warn(f"{place} is {round(100 * (1 - _WARN_FREE))} % full")
    return None


def _is_in_memory(place: str) -> bool:
    """Returns whether the folder is in memory, and so on no disk of the host."""
    return any(line.split()[1:3] == [place, "tmpfs"] for line in read_text("/proc/self/mounts").splitlines())


@check(every_s=30, limit_s=30, times=2)
def disk_writes(_: MachineReading) -> CheckResult | None:
    """Returns bad when a small write to the machine's own disk fails or takes longer than SLOW_S: a failing disk is
    slow long before it stops."""
    place = next(place for place in ("/var/lib/headway", "/tmp") if os.path.isdir(place))
    began = time.monotonic()
    try:
        with tempfile.TemporaryFile(dir=place) as file:
            file.write(b"headway" * 20_000)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:  # the check `disk` reports a full disk
        return None if error.errno in DISK_FULL_ERRORS else bad(f"{place} can't be written to: {error.strerror}")
    took = time.monotonic() - began
    return bad(f"writing 140 kB to {place} took {took:.1f} s") if took > SLOW_S else None
