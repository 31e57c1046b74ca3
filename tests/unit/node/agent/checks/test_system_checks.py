"""Checks of the machine: memory, network, daemons, clock, stuck processes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from agent import config
from agent.checks import runner, system_checks
from tests.support.machines.check_inputs import PLAN, seen


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
