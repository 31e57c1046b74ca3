"""Checks of GPUs: what the driver reports against what the plan promises."""

from __future__ import annotations

import shutil

from agent.checks.driver_fault import driver_fault
from agent.checks.runner import DRAIN, REBOOT, REPLACE, RESET_GPU, CheckResult, MachineReading, bad, check, warn
from agent.gpu import gpu_metrics
from agent.gpu.gpu_source import Gpu
from agent.gpu.mig import wrong_instances

DRIVER_HUNG_S = 45.0  # a driver that has not answered for so long counts as hung
SLOWED_S = 60.0
MPS_CONTROL = "nvidia-cuda-mps-control"
_THROTTLES = {0x8: "hardware slowdown", 0x20: "temperature", 0x40: "temperature", 0x80: "power brake"}


def _first(seen: MachineReading, name: str, least: float = 1) -> Gpu | None:
    """Returns the first GPU whose figure `name` is at least `least`; None if there is no such GPU."""
    return next((gpu for gpu in seen.gpus if gpu.figures.get(name, 0) >= least), None)


@check(every_s=5, prolog=True, times=2)
def gpu_count(seen: MachineReading) -> CheckResult | None:
    """Returns bad when fewer GPUs answer than Slurm gives to jobs (GRES)."""
    if not seen.config.gpus or seen.gpus_at is None:
        return None
    lost = [gpu.index for gpu in seen.gpus if gpu.lost]
    if lost:
        numbers = ", ".join(map(str, lost))
        return bad(f"GPU {numbers} does not answer: {seen.config.gpus} GPUs expected", REBOOT, lost[0])
    if len(seen.gpus) < seen.config.gpus:
        there = {gpu.index for gpu in seen.gpus}
        missing = next((index for index in range(seen.config.gpus) if index not in there), None)
        return bad(f"{len(seen.gpus)} GPUs found, {seen.config.gpus} expected", REBOOT, missing)
    return None


@check(every_s=30, times=2)
def gpu_parts(seen: MachineReading) -> CheckResult | None:
    """Returns bad when a GPU does not have the MIG instances that Slurm gives to jobs."""
    if not seen.config.mig or not seen.gpus:
        return None
    for gpu in seen.gpus:
        if fault := "" if gpu.lost or gpu.mig is None else wrong_instances(gpu.index, gpu.mig, seen.config.mig):
            return bad(fault, DRAIN, gpu.index)
    return None


@check(every_s=30, prolog=True)
def gpu_mps(seen: MachineReading) -> CheckResult | None:
    """Returns bad when jobs may share GPUs by MPS and its control daemon is not installed."""
    if not seen.config.mps or seen.config.simulated or shutil.which(MPS_CONTROL):
        return None
    return bad(
        f"{MPS_CONTROL} is missing: jobs with --gres=mps can't run; install it (in Debian the package nvidia-cuda-mps), or "
        "remove mps from the group"
    )


@check(every_s=5)
def gpu_answers(seen: MachineReading) -> CheckResult | None:
    """Returns bad when the driver has not answered for DRIVER_HUNG_S."""
    since = seen.now - (seen.started if seen.gpus_at is None else seen.gpus_at)
    if seen.config.gpus and since > DRIVER_HUNG_S:
        why = "" if seen.config.simulated else driver_fault(seen.sys)
        return bad(f"the driver has not answered for {since:.0f} s: {why or seen.gpu_error}".rstrip(": "), REBOOT)
    return None


@check(every_s=60)
def gpu_driver(seen: MachineReading) -> CheckResult | None:
    """Returns bad when the GPUs had no driver as the node joined, so that Slurm has none of them."""
    count = seen.config.driverless_gpus
    if not count:
        return None
    why = driver_fault(seen.sys) or "their driver has come since then, or is not known"
    return bad(
        f"Slurm has none of the {count} GPUs, because no driver found them when the node joined: {why}; then apply again"
    )


