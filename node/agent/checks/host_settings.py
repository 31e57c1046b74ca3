"""Checks of host settings that make GPUs and fabric slow: they keep no job away, and each says what the setting costs and how
to change it. Nothing is checked where GPUs are simulated."""

from __future__ import annotations

import contextlib
import glob
import os
import re
from collections.abc import Iterator

from agent.checks.runner import CheckResult, MachineReading, check, warn
from agent.gpu import gpu_metrics

EVERY_S = 300.0  # these settings change with a reboot, if at all
_BRIDGE = "0x0604"  # PCI class of bridges
_ACS = 0x000D  # PCI Express extended capability: Access Control Services
_ACS_REDIRECTS = (
    0x04 | 0x08
)  # P2P request redirect, P2P completion redirect (PCI Express Base Specification, ACS control)
_EXTENDED = 0x100  # offset of the first extended capability
_ROCE_MTU = 4200  # bytes: 4096 of an RDMA packet and its headers


def _has_gpus(seen: MachineReading) -> bool:
    return bool(seen.config.gpus) and not seen.config.simulated


@check(every_s=EVERY_S)
def gpu_persistence(seen: MachineReading) -> CheckResult | None:
    """Warns when the driver unloads a GPU that no process uses."""
    off = [gpu.index for gpu in seen.gpus if gpu.figures.get(gpu_metrics.PERSISTENCE) == 0]
    if not _has_gpus(seen) or not off:
        return None
    return warn(
        f"persistence mode is off on GPU {_numbers(off)}: the first process of each job waits seconds for the driver, and "
        "counters start again at 0; enable nvidia-persistenced"
    )


@check(every_s=EVERY_S)
def gpu_iommu(seen: MachineReading) -> CheckResult | None:
    """Warns when the IOMMU translates the addresses of the GPUs' own transfers."""
    translated = []
    for gpu in seen.gpus if _has_gpus(seen) else ():
        kind = _text(f"{seen.sys}/bus/pci/devices/{_sysfs_bus(gpu.bus)}/iommu_group/type")
        if kind.startswith("DMA"):
            translated.append(gpu.index)
    if not translated or _is_virtual(seen):
        return None
    return warn(
        f"the IOMMU translates transfers of GPU {_numbers(translated)}: copies between GPUs and network adapters are slower "
        "or fail; start the kernel with iommu=pt"
    )


@check(every_s=EVERY_S)
def gpu_acs(seen: MachineReading) -> CheckResult | None:
    """Warns when PCI bridges send traffic between devices through the CPU (ACS). A virtual machine needs ACS."""
    if not _has_gpus(seen) or len(seen.gpus) < 2 or _is_virtual(seen):
        return None
    bridges = sorted(_redirecting_bridges(seen.sys))
    if not bridges:
        return None
    return warn(
        f"ACS is on for {len(bridges)} PCI bridges, first {bridges[0]}: copies between GPUs and network adapters go through "
        "the CPU; disable ACS in the firmware"
    )


@check(every_s=EVERY_S)
def gpu_direct_rdma(seen: MachineReading) -> CheckResult | None:
    """Warns when network adapters can't reach GPU memory: neither nvidia_peermem nor the open kernel modules (which have
    DMA-BUF) are loaded."""
    if not _has_gpus(seen) or not os.path.isdir(f"{seen.sys}/class/infiniband"):
        return None
    adapters = os.listdir(f"{seen.sys}/class/infiniband")
    open_modules = "Open Kernel Module" in _text(f"{seen.proc}/driver/nvidia/version")
    if not adapters or open_modules or os.path.isdir(f"{seen.sys}/module/nvidia_peermem"):
        return None
    return warn(
        "nvidia_peermem is not loaded: NCCL copies data between nodes through main memory, at a part of the fabric's speed; "
        "load it (modprobe nvidia_peermem), or install the driver's open kernel modules"
    )


