"""Checks of everything but the GPUs: memory, disks, volumes, network, clock, daemons."""

from __future__ import annotations

import errno
import os
import re
import tempfile
import time
from collections.abc import Iterable

from agent.checks.disk_owners import jobs_filling_disk, users_of_jobs
from agent.checks.runner import DRAIN, MOUNT, REBOOT, REPLACE, MachineState, Result, bad, check, warn
from agent.config import Mount
from agent.jobs.processes import list_processes, runs_as_root
from agent.metrics import host
from agent.metrics.host import read_text

MOST_SKEW_S = 2.0  # MUNGE tolerates minutes, but the logs and incidents of two nodes should sort correctly
STUCK_S = 120.0
SLOW_S = 5.0
DAEMON_S = 30.0
_ROOM = (("/", 500), ("/var/lib/headway", 500), ("/tmp", 200))  # (folder, MiB below which jobs fail)
_FILES = 1000  # free inodes below which jobs fail
_LEAVES_S = 600.0  # so long after the end of a user's last job the epilog may still be deleting its files
_FULL = (errno.ENOSPC, errno.EDQUOT)
# (pattern of the kernel's line, what it means, the action that helps). Each pattern matches from the line's beginning
# and is longer than the 15 characters of a process name: the kernel also logs crashing programs, and a user may name a
# program "Oops: ".
_DIED = r"[0-9a-f]{1,16} \[#\d+\]\s+(?:SMP|PREEMPT|NOPTI|PTI)"
KERNEL = (
    (
        re.compile(
            r"BUG: (?:unable to handle |kernel NULL pointer |scheduling while atomic: |workqueue lockup|Bad page \w+ in process)"
            rf"|general protection fault[,:]|(?:Oops|Internal error): (?:[^\[\]]*: )?{_DIED}"
            r"|kernel BUG at \S+:\d+!|Kernel panic - not syncing"
        ),
        "kernel error",
        REBOOT,
    ),
    (
        re.compile(
            r"(?:watchdog: )?BUG: soft lockup - CPU|(?:NMI )?[Ww]atchdog: Watchdog detected hard LOCKUP"
            r"|rcu: INFO: rcu_\w+ (?:self-)?detected stall"
        ),
        "CPU lockup",
        REBOOT,
    ),
    (  # not corrected errors, which occur every day, nor the line before them, which does not say which kind they are
        re.compile(
            r"(?:mce: |\{\d+\})?\[Hardware Error\]: "
            r".*(?:\b[Uu]ncorrected\b|Machine Check Exception|severity: (?:fatal|recoverable))"
        ),
        "hardware error",
        REPLACE,
    ),
    (
        re.compile(
            r"EXT4-fs error \(device |EXT4-fs \(\S+\): Remounting filesystem read-only"
            r"|XFS \(\S+\): (?:Corruption (?:of \w+-\w+|detected)|Metadata (?:corruption|CRC error) detected"
            r"|corrupt (?:dinode \d|inode \d+ \()|(?:Log )?I/O Error (?:\(\w+\) )?[Dd]etected"
            r"|xfs_do_force_shutdown\(|Filesystem has been shut ?down|User initiated shutdown)"
        ),
        "file system error",
        DRAIN,
    ),
)
# The kernel's lines about a process begin with its name, in which unprintable bytes are written as \xNN.
_OF_A_PROCESS = re.compile(
    r"(?:\\x[0-9a-f]{2}|.){1,15}(?:\[\d+\][: ]|/\d+: |: page allocation failure| invoked oom-killer)"
)


def is_kernel_error(text: str) -> bool:
    """Returns whether a line of the kernel's log is one that `kernel_errors` reports."""
    return not _OF_A_PROCESS.match(text) and any(what.match(text) for what, _, _ in KERNEL)


@check(every_s=5)
def kernel_errors(seen: MachineState) -> Result | None:
    """Returns bad when the kernel's log of this boot has an error of the kernel, a processor, the hardware or a file
    system."""
    for text in seen.kernel:
        for what, words, action in KERNEL:
            if what.match(text):
                return bad(f"{words}: {text[:200]}", action)
    return None


