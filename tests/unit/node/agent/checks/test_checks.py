"""Each health check of the node agent finds its fault, and results are sent until the head has stored them."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections import deque
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent import config
from agent.checks import gpu_checks, runner, system_checks
from agent.gpu import interface
from agent.gpu.mig import Instance
from agent.metrics import sampler
from agent.roles import head as relay
from agent.roles import node, server_stream
from tests.support.machines.check_inputs import PLAN, gpus, seen
from tests.support.paths import NODE


@pytest.mark.parametrize(
    ("look", "figures", "state", "action"),
    [
        (gpu_checks.gpu_count, {"lost": 1}, "bad", "reboot"),
        (gpu_checks.gpu_memory_errors, {interface.DBE: 1}, "bad", "reset_gpu"),
        (gpu_checks.gpu_memory_errors, {interface.ROWS_PENDING: 1}, "bad", "reset_gpu"),
        (gpu_checks.gpu_memory_errors, {interface.ROWS_FAILED: 1, interface.DBE: 1}, "bad", "replace"),
        (gpu_checks.gpu_memory_errors, {interface.ROWS_BAD: 9}, "warn", "watch"),
        (gpu_checks.gpu_nvlink, {interface.NVLINKS: 17}, "bad", "reset_gpu"),
        (gpu_checks.gpu_throttled, {interface.THROTTLE: 0x40}, "warn", "watch"),
        (gpu_checks.gpu_pcie, {interface.PCIE_WIDTH: 8}, "bad", "reboot"),
        (gpu_checks.gpu_left_over, {interface.FB_USED: 5000}, "warn", "reset_gpu"),
    ],
)
def test_gpu_checks_report_state_action_and_gpu_index(look: Any, figures: Any, state: str, action: str) -> None:
    assert look(seen()) is None, "a sound one"
    found = look(seen(gpus=gpus(**figures)))
    assert (found.state, found.action, found.gpu) == (state, action, 1)
    assert "GPU 1" in found.reason


def test_gpu_count_reports_a_missing_gpu() -> None:
    found = gpu_checks.gpu_count(seen(gpus=gpus()[:1]))
    assert (found.state, found.gpu, found.reason) == ("bad", 1, "1 GPUs found, 2 expected")
    assert gpu_checks.gpu_count(seen(gpus=[], gpus_at=None)) is None, "no reading yet"


def test_throttle_check_ignores_idle_clocks_and_fails_after_a_minute() -> None:
    for idle in (0x1, 0x2, 0x4, 0x10, 0x100):
        assert gpu_checks.gpu_throttled(seen(gpus=gpus(**{interface.THROTTLE: idle}))) is None
    kept: dict[str, Any] = {}
    hot = gpus(**{interface.THROTTLE: 0x88})
    states = [gpu_checks.gpu_throttled(seen(now=at, kept=kept, gpus=hot)).state for at in (100.0, 130.0, 161.0)]
    assert states == ["warn", "warn", "bad"]
    gpu_checks.gpu_throttled(seen(now=170.0, kept=kept))
    assert gpu_checks.gpu_throttled(seen(now=180.0, kept=kept, gpus=hot)).state == "warn", "the count starts again"


def test_driver_without_new_readings_is_bad() -> None:
    assert gpu_checks.gpu_answers(seen(gpus_at=990.0)) is None
    assert gpu_checks.gpu_answers(seen(gpus_at=900.0, gpu_error="NVML error 999")).state == "bad"
    assert gpu_checks.gpu_answers(seen(gpus_at=None, started=999.0)) is None, "just started"
    assert gpu_checks.gpu_answers(seen(config=config.Config(head="h"), gpus_at=None)) is None, "no GPUs"


@pytest.mark.parametrize(
    ("looks", "state"),
    [
        ([*range(1, 60)], "bad"),  # the agent looks each second, and the driver says nothing
        ([1, 152], None),  # the machine stood still: neither could do anything
        ([*range(1, 120, 12)], None),  # it is short of everything: the agent comes round each 12 s
        ([1, 152, *range(153, 202)], "bad"),  # it goes on, and the driver does not
    ],
)
def test_driver_timeout_ignores_time_the_agent_did_not_run(looks: list[int], state: str | None) -> None:
    now = [0.0]
    awake = sampler.ActiveClock(lambda: now[0])
    said = None
    for at in looks:
        now[0] = float(at)
        said = gpu_checks.gpu_answers(seen(now=awake.tick(), started=0.0, gpus_at=0.0))
    assert (said.state if said else None) == state


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


# --- from the node to the server's stream


def row(state: str, at: float = 5.0) -> dict[str, Any]:
    return {"check": "gpu_count", "at": at, "state": state, "reason": "r", "action": "reboot", "gpu": 3}


def test_bad_results_are_sent_until_the_head_acknowledges_them(tmp_path: Path) -> None:
    results = node.ChangedResults("lab-1-1", "b00t")
    assert not results.add(deque([row("ok", 1.0)])), "good news can wait for the next heartbeat"
    assert results.add(deque([row("bad")]))
    beat = {"node": "lab-1-1", "faults": [], **results.message_part()}
    spool = tmp_path / "faults.jsonl"
    head = relay.NodeMessages(str(tmp_path / "reports"), str(spool))
    answer = head.receive(json.dumps(beat).encode(), 9.0)
    assert len(answer["got"]) == 2
    results.acknowledge(answer["got"])
    assert results.message_part() == {"checks": []}
    (kept,) = [json.loads(line) for line in spool.read_text().splitlines()]
    assert kept == {"id": "lab-1-1-b00t-gpu_count-5.000", "node": "lab-1-1", **row("bad")}


def test_unsent_mount_failure_is_dropped_after_recovery() -> None:
    """While the head is away its volumes are, too: it would hear of both when both are back."""
    results = node.ChangedResults("lab-1-1", "b00t")
    lost = {**row("bad", 1.0), "check": "remote_volumes", "action": "mount"}
    results.add(deque([lost, row("bad", 2.0)]))
    assert len(results.unsent) == 2
    results.add(deque([{**lost, "at": 3.0, "state": "ok", "action": "none"}, row("ok", 4.0)]))
    left = [(one["check"], one["state"]) for one in results.message_part()["checks"]]
    assert left == [("gpu_count", "bad"), ("remote_volumes", "ok"), ("gpu_count", "ok")], (
        "a fault that went away by itself was one"
    )


def test_relay_spools_only_changed_results_even_after_a_restart(tmp_path: Path) -> None:
    spool = tmp_path / "f"

    def tell(head: Any, number: int, state: str) -> None:
        result = {**row(state, float(number)), "id": f"lab-1-1-{number}"}
        head.receive(json.dumps({"node": "lab-1-1", "faults": [], "checks": [result]}).encode(), 1.0)

    head = relay.NodeMessages(str(tmp_path / "reports"), str(spool))
    tell(head, 1, "bad")
    head = relay.NodeMessages(str(tmp_path / "reports"), str(spool))
    tell(head, 2, "bad")  # the node's agent was started again and says it once more
    tell(head, 3, "warn")
    assert [json.loads(line)["state"] for line in spool.read_text().splitlines()] == ["bad", "warn"]


def test_server_stream_labels_checks_and_faults(tmp_path: Path, monkeypatch: Any) -> None:
    spool = tmp_path / "f"
    spool.write_text(json.dumps({"id": "1", "code": 79}) + "\n" + json.dumps({"id": "2", **row("bad")}) + "\n")
    printed: list[str] = []

    class EnoughError(Exception):
        pass

    def tell(line: str, **_: Any) -> None:
        printed.append(line)
        if len(printed) == 2:
            raise EnoughError

    monkeypatch.setattr(server_stream, "print", tell, raising=False)
    with pytest.raises(EnoughError):
        server_stream.stream_events(str(spool), str(tmp_path / "none"))
    assert [next(iter(json.loads(line))) for line in printed] == ["fault", "check"]


def test_agent_registers_gpu_and_machine_checks() -> None:
    code = "from agent.metrics import sampler; from agent.checks.runner import CHECKS; print(*[one.name for one in CHECKS])"
    ran = subprocess.run([sys.executable, "-c", code], cwd=NODE, capture_output=True, text=True, timeout=60, check=True)
    assert {"gpu_count", "gpu_memory_errors", "mounts", "slurmd"} <= set(ran.stdout.split())


def test_check_of_gpu_parts_names_a_missing_instance() -> None:
    halves = (Instance(0, 4, 3, 1, "3g.40gb"), Instance(4, 4, 3, 2, "3g.40gb"))
    config = replace(PLAN, mig=halves)
    first, second = (replace(gpu, mig=list(halves)) for gpu in gpus())
    assert gpu_checks.gpu_parts(seen(config=config, gpus=[first, second])) is None
    assert gpu_checks.gpu_parts(seen(config=config, gpus=[first, replace(second, mig=None)])) is None, "not read"
    assert gpu_checks.gpu_nvlink(seen(config=config, gpus=gpus(**{interface.NVLINKS: 0}))) is None
    found = gpu_checks.gpu_parts(seen(config=config, gpus=[first, replace(second, mig=[halves[0]])]))
    assert (found.state, found.action, found.gpu) == ("bad", "drain", 1)
    assert found.reason == "GPU 1 has no MIG instance 3g.40gb at memory slice 4"
