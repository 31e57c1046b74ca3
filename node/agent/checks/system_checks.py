"""Checks of memory, network, clock, processes and daemons. Disks and volumes have modules of their own."""

from __future__ import annotations

import os
from collections.abc import Iterable

from agent.checks.runner import REBOOT, REPLACE, CheckResult, MachineReading, bad, check, warn
from agent.metrics import host
from agent.metrics.host import read_text
from agent.processes import list_processes, runs_as_root

MOST_SKEW_S = 2.0  # MUNGE tolerates minutes, but the logs and incidents of two nodes should sort correctly
STUCK_S = 120.0
DAEMON_S = 30.0


@check(every_s=30, times=2)
def host_memory(seen: MachineReading) -> CheckResult | None:
    """Returns bad when the machine has lost memory modules or had uncorrectable memory errors; warns when less than 2 %
    is available."""
    top = f"{seen.sys}/devices/system/edac/mc"
    for place in sorted(os.listdir(top)) if os.path.isdir(top) else ():
        count = read_text(f"{top}/{place}/ue_count").strip()
        if count.isdigit() and int(count):
            return bad(f"{count} uncorrected memory errors ({place})", REPLACE)
    found = host.read_meminfo(seen.proc)
    total_mib = found.get("MemTotal", 0) >> 20
    if seen.config.memory_mib and not seen.config.oversubscribed_cpus and 0 < total_mib < seen.config.memory_mib * 0.9:
        return bad(f"{total_mib} MiB of memory, {seen.config.memory_mib} expected", REPLACE)
    free = found.get("MemAvailable", 0) / (found.get("MemTotal", 0) or 1)
    return warn(f"{free:.1%} of the memory is available") if found and free < 0.02 else None


@check(every_s=10, times=2)
def network(seen: MachineReading) -> CheckResult | None:
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
def clock(seen: MachineReading) -> CheckResult | None:
    """Warns when this clock differs from the head's, which comes with each answer, by more than MOST_SKEW_S."""
    if seen.skew_s is not None and abs(seen.skew_s) > MOST_SKEW_S:
        return warn(f"the clock differs by {seen.skew_s:+.1f} s from the head's")
    return None


@check(every_s=15)
def stuck_processes(seen: MachineReading) -> CheckResult | None:
    """Warns about processes that have waited for a disk, a network file system or a driver for more than STUCK_S (state
    D). Not even SIGKILL ends them."""
    stuck = [process for process in seen.processes if process.state == "D" and seen.now - process.since > STUCK_S]
    if stuck:
        names = ", ".join(f"{process.name} ({process.pid})" for process in stuck[:3])
        return warn(f"{len(stuck)} processes have waited for a device for over {STUCK_S:.0f} s: {names}", REBOOT)
    return None


@check(every_s=5, times=2)
def slurmd(seen: MachineReading) -> CheckResult | None:
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
def munge(seen: MachineReading) -> CheckResult | None:
    """Returns bad when MUNGE has not sealed a message for DAEMON_S. The agent seals a heartbeat each second."""
    since = seen.now - (seen.started if seen.sealed_at is None else seen.sealed_at)
    return bad(f"MUNGE has not answered for {since:.0f} s") if since > DAEMON_S else None