@check(every_s=EVERY_S)
def fabric_mtu(seen: MachineReading) -> CheckResult | None:
    """Warns when an Ethernet interface of an RDMA adapter is too small for RDMA packets of 4096 bytes."""
    small = []
    for port in sorted(glob.glob(f"{seen.sys}/class/infiniband/*/ports/1/link_layer")) if _has_gpus(seen) else ():
        if _text(port) != "Ethernet":
            continue
        for path in sorted(glob.glob(f"{port.partition('/ports/')[0]}/device/net/*/mtu")):
            mtu = int(_text(path) or 0)
            if 0 < mtu < _ROCE_MTU:
                small.append(f"{path.split('/')[-2]} ({mtu})")
    if not small:
        return None
    return warn(
        f"the MTU of {', '.join(small)} is less than {_ROCE_MTU} bytes: RoCE sends smaller packets and is slower; set it to "
        "9000 on adapters and switches"
    )


@check(every_s=EVERY_S)
def memory_lock(seen: MachineReading) -> CheckResult | None:
    """Warns when jobs may not lock memory, which RDMA needs: they inherit slurmd's limit."""
    if not _has_gpus(seen) or not os.path.isdir(f"{seen.sys}/class/infiniband"):
        return None
    for process in seen.processes:
        if process.name == "slurmd":
            found = re.search(r"^Max locked memory\s+(\S+)", _text(f"{seen.proc}/{process.pid}/limits"), re.MULTILINE)
            if found and found[1] != "unlimited":
                return warn(
                    f"jobs may lock {int(found[1]) >> 10} KiB of memory: RDMA fails; set LimitMEMLOCK=infinity for slurmd"
                )
    return None


@check(every_s=EVERY_S)
def huge_pages(seen: MachineReading) -> CheckResult | None:
    """Warns when the kernel never uses huge pages for large allocations."""
    if not _has_gpus(seen) or "[never]" not in _text(f"{seen.sys}/kernel/mm/transparent_hugepage/enabled"):
        return None
    return warn(
        "transparent huge pages are off: data loaders and pinned memory cost more page faults; write madvise to "
        "/sys/kernel/mm/transparent_hugepage/enabled"
    )


def _redirecting_bridges(sys: str) -> Iterator[str]:
    """Yields the addresses of PCI bridges whose ACS redirects traffic between devices below them."""
    for folder in glob.glob(f"{sys}/bus/pci/devices/*"):
        if not _text(f"{folder}/class").startswith(_BRIDGE):
            continue
        with contextlib.suppress(OSError), open(f"{folder}/config", "rb") as file:
            control = _acs_control(file.read(4096))
            if control is not None and control & _ACS_REDIRECTS:
                yield os.path.basename(folder)


def _acs_control(config: bytes) -> int | None:
    """Returns the ACS control register of a PCI configuration space; None without ACS."""
    at = _EXTENDED
    for _ in range(48):  # a damaged list must not be followed for ever
        if at + 8 > len(config):
            return None
        header = int.from_bytes(config[at : at + 4], "little")
        if header & 0xFFFF == _ACS:
            return int.from_bytes(config[at + 6 : at + 8], "little")
        at = header >> 20
        if at < _EXTENDED:
            return None
    return None


def _is_virtual(seen: MachineReading) -> bool:
    """Returns whether this is a virtual machine, whose host sets IOMMU and ACS."""
    return " hypervisor " in f"{_text(f'{seen.proc}/cpuinfo', 8192)} ".replace("\n", " ")


def _sysfs_bus(bus: str) -> str:
    """Returns a PCI address as sysfs writes it: 0000:3b:00.0 for 00000000:3B:00.0."""
    return bus[-12:].lower()


def _numbers(indices: list[int]) -> str:
    return ", ".join(map(str, indices))


def _text(path: str, size: int = 4096) -> str:
    try:
        with open(path) as file:
            return file.read(size).strip()
    except OSError:
        return ""