@check(every_s=30, times=2)
def host_memory(seen: MachineState) -> Result | None:
    """Returns bad when the machine has lost memory modules or had uncorrectable memory errors; warns when less than 2 %
    is available."""
    top = f"{seen.sys}/devices/system/edac/mc"
    for place in sorted(os.listdir(top)) if os.path.isdir(top) else ():
        count = read_text(f"{top}/{place}/ue_count").strip()
        if count.isdigit() and int(count):
            return bad(f"{count} uncorrected memory errors ({place})", REPLACE)
    found = host.meminfo(seen.proc)
    total_mib = found.get("MemTotal", 0) >> 20
    if seen.config.memory_mib and not seen.config.oversubscribed_cpus and 0 < total_mib < seen.config.memory_mib * 0.9:
        return bad(f"{total_mib} MiB of memory, {seen.config.memory_mib} expected", REPLACE)
    free = found.get("MemAvailable", 0) / (found.get("MemTotal", 0) or 1)
    return warn(f"{free:.1%} of the memory is available") if found and free < 0.02 else None


def _mounted(seen: MachineState) -> dict[str, list[str]]:
    """Returns mount point -> mount options."""
    rows = (line.split() for line in read_text(f"{seen.proc}/self/mounts").splitlines())
    return {row[1]: row[3].split(",") for row in rows}


@check(every_s=2, prolog=True)
def volumes(seen: MachineState) -> Result | None:
    """Returns bad when a volume of the cluster is not mounted. Runs every 2 s, because a job that starts without its
    volume fails at once."""
    there = _mounted(seen)
    for mount in seen.config.mounts:
        # If the source is missing, this is a machine that the user owns and that provides the folder in another way.
        if mount.path not in there and os.path.isdir(mount.source):
            return bad(f"{mount.path} is not mounted", MOUNT if mount.outside else REBOOT)
    return None


@check(every_s=15, limit_s=10, prolog=True)
def mounts(seen: MachineState) -> Result | None:
    """Returns bad when a mounted volume does not answer, or is read-only although it should be writable."""
    return _answering(seen, REBOOT, outside=False)


@check(every_s=15, limit_s=10, prolog=True, hangs=MOUNT)
def remote_volumes(seen: MachineState) -> Result | None:
    """Does the same as `mounts` for volumes that another machine serves: they work again when that machine is back."""
    return _answering(seen, MOUNT, outside=True)


def _answering(seen: MachineState, action: str, *, outside: bool) -> Result | None:
    there = _mounted(seen)
    for mount in seen.config.mounts:
        options = there.get(mount.path)
        if options is None or mount.outside != outside:
            continue
        try:
            stats = os.statvfs(mount.path)
        except PermissionError:  # the volume answers; the server maps root to nobody (root_squash)
            continue
        except OSError as error:  # for example a stale NFS handle, or the FUSE program has died
            return bad(f"{mount.path}: {error.strerror}", action)
        if not mount.read_only and ("ro" in options or stats.f_flag & os.ST_RDONLY):
            return bad(f"{mount.path} is read-only", action)
    return None


@check(every_s=15, limit_s=20, prolog=True, times=2)
def disk(seen: MachineState) -> Result | None:
    """Returns bad when the machine's own disks have too little space or too few inodes, and warns when they are 97 %
    full. Space that jobs have filled is treated like a volume that is away: no job starts here, running jobs go on, and
    the node recovers by itself."""
    had = {uid: entry for uid, entry in seen.kept.get("people", {}).items() if seen.now - entry[1] < _LEAVES_S}
    seen.kept["people"] = had | {uid: (job, seen.now) for uid, job in users_of_jobs().items()}
    owners = {uid: job for uid, (job, _) in seen.kept["people"].items()}
    for place, least_mib in _ROOM:
        if not os.path.isdir(place):
            continue
        stats = os.statvfs(place)
        free = stats.f_bavail * stats.f_frsize
        why, lacks, lacks_files = "", (least_mib << 20) - free, 0
        if lacks > 0:
            why = f"{free >> 20} MiB free in {place}"
        elif stats.f_files and stats.f_favail < _FILES:
            why, lacks_files = f"no inodes left in {place}: {stats.f_favail} free", _FILES - stats.f_favail
        if why:
            jobs = jobs_filling_disk(place, lacks, lacks_files, owners=owners, proc=seen.proc)
            holders = f"{'jobs' if len(jobs) > 1 else 'job'} {', '.join(map(str, jobs))}"
            return bad(f"{why}, held by {holders}", MOUNT) if jobs else bad(why)
        if stats.f_blocks and stats.f_bavail < stats.f_blocks * 0.03:
            return warn(f"{place} is 97 % full")
    return None


