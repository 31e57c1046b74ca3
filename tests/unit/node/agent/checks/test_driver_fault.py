"""A node without a working GPU driver says why."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agent.checks.driver_fault import driver_fault

KERNEL = os.uname().release


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ((), "no driver of NVIDIA is installed"),
        (("sys/module/nouveau/uevent",), "nouveau holds the GPUs: blacklist it and reboot"),
        ((f"lib/modules/{KERNEL}/updates/dkms/nvidia.ko.xz",), "the driver's module is not loaded: modprobe nvidia"),
        (
            (f"lib/modules/{KERNEL}/updates/dkms/nvidia.ko", "sys/firmware/efi/efivars/SecureBoot-8be4df61"),
            "not loaded (Secure Boot refuses a module that is not signed)",
        ),
        (
            ("lib/modules/0.0.1/updates/dkms/nvidia-current.ko",),
            f"was built for kernel 0.0.1, and {KERNEL} runs: install its headers",
        ),
        (
            ("sys/module/nvidia/version", "usr/lib/x86_64-linux-gnu/libnvidia-ml.so.580.95.05"),
            "the kernel has driver 570.124.06, and the libraries are of 580.95.05: reboot",
        ),
        (("sys/module/nvidia/version", "usr/lib/x86_64-linux-gnu/libnvidia-ml.so.570.124.06"), ""),
        (("usr/lib/x86_64-linux-gnu/libnvidia-ml.so.580.95.05",), ""),
    ],
)
def test_driver_fault_names_what_the_machine_shows(files: tuple[str, ...], why: str, tmp_path: Path) -> None:
    for name in files:
        file = tmp_path / name
        file.parent.mkdir(parents=True)
        file.write_bytes(b"\x06\0\0\0\x01" if "SecureBoot" in name else b"570.124.06\n")
    said = driver_fault(str(tmp_path / "sys"), str(tmp_path))
    assert why in said if why else said == ""
    assert "host" not in said


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ((), "no driver of NVIDIA is installed on the host"),
        (
            (f"lib/modules/{KERNEL}/updates/dkms/nvidia.ko", "usr/lib/headway/secure-boot"),
            "not loaded (Secure Boot refuses a module that is not signed): modprobe nvidia on the host",
        ),
        (("lib/modules/0.0.1/updates/dkms/nvidia.ko",), "runs: install its headers on the host, then dkms autoinstall"),
        (
            ("sys/module/nvidia/version", "usr/lib/headway/driver/libnvidia-ml.so.580.95.05"),
            "the libraries are of 580.95.05: reboot the host",
        ),
    ],
)
def test_machine_in_a_container_names_its_host(files: tuple[str, ...], why: str, tmp_path: Path) -> None:
    for name in (*files, "run/systemd/container"):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("570.124.06\n")
    assert why in driver_fault(str(tmp_path / "sys"), str(tmp_path))
