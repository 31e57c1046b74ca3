"""Only lines that the kernel itself wrote count: names of user programs in them cannot fake an error."""

from __future__ import annotations

import pytest

from agent.checks import kernel_log, system_checks

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
                assert not system_checks.is_kernel_error(text), text
                assert not kernel_log.GpuErrors("n", "b", dict).record_line(f"4,5,9000000,-;{text}", 10.0, 10.0), text


def test_records_of_user_programs_in_the_kernel_log_are_ignored() -> None:
    for word, ours in (("0", True), ("4", True), ("188", True), ("12", False), ("30", False), ("x", False)):
        record = f"{word},5,9000000,-;NVRM: Xid (PCI:0000:3b:00): 79, pid=7, x"
        assert kernel_log.GpuErrors("n", "b", dict).record_line(record, 10.0, 10.0) is ours, word
        assert bool(kernel_log.kernel_line(record)) is ours, word
