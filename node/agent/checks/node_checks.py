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

MOST_SKEW_S = 2.0  # MUNGE takes minutes, but logs and incidents of two nodes should have one order
STUCK_S = 120.0
SLOW_S = 5.0
DAEMON_S = 30.0
_ROOM = (("/", 500), ("/var/lib/headway", 500), ("/tmp", 200))  # (folder, MiB below which jobs fail)
_FILES = 1000  # the same of their number
_LEAVES_S = 600.0  # from the end of a person's last job: so long the epilog may take to clean up behind it
_FULL = (errno.ENOSPC, errno.EDQUOT)
# (what the kernel says, what it is, what helps). Each begins as the kernel's own line does, and with more of its words than the
# 15 letters of a process's name: the kernel tells of programs that crash, too, and anybody may name a program "Oops: ".
_DIED = r"[0-9a-f]{1,16} \[#\d+\]\s+(?:SMP|PREEMPT|NOPTI|PTI)"
KERNEL = (
    (
        re.compile(
            r"BUG: (?:unable to handle |kernel NULL pointer |scheduling while atomic: |workqueue lockup|Bad page \w+ in process)"
            rf"|general protection fault[,:]|(?:Oops|Internal error): (?:[^\[\]]*: )?{_DIED}"
            r"|kernel BUG at \S+:\d+!|Kernel panic - not syncing"
        ),
        "an error of the kernel",
        REBOOT,
    ),
    (
        re.compile(
            r"(?:watchdog: )?BUG: soft lockup - CPU|(?:NMI )?[Ww]atchdog: Watchdog detected hard LOCKUP"
            r"|rcu: INFO: rcu_\w+ (?:self-)?detected stall"
        ),
        "a processor that hung",
        REBOOT,
    ),
    (  # not those that were corrected, which come every day, nor the line before them, which says nothing of it
        re.compile(
            r"(?:mce: |\{\d+\})?\[Hardware Error\]: "
            r".*(?:\b[Uu]ncorrected\b|Machine Check Exception|severity: (?:fatal|recoverable))"
        ),
        "an error of the hardware",
        REPLACE,
    ),
    (
        re.compile(
            r"EXT4-fs error \(device |EXT4-fs \(\S+\): Remounting filesystem read-only"
            r"|XFS \(\S+\): (?:Corruption (?:of \w+-\w+|detected)|Metadata (?:corruption|CRC error) detected"
            r"|corrupt (?:dinode \d|inode \d+ \()|(?:Log )?I/O Error (?:\(\w+\) )?[Dd]etected"
            r"|xfs_do_force_shutdown\(|Filesystem has been shut ?down|User initiated shutdown)"
        ),
        "a broken file system",
        DRAIN,
    ),
)
# What the kernel says of a process: its name comes first, letters that it does not print as \xNN.
_OF_A_PROCESS = re.compile(
    r"(?:\\x[0-9a-f]{2}|.){1,15}(?:\[\d+\][: ]|/\d+: |: page allocation failure| invoked oom-killer)"
)


def is_kernel_error(text: str) -> bool:
    """Whether a line of the kernel's log is one that `kernel_errors` tells of."""
    return not _OF_A_PROCESS.match(text) and any(what.match(text) for what, _, _ in KERNEL)


@check(every_s=5)
def kernel_errors(seen: MachineState) -> Result | None:
    for text in seen.kernel:
        for what, words, action in KERNEL:
            if what.match(text):
                return bad(f"{words}: {text[:200]}", action)
    return None


