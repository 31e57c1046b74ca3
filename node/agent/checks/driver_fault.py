"""Why NVIDIA's driver does not work on a machine, from what the kernel and the file system show. A machine in a container has the
kernel and the modules of its host, so the reason and the remedy are those of the host."""

from __future__ import annotations

import glob
import os

# Where DKMS, the distributions and NVIDIA's installer put kernel modules.
_FOLDERS = ("updates", "updates/dkms", "extra", "extra/*", "weak-updates/*", "kernel/drivers/video", "kernel/nvidia*")


def driver_fault(sys: str = "/sys", root: str = "") -> str:
    """Returns why the driver does not work, with what to do; "" if none of the known reasons holds. `sys`: the mount point of
    sysfs; `root`: the folder of the root file system."""
    kernel = os.uname().release
    there = " on the host" if os.path.exists(f"{root}/run/systemd/container") else ""
    loaded = _text(f"{sys}/module/nvidia/version")
    if loaded:
        libraries = sorted({os.path.realpath(path).rpartition(".so.")[2] for path in _libraries(root)} - {"1"})
        if libraries and loaded not in libraries:
            return f"the kernel has driver {loaded}, and the libraries are of {libraries[-1]}: reboot{there and ' the host'}"
        return ""
    if os.path.isdir(f"{sys}/module/nouveau"):
        return f"nouveau holds the GPUs: blacklist it{there} and reboot"
    modules = [path for name in _FOLDERS for path in glob.glob(f"{root}/lib/modules/*/{name}/nvidia*.ko*")]
    kernels = sorted({path[len(root) :].split("/")[3] for path in modules})
    if kernel in kernels:
        secure = " (Secure Boot refuses a module that is not signed)" if _secure_boot(sys, root) else ""
        return f"the driver's module is not loaded{secure}: modprobe nvidia{there} tells why"
    if kernels:
        built = f"the driver's module was built for kernel {kernels[-1]}, and {kernel} runs"
        return f"{built}: install its headers{there}, then dkms autoinstall"
    return "" if _libraries(root) else f"no driver of NVIDIA is installed{there}"


def _libraries(root: str) -> list[str]:
    return glob.glob(f"{root}/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.*") + glob.glob(
        f"{root}/usr/lib/headway/driver/libnvidia-ml.so.*"
    )


def _secure_boot(sys: str, root: str) -> bool:
    # A container does not see its host's variables of EFI; node/programs/owned_machines/container_host.sh makes the file.
    if os.path.exists(f"{root}/usr/lib/headway/secure-boot"):
        return True
    for path in glob.glob(f"{sys}/firmware/efi/efivars/SecureBoot-*"):
        try:
            with open(path, "rb") as file:
                return file.read()[4:5] == b"\x01"
        except OSError:
            continue
    return False


def _text(path: str) -> str:
    try:
        with open(path) as file:
            return file.read().strip()
    except OSError:
        return ""
