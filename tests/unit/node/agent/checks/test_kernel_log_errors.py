"""Only errors that the kernel itself wrote count, each with the action that helps."""

from __future__ import annotations

import pytest

from agent.checks import kernel_log_errors, xid_errors
from tests.support.machines.check_inputs import seen

SAYS = (  # each begins with a program's name, or soon has one; x86 ends it with that of the file, which is as long as people like
    "{comm}[1132]: segfault at 0 ip 0000000000401136 sp 00007ffc error 6 in {file}[1132,401000+1000] likely on CPU 0 (core 0)",
    "{comm}[1132] bad frame in rt_sigreturn frame:00007ffc ip:401136 sp:7ffc orax:f in {file}[401000+1000]",
    "traps: {comm}[1132] general protection fault ip:401136 sp:7ffc error:0 in {file}[401000+1000]",
    "{comm}[1132]: unhandled exception: DABT (lower EL), ESR 0x92000006, level 2 translation fault in {file}[401000+1000]",
    "{comm}/1132: potentially unexpected fatal signal 11.",
    "{comm}: page allocation failure: order:0, mode:0xcc0(GFP_KERNEL), nodemask=(null),cpuset={file},mems_allowed=0",
    "{comm} invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0",
    "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),task_memcg=/{file},task={comm},pid=1132,uid=1000",
    "process '/home/{file}' started with executable stack",
)
TROUBLE = (
    "BUG: unable to handle page fault for address: ffff",
    "Oops: 0002 [#1] SMP PTI",
    "Internal error: Oops: 0000000096000004 [#1] PREEMPT SMP",
    "kernel BUG at mm:305!",
    "watchdog: BUG: soft lockup - CPU#3 stuck for 26s!",
    "rcu: INFO: rcu_sched detected stalls on CPUs",
    "[Hardware Error]: Uncorrected",
    "{1}[Hardware Error]: event severity: fatal",
    "EXT4-fs error (device sda1): x",
    "XFS (sda1): Corruption of in-memory data",
    "NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, x",
)


@pytest.mark.parametrize("says", SAYS)
@pytest.mark.parametrize("words", TROUBLE)
def test_program_and_file_names_cannot_fake_kernel_errors(says: str, words: str) -> None:
    """Also not where the kernel's line is one with a name's beginning and a file's rest."""
    for cut in range(16):
        for name in (words[:cut], f"{words[:cut]}\\x01"):
            for file in (words, words[cut:], words.rpartition(" ")[2], f": {words}"):
                text = says.format(comm=name, file=file)
                assert not kernel_log_errors.is_kernel_error(text), text
                assert not xid_errors.GpuErrors("n", "b", dict).record_line(f"4,5,9000000,-;{text}", 10.0, 10.0), text


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("BUG: unable to handle page fault for address: ffff", "reboot"),
        ("watchdog: BUG: soft lockup - CPU#3 stuck for 26s!", "reboot"),
        ("general protection fault, probably for non-canonical address 0xdead: 0000 [#1] PREEMPT SMP NOPTI", "reboot"),
        ("Oops: 0002 [#1] SMP PTI", "reboot"),
        ("Oops: general protection fault, probably for non-canonical address 0xdead: 0000 [#2] SMP NOPTI", "reboot"),
        ("Oops: Oops: 0002 [#1] PREEMPT(voluntary) SMP", "reboot"),
        ("Internal error: Oops: 0000000096000004 [#1] PREEMPT SMP", "reboot"),
        ("Internal error: Oops - BUG: 00000000f2000800 [#1] SMP", "reboot"),
        ("Internal error: Oops: 0000000096000004 [#1]  SMP", "reboot"),
        ("Internal error: BRK handler: 00000000f2000800 [#1]  SMP", "reboot"),
        ("kernel BUG at mm/slub.c:305!", "reboot"),
        ("Kernel panic - not syncing: Fatal exception", "reboot"),
        ("rcu: INFO: rcu_sched detected stalls on CPUs/tasks:", "reboot"),
        ("NMI watchdog: Watchdog detected hard LOCKUP on cpu 3", "reboot"),
        ("mce: [Hardware Error]: CPU 3: Machine Check Exception: 5 Bank 7: be00000000800400", "replace"),
        ("{1}[Hardware Error]: event severity: fatal", "replace"),
        ("[Hardware Error]: Uncorrected, software restartable error.", "replace"),
        ("EXT4-fs error (device sda1): ext4_lookup:1855: inode #2: comm ls: deleted inode referenced", "drain"),
        ("XFS (nvme0n1): Corruption of in-memory data detected.  Shutting down filesystem", "drain"),
        ("XFS (sda1): Metadata corruption detected at xfs_agf_read_verify+0x1/0x2 [xfs], xfs_agf block 0x1", "drain"),
        ("XFS (sda1): xfs_do_force_shutdown(0x2) called from line 1 of file fs/xfs/xfs_log.c.", "drain"),
        (
            "XFS (sda1): Log I/O Error (0x2) detected at xlog_ioend_work+0x1/0x2 [xfs]. Shutting down filesystem.",
            "drain",
        ),
        ("XFS (sda1): Filesystem has been shut down due to log error (0x2).", "drain"),
        ("EXT4-fs (sda1): Remounting filesystem read-only", "drain"),
    ],
)
def test_kernel_log_errors_are_bad_with_their_action(text: str, action: str) -> None:
    assert kernel_log_errors.is_kernel_error(text)
    found = kernel_log_errors.kernel_errors(seen(kernel=[text]))
    assert (found.state, found.action) == ("bad", action)


@pytest.mark.parametrize(
    "text",
    [
        "usb 1-1: new device",
        "NVRM: Xid (PCI:0000:3b:00): 79, x",
        "Out of memory: Killed process 7",
        "traps: a.out[4242] general protection fault ip:401136 sp:7ffc error:0 in a.out[401000+1000]",
        "a.out[4243]: segfault at 0 ip 0000000000401136 sp 00007ffc error 4 in a.out[401000+1000]",
        "Oops[4243]: segfault at 0 ip 0000000000401136 sp 00007ffc error 4",
        "Oops: 0000 [#1][77]: segfault at 0 ip 0000000000401136 sp 00007ffc error 4",
        "BUG: unable to [78]: segfault at 0 ip 0000000000401136 sp 00007ffc error 4",
        "kernel BUG at a[79]: segfault at 0 ip 0000000000401136 sp 00007ffc error 4",
        "Internal error:[80]: segfault at 0 ip 0000000000401136 sp 00007ffc error 4",
        "EXT4-fs error[81]: segfault at 0 ip 0000000000401136 sp 00007ffc error 4",
        "Oops: 0000 [#1] invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0",
        "Internal error: invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0",
        "Oops: x: page allocation failure: order:0, cpuset=: 0000 [#1] SMP,mems_allowed=0",
        "XFS (sda1): Corruption of (123) possible memory allocation deadlock size 8 in kmem_alloc (mode:0x2)",
        "mce: [Hardware Error]: Machine check events logged",
        "[Hardware Error]: Corrected error, no action required.",
        "{1}[Hardware Error]: It has been corrected by h/w and requires no further action",
        "{1}[Hardware Error]: event severity: corrected",
    ],
)
def test_harmless_kernel_log_lines_are_no_errors(text: str) -> None:
    assert not kernel_log_errors.is_kernel_error(text)