@check(every_s=30, times=2)
def host_memory(seen: MachineState) -> Result | None:
    """Of the machine: modules that are missing, errors that could not be corrected, none left."""
    top = f"{seen.sys}/devices/system/edac/mc"
    for place in sorted(os.listdir(top)) if os.path.isdir(top) else ():
        count = read_text(f"{top}/{place}/ue_count").strip()
        if count.isdigit() and int(count):
            return bad(f"{count} memory errors that could not be corrected ({place})", REPLACE)
    found = host.meminfo(seen.proc)
    total_mib = found.get("MemTotal", 0) >> 20
    if seen.config.memory_mib and not seen.config.oversubscribed_cpus and 0 < total_mib < seen.config.memory_mib * 0.9:
        return bad(f"{total_mib} MiB of memory, {seen.config.memory_mib} are expected", REPLACE)
    free = found.get("MemAvailable", 0) / (found.get("MemTotal", 0) or 1)
    return warn(f"{free:.1%} of the memory is left") if found and free < 0.02 else None


def _mounted(seen: MachineState) -> dict[str, list[str]]:
    """Place -> options."""
    rows = (line.split() for line in read_text(f"{seen.proc}/self/mounts").splitlines())
    return {row[1]: row[3].split(",") for row in rows}


@check(every_s=2, prolog=True)
def volumes(seen: MachineState) -> Result | None:
    """Every volume of the cluster is mounted. Often, for a job that begins without one has failed in a moment."""
    there = _mounted(seen)
    for one in seen.config.mounts:
        # Else a machine of one's own that has it in its own way.
        if one.path not in there and os.path.isdir(one.source):
            return bad(f"{one.path} is not mounted", MOUNT if one.outside else REBOOT)
    return None


@check(every_s=15, limit_s=10, prolog=True)
def mounts(seen: MachineState) -> Result | None:
    """Every volume that is mounted answers, and can be written to where it should be."""
    return _answering(seen, REBOOT, outside=False)


@check(every_s=15, limit_s=10, prolog=True, hangs=MOUNT)
def remote_volumes(seen: MachineState) -> Result | None:
    """The same of volumes that another machine has: when it is back, so are they."""
    return _answering(seen, MOUNT, outside=True)


def _answering(seen: MachineState, action: str, *, outside: bool) -> Result | None:
    there = _mounted(seen)
    for one in seen.config.mounts:
        options = there.get(one.path)
        if options is None or one.outside != outside:
            continue
        try:
            told = os.statvfs(one.path)
        except PermissionError:  # it answers; root is nobody there
            continue
        except OSError as error:  # its server has forgotten it, say, or the program that serves it has died
            return bad(f"{one.path}: {error.strerror}", action)
        if not one.read_only and ("ro" in options or told.f_flag & os.ST_RDONLY):
            return bad(f"{one.path} can only be read", action)
    return None


@check(every_s=15, limit_s=20, prolog=True, times=2)
def disk(seen: MachineState) -> Result | None:
    """Room on the machine's own disks. What jobs have filled is treated as a volume that is away: no job begins, those that run
    go on, and it comes back by itself."""
    had = {uid: told for uid, told in seen.kept.get("people", {}).items() if seen.now - told[1] < _LEAVES_S}
    seen.kept["people"] = had | {uid: (job, seen.now) for uid, job in users_of_jobs().items()}
    owners = {uid: job for uid, (job, _) in seen.kept["people"].items()}
    for place, least_mib in _ROOM:
        if not os.path.isdir(place):
            continue
        told = os.statvfs(place)
        free = told.f_bavail * told.f_frsize
        why, lacks, lacks_files = "", (least_mib << 20) - free, 0
        if lacks > 0:
            why = f"{free >> 20} MiB free in {place}"
        elif told.f_files and told.f_favail < _FILES:
            why, lacks_files = f"no more files fit in {place}: {told.f_favail} left", _FILES - told.f_favail
        if why:
            jobs = jobs_filling_disk(place, lacks, lacks_files, owners=owners, proc=seen.proc)
            held = f"{'jobs' if len(jobs) > 1 else 'job'} {', '.join(map(str, jobs))}"
            return bad(f"{why}, held by {held}", MOUNT) if jobs else bad(why)
        if told.f_blocks and told.f_bavail < told.f_blocks * 0.03:
            return warn(f"{place} is 97 % full")
    return None


