"""The lines of the kernel's log that are errors of the kernel, a processor, the hardware or a file system, and the check
that reports them. GPU errors (XID) are in xid_errors.py."""

from __future__ import annotations

import re

from agent.checks.runner import DRAIN, REBOOT, REPLACE, CheckResult, MachineReading, bad, check

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
def kernel_errors(seen: MachineReading) -> CheckResult | None:
    """Returns bad when the kernel's log of this boot has an error of the kernel, a processor, the hardware or a file
    system."""
    for text in seen.kernel:
        for what, words, action in KERNEL:
            if what.match(text):
                return bad(f"{words}: {text[:200]}", action)
    return None