@check(every_s=30, limit_s=30, times=2)
def disk_writes(_: MachineState) -> Result | None:
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
        return None if error.errno in _FULL else bad(f"{place} can't be written to: {error.strerror}")
    took = time.monotonic() - began
    return bad(f"writing 140 kB to {place} took {took:.1f} s") if took > SLOW_S else None


def _scratch(seen: MachineState) -> Mount | None:
    return next((mount for mount in seen.config.mounts if mount.path == "/scratch" and not mount.read_only), None)


def _scratch_hangs(seen: MachineState) -> str:
    mount = _scratch(seen)
    return MOUNT if mount is not None and mount.outside else REBOOT


@check(every_s=300, idle=True, limit_s=20, hangs=_scratch_hangs)
def scratch_writes(seen: MachineState) -> Result | None:
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
        if error.errno in _FULL:  # users have filled it; the node is not at fault
            return warn(f"{place} is full")
        return bad(f"{place} can't be written to: {error.strerror}", MOUNT if mount.outside else DRAIN)
    return None if same else bad(f"{place} returns other data than was written", DRAIN)


@check(every_s=10, times=2)
def network(seen: MachineState) -> Result | None:
    """Returns bad when an InfiniBand port that worked before is down, and warns about more than 100 errors a minute on
    a network interface. A port that has never worked is not a fault: it may have no cable."""
    worked = seen.kept.setdefault("ports", set())
    for device, port, folder in host.infiniband_ports(seen.sys):
        state = read_text(f"{folder}/state").split(":")[-1].strip()
        if state == "ACTIVE":
            worked.add((device, port))
        if not state or state == "ACTIVE" or not ((device, port) in worked or device in seen.config.fabric):
            continue
        if state != "DOWN":
            return bad(f"InfiniBand port {device}/{port} is {state}")
        if read_text(f"{folder}/phys_state").split(":")[-1].strip() not in ("", "Disabled"):
            return bad(f"InfiniBand port {device}/{port} is down")
    now = host.network_counters(seen.proc)
    at, before = seen.kept.setdefault("network", (seen.now, now))
    if seen.now - at >= 60:
        seen.kept["network"] = (seen.now, now)
    for device, counts in now.items():
        old = before.get(device, counts)
        for key in ("receive_errs", "transmit_errs"):
            grown = counts.get(key, 0) - old.get(key, 0)
            if grown > 100:
                return warn(f"{device}: {grown} {key.replace('_errs', ' errors')} within a minute")
    return None


@check(every_s=15, times=2)
def clock(seen: MachineState) -> Result | None:
    """Warns when this clock differs from the head's, which comes with each answer, by more than MOST_SKEW_S."""
    if seen.skew_s is not None and abs(seen.skew_s) > MOST_SKEW_S:
        return warn(f"the clock differs by {seen.skew_s:+.1f} s from the head's")
    return None


@check(every_s=15)
def stuck_processes(seen: MachineState) -> Result | None:
    """Warns about processes that have waited for a disk, a network file system or a driver for more than STUCK_S (state
    D). Not even SIGKILL ends them."""
    stuck = [process for process in seen.processes if process.state == "D" and seen.now - process.since > STUCK_S]
    if stuck:
        names = ", ".join(f"{process.name} ({process.pid})" for process in stuck[:3])
        return warn(f"{len(stuck)} processes have waited for a device for over {STUCK_S:.0f} s: {names}", REBOOT)
    return None


@check(every_s=5, times=2)
def slurmd(seen: MachineState) -> Result | None:
    """Returns bad when slurmd is not running as root. The first DAEMON_S after the agent's start are not checked."""
    known = ((process.pid, process.name) for process in seen.processes)
    if seen.now - seen.started <= DAEMON_S or _runs("slurmd", known, seen.proc):
        return None
    # A slurmd that was restarted since the processes were read has another pid.
    if _runs("slurmd", ((pid, name) for pid, name, _ in list_processes(seen.proc)), seen.proc):
        return None
    return bad("slurmd is not running")


def _runs(daemon: str, among: Iterable[tuple[int, str]], proc: str) -> bool:
    """Returns whether one of the processes is `daemon` and was started by root."""
    return any(name == daemon and runs_as_root(pid, proc) for pid, name in among)


@check(every_s=5, times=2)
def munge(seen: MachineState) -> Result | None:
    """Returns bad when MUNGE has not sealed a message for DAEMON_S. The agent seals a heartbeat each second."""
    since = seen.now - (seen.started if seen.sealed_at is None else seen.sealed_at)
    return bad(f"MUNGE has not answered for {since:.0f} s") if since > DAEMON_S else None
