"""Host settings that slow GPUs and fabric are warned about with their cost; nothing else is."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.checks import host_settings
from agent.checks.runner import CHECKS, MachineReading, Process
from agent.config import Config
from agent.gpu import gpu_metrics
from agent.gpu.gpu_source import Gpu

NODE = Config(head="h", gpus=2)
BUSES = ("00000000:3B:00.0", "00000000:86:00.0")
CHECKED = [check for check in CHECKS if check.run.__module__ == host_settings.__name__]


class Host:
    """The parts of /sys and /proc that the checks read. A sound host at first."""

    def __init__(self, folder: Path) -> None:
        self.sys, self.proc = folder / "sys", folder / "proc"
        for bus in ("0000:3b:00.0", "0000:86:00.0"):
            self.write(f"sys/bus/pci/devices/{bus}/iommu_group/type", "identity")
        self.bridge("0000:00:01.0", acs=0)
        self.write("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never")
        self.write("proc/cpuinfo", "flags : fpu vme sse2\n")
        self.write("proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.1")
        self.write("sys/class/infiniband/mlx5_0/ports/1/link_layer", "Ethernet")
        self.write("sys/class/infiniband/mlx5_0/device/net/ens1/mtu", "9000")
        self.write("proc/77/limits", "Max locked memory         unlimited            unlimited            bytes\n")

    def write(self, path: str, text: str) -> None:
        file = self.sys.parent / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def bridge(self, address: str, *, acs: int) -> None:
        """Makes a PCI bridge whose second extended capability is ACS with this control register."""
        self.write(f"sys/bus/pci/devices/{address}/class", "0x060400")
        config = bytearray(0x1000)
        config[0x100:0x104] = struct.pack("<I", 0x0001 | 1 << 16 | 0x148 << 20)  # AER, then the capability at 0x148
        config[0x148:0x150] = struct.pack("<IHH", 0x000D | 1 << 16, 0x1F, acs)
        (self.sys / f"bus/pci/devices/{address}/config").write_bytes(config)

    def warnings(self, **changes: Any) -> dict[str, str]:
        """Returns the reasons of all checks that warn."""
        gpus = [Gpu(number, "", "", bus, {gpu_metrics.PERSISTENCE: 1}) for number, bus in enumerate(BUSES)]
        state = MachineReading(NODE, gpus=gpus, proc=str(self.proc), sys=str(self.sys))
        state = replace(state, processes=[Process(77, "slurmd", "S", 0.0)], **changes)
        found = {check.name: check.run(state) for check in CHECKED}
        assert all(result is None or result.state == "warn" for result in found.values())
        return {name: result.reason for name, result in found.items() if result}


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_sound_host_has_no_warning(host: Host) -> None:
    assert host.warnings() == {}
    assert len(CHECKED) == 7


def peermem_missing(host: Host) -> None:
    host.write("proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.1")


@pytest.mark.parametrize(
    ("check", "spoil", "text"),
    [
        ("gpu_iommu", lambda host: host.write("sys/bus/pci/devices/0000:86:00.0/iommu_group/type", "DMA-FQ"),
         "transfers of GPU 1: .* iommu=pt"),
        ("gpu_acs", lambda host: host.bridge("0000:40:01.0", acs=0x1D), "1 PCI bridges, first 0000:40:01.0"),
        ("gpu_direct_rdma", peermem_missing, "modprobe nvidia_peermem"),
        ("fabric_mtu", lambda host: host.write("sys/class/infiniband/mlx5_0/device/net/ens1/mtu", "1500"),
         r"the MTU of ens1 \(1500\)"),
        ("memory_lock", lambda host: host.write("proc/77/limits", "Max locked memory  65536  65536  bytes\n"), "64 KiB"),
        ("huge_pages", lambda host: host.write("sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]"),
         "madvise"),
    ],
)  # fmt: skip
def test_each_setting_is_warned_about_alone(host: Host, check: str, spoil: Callable[[Host], None], text: str) -> None:
    spoil(host)
    found = host.warnings()
    assert list(found) == [check]
    assert re.search(text, found[check])
    assert host.warnings(config=replace(NODE, simulated=True)) == {}


def test_persistence_mode_names_the_gpus_and_unknown_is_no_warning(host: Host) -> None:
    gpus = [Gpu(number, "", "", bus, {gpu_metrics.PERSISTENCE: 0}) for number, bus in enumerate(BUSES)]
    assert "off on GPU 0, 1" in host.warnings(gpus=gpus)["gpu_persistence"]
    assert "gpu_persistence" not in host.warnings(gpus=[Gpu(0, "", "", BUSES[0])])


def test_virtual_machine_has_no_acs_or_iommu_warning(host: Host) -> None:
    host.bridge("0000:40:01.0", acs=0x1D)
    host.write("sys/bus/pci/devices/0000:86:00.0/iommu_group/type", "DMA")
    host.write("proc/cpuinfo", "flags : fpu hypervisor sse2\n")
    assert host.warnings() == {}


def test_peermem_module_is_enough_for_rdma(host: Host) -> None:
    peermem_missing(host)
    (host.sys / "module/nvidia_peermem").mkdir(parents=True)
    assert host.warnings() == {}


@pytest.mark.parametrize("config", [b"", b"\xff" * 256, b"\x00" * 0x104, b"\x01\x00\x01\x10" * 64 * 16])
def test_damaged_configuration_space_has_no_acs(config: bytes) -> None:
    assert host_settings._acs_control(config) is None