@check(every_s=5, prolog=True)
def gpu_memory_errors(seen: MachineReading) -> CheckResult | None:
    """Returns bad for uncorrected ECC errors, failed or pending row remapping; warns at 8 rows remapped for uncorrected
    errors."""
    if gpu := _first(seen, gpu_metrics.ROWS_FAILED):
        return bad(f"GPU {gpu.index} has no spare memory rows left: remapping failed", REPLACE, gpu.index)
    if gpu := _first(seen, gpu_metrics.DBE):
        return bad(
            f"GPU {gpu.index} had {gpu.figures[gpu_metrics.DBE]:.0f} uncorrected memory errors", RESET_GPU, gpu.index
        )
    if gpu := _first(seen, gpu_metrics.ROWS_PENDING):
        return bad(f"GPU {gpu.index} replaces a memory row at its next reset", RESET_GPU, gpu.index)
    if gpu := _first(seen, gpu_metrics.ROWS_BAD, 8):
        return warn(f"GPU {gpu.index} has replaced {gpu.figures[gpu_metrics.ROWS_BAD]:.0f} memory rows", gpu=gpu.index)
    return None


@check(every_s=15, times=2)
def gpu_nvlink(seen: MachineReading) -> CheckResult | None:
    """Returns bad when a GPU has fewer active NVLinks than the plan expects. GPUs in MIG mode do not use them."""
    links = 0 if seen.config.mig else seen.config.expects.get("nvlinks", 0)
    for gpu in seen.gpus:
        up = gpu.figures.get(gpu_metrics.NVLINKS)
        if links and up is not None and up < links:
            return bad(f"GPU {gpu.index} has {up:.0f} of {links:.0f} NVLinks", RESET_GPU, gpu.index)
    return None


@check(every_s=10)
def gpu_throttled(seen: MachineReading) -> CheckResult | None:
    """Warns when heat or the power supply lowers a GPU's clocks; returns bad when that lasts SLOWED_S, so it is not a
    short peak."""
    since = seen.kept.setdefault("throttled", {})
    slowed = {gpu.index: why for gpu in seen.gpus if (why := _throttled(gpu))}
    seen.kept["throttled"] = since = {index: since.get(index, seen.now) for index in slowed}
    for index, why in slowed.items():
        if seen.now - since[index] >= SLOWED_S:
            return bad(f"GPU {index} has been throttled for {seen.now - since[index]:.0f} s: {why}", DRAIN, index)
    return next((warn(f"GPU {index} is throttled: {why}", gpu=index) for index, why in slowed.items()), None)


def _throttled(gpu: Gpu) -> str:
    bits = int(gpu.figures.get(gpu_metrics.THROTTLE, 0))
    return ", ".join(dict.fromkeys(why for bit, why in _THROTTLES.items() if bits & bit))


@check(every_s=30, times=2)
def gpu_pcie(seen: MachineReading) -> CheckResult | None:
    """Returns bad when a GPU uses fewer PCIe lanes than it has. The link's speed is not checked: it falls on purpose
    while a GPU is idle."""
    for gpu in seen.gpus:
        width, most = gpu.figures.get(gpu_metrics.PCIE_WIDTH), gpu.figures.get(gpu_metrics.PCIE_MAX_WIDTH)
        if width and most and width < most:
            return bad(f"GPU {gpu.index} uses {width:.0f} of {most:.0f} PCIe lanes", REBOOT, gpu.index)
    return None


@check(every_s=60, idle=True, times=2)
def gpu_left_over(seen: MachineReading) -> CheckResult | None:
    """Warns when GPU memory is in use although no job is on the node: a process has survived its job."""
    for gpu in seen.gpus:
        used = gpu.figures.get(gpu_metrics.FB_USED, 0)
        if used > 1024 + seen.config.gpu_memory_mib * 0.02:
            return warn(f"GPU {gpu.index}: {used:.0f} MiB in use, and no job is on the node", RESET_GPU, gpu.index)
    return None
