"""Checks of the machine: kernel log, memory, mounts, network, daemons, clock."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent import config
from agent.checks import runner, system_checks
from tests.support.machines.check_inputs import PLAN, seen


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
    assert system_checks.is_kernel_error(text)
    found = system_checks.kernel_errors(seen(kernel=[text]))
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
    assert not system_checks.is_kernel_error(text)


def machine(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        path = folder / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def test_memory_check_finds_missing_broken_and_exhausted_memory(tmp_path: Path) -> None:
    plan = config.Config(head="h", memory_mib=1000)
    proc = machine(tmp_path / "proc", meminfo="MemTotal: 1024000 kB\nMemAvailable: 500000 kB\n")
    fine = seen(config=plan, proc=str(proc), sys=str(tmp_path / "none"))
    assert system_checks.host_memory(fine) is None
    machine(proc, meminfo="MemTotal: 1024000 kB\nMemAvailable: 5000 kB\n")
    assert system_checks.host_memory(fine).state == "warn"
    machine(proc, meminfo="MemTotal: 512000 kB\nMemAvailable: 500000 kB\n")
    assert "500 MiB of memory, 1000 expected" in system_checks.host_memory(fine).reason
    sys = machine(tmp_path / "sys", devices__system__edac__mc__mc0__ue_count="2\n")
    assert system_checks.host_memory(seen(config=plan, proc=str(proc), sys=str(sys))).action == "replace"


def test_mount_checks_find_lost_and_read_only_mounts(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    plan = config.Config(head="h", mounts=(config.Mount("/", str(source), False),))
    proc = machine(tmp_path / "proc", self__mounts="disk / ext4 rw,relatime 0 0\n")
    assert system_checks.mounts(seen(config=plan, proc=str(proc))) is None
    machine(proc, self__mounts="disk / ext4 ro,relatime 0 0\n")
    assert system_checks.mounts(seen(config=plan, proc=str(proc))).reason == "/ is read-only"
    machine(proc, self__mounts="")
    assert system_checks.volumes(seen(config=plan, proc=str(proc))).reason == "/ is not mounted"
    source.rmdir()
    assert system_checks.volumes(seen(config=plan, proc=str(proc))) is None, "a machine that has it in its own way"


@pytest.mark.parametrize(
    ("number", "state"),
    [(errno.ESTALE, "bad"), (errno.ENOTCONN, "bad"), (errno.EIO, "bad"), (errno.EACCES, "ok")],
)
def test_volume_that_returns_an_error_fails_a_prolog_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, state: str
) -> None:
    def statvfs(path: str) -> Any:
        raise OSError(number, os.strerror(number), path)

    monkeypatch.setattr(system_checks.os, "statvfs", statvfs)
    proc = machine(tmp_path / "proc", self__mounts="filer:/s /scratch nfs4 rw 0 0\ndisk /home ext4 rw 0 0\n")
    plan = config.Config(
        head="h", mounts=(config.Mount("/scratch", "/", False, True), config.Mount("/home", "/", False))
    )
    for name, path, action in (("remote_volumes", "/scratch", "mount"), ("mounts", "/home", "reboot")):
        check = next(check for check in runner.CHECKS if check.name == name)
        assert check.prolog
        found = runner.run_check(check, seen(config=plan, proc=str(proc)))
        assert found.state == state
        if state == "bad":
            assert (found.reason, found.action) == (f"{path}: {os.strerror(number)}", action)


def test_network_check_reports_receive_errors_and_infiniband_state(tmp_path: Path) -> None:
    head = "Inter-|   Receive\n face |bytes\n"
    row = "  ib0: 9 9 {errors} 0 0 0 0 0 9 9 0 0 0 0 0 0\n"
    proc = machine(tmp_path / "proc", net__dev=head + row.format(errors=0))
    port = "class__infiniband__mlx5_0__ports__1__"
    sys = machine(tmp_path / "sys", **{f"{port}state": "4: ACTIVE\n", f"{port}phys_state": "5: LinkUp\n"})
    now = seen(proc=str(proc), sys=str(sys))
    assert system_checks.network(now) is None
    machine(proc, net__dev=head + row.format(errors=500))
    assert "ib0: 500 receive errors" in system_checks.network(now).reason
    machine(sys, **{f"{port}state": "2: INIT\n"})
    assert system_checks.network(now).reason == "InfiniBand port mlx5_0/1 is INIT"
    machine(sys, **{f"{port}state": "1: DOWN\n", f"{port}phys_state": "3: Disabled\n"})
    assert "receive errors" in system_checks.network(now).reason, "a port that was switched off is no fault"


def test_infiniband_port_down_is_a_fault_only_if_it_once_worked(tmp_path: Path) -> None:
    port = "class__infiniband__mlx5_1__ports__1__"
    sys = machine(tmp_path / "sys", **{f"{port}state": "1: DOWN\n", f"{port}phys_state": "2: Polling\n"})
    now = seen(proc=str(tmp_path / "none"), sys=str(sys))
    assert system_checks.network(now) is None
    taken = replace(PLAN, fabric=frozenset({"mlx5_1"}))
    assert system_checks.network(replace(now, config=taken)).reason == "InfiniBand port mlx5_1/1 is down", (
        "when it was taken"
    )
    machine(sys, **{f"{port}state": "4: ACTIVE\n"})
    assert system_checks.network(now) is None
    machine(sys, **{f"{port}state": "1: DOWN\n"})
    assert system_checks.network(now).reason == "InfiniBand port mlx5_1/1 is down", "since the agent looks"


def test_checks_find_missing_daemons_clock_skew_and_stuck_processes(tmp_path: Path) -> None:
    slurmd = runner.Process(7, "slurmd", "S", 0.0)
    proc = str(machine(tmp_path, **{"7__status": "Name:\tslurmd\nUid:\t0\t0\t0\t0\n"}))
    assert system_checks.slurmd(seen(processes=[slurmd], proc=proc)) is None
    machine(tmp_path, **{"7__status": "Name:\tslurmd\nUid:\t1000\t0\t0\t0\n"})
    assert system_checks.slurmd(seen(processes=[slurmd], proc=proc)).state == "bad", "a person's is none"
    machine(tmp_path, **{"9__status": "Name:\tslurmd\nUid:\t0\t0\t0\t0\n", "9__stat": "9 (slurmd) S 1 1\n"})
    assert system_checks.slurmd(seen(processes=[slurmd], proc=proc)) is None, "it was restarted since they were read"
    without = machine(tmp_path / "none", **{"1__stat": "1 (init) S 0 1\n"})
    assert system_checks.slurmd(seen(proc=str(without))).state == "bad"
    assert system_checks.slurmd(seen(started=990.0)) is None, "it may still start"
    assert system_checks.munge(seen()) is None
    assert system_checks.munge(seen(sealed_at=900.0)).state == "bad"
    assert system_checks.clock(seen(skew_s=0.4)) is None
    assert "+5.0 s" in system_checks.clock(seen(skew_s=5.0)).reason
    stuck = runner.Process(8, "cp", "D", 800.0)
    assert system_checks.stuck_processes(seen(processes=[slurmd, runner.Process(9, "dd", "D", 950.0)])) is None
    assert "cp (8)" in system_checks.stuck_processes(seen(processes=[stuck])).reason


def row(state: str, at: float = 5.0) -> dict[str, Any]:
    return {"check": "gpu_count", "at": at, "state": state, "reason": "r", "action": "reboot", "gpu": 3}