@check(every_s=30, limit_s=30, times=2)
def disk_writes(_: MachineState) -> Result | None:
    """A small write to the machine's own disk, waited for: a dying disk is slow long before it fails."""
    place = next(place for place in ("/var/lib/headway", "/tmp") if os.path.isdir(place))
    began = time.monotonic()
    try:
        with tempfile.TemporaryFile(dir=place) as file:
            file.write(b"headway" * 20_000)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:  # of room `disk` tells
        return None if error.errno in _FULL else bad(f"{place} can't be written to: {error.strerror}")
    took = time.monotonic() - began
    return bad(f"140 kB take {took:.1f} s to be written to {place}") if took > SLOW_S else None


def _scratch(seen: MachineState) -> Mount | None:
    return next((one for one in seen.config.mounts if one.path == "/scratch" and not one.read_only), None)


def _scratch_hangs(seen: MachineState) -> str:
    one = _scratch(seen)
    return MOUNT if one is not None and one.outside else REBOOT


@check(every_s=300, idle=True, limit_s=20, hangs=_scratch_hangs)
def scratch_writes(seen: MachineState) -> Result | None:
    """A small file on the shared volume: written, read back, removed."""
    one = _scratch(seen)
    if one is None:
        return None
    place = one.path
    try:
        with tempfile.TemporaryFile(dir=place) as file:
            file.write(b"headway" * 1000)
            file.flush()
            os.fsync(file.fileno())
            file.seek(0)
            same = file.read() == b"headway" * 1000
    except OSError as error:
        if error.errno in _FULL:  # people have filled it: no fault of this node's
            return warn(f"{place} is full")
        return bad(f"{place} can't be written to: {error.strerror}", MOUNT if one.outside else DRAIN)
    return None if same else bad(f"{place} gives back something else than was written", DRAIN)


@check(every_s=10, times=2)
def network(seen: MachineState) -> Result | None:
    """Links of InfiniBand and of the fabric's Ethernet, and their errors within the last minute. A port that has never worked is
    no fault: nobody has put a cable in."""
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
    """Against the head's, which says the time with each answer."""
    if seen.skew_s is not None and abs(seen.skew_s) > MOST_SKEW_S:
        return warn(f"the clock differs by {seen.skew_s:+.1f} s from the head's")
    return None


@check(every_s=15)
def stuck_processes(seen: MachineState) -> Result | None:
    """Waiting for a disk, a network file system or a driver, for minutes: they can't even be killed."""
    stuck = [one for one in seen.processes if one.state == "D" and seen.now - one.since > STUCK_S]
    if stuck:
        names = ", ".join(f"{one.name} ({one.pid})" for one in stuck[:3])
        return warn(f"{len(stuck)} processes wait for a device for over {STUCK_S:.0f} s: {names}", REBOOT)
    return None


@check(every_s=5, times=2)
def slurmd(seen: MachineState) -> Result | None:
    known = ((one.pid, one.name) for one in seen.processes)
    if seen.now - seen.started <= DAEMON_S or _runs("slurmd", known, seen.proc):
        return None
    # One that was started anew since the processes were read has another number.
    if _runs("slurmd", ((pid, name) for pid, name, _ in list_processes(seen.proc)), seen.proc):
        return None
    return bad("slurmd does not run")


def _runs(daemon: str, among: Iterable[tuple[int, str]], proc: str) -> bool:
    """Whether root runs it."""
    return any(name == daemon and runs_as_root(pid, proc) for pid, name in among)


@check(every_s=5, times=2)
def munge(seen: MachineState) -> Result | None:
    """It works: the agent's own heartbeat is sealed by it each second."""
    since = seen.now - (seen.started if seen.sealed_at is None else seen.sealed_at)
    return bad(f"MUNGE has not answered for {since:.0f} s") if since > DAEMON_S else None
