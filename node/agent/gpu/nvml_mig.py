"""MIG through NVML (libnvidia-ml): the driver of real GPUs."""

from __future__ import annotations

import contextlib
import ctypes
import os
import stat
from collections.abc import Iterator
from ctypes import Structure, byref, c_uint, c_ulonglong, c_void_p
from typing import Any

from agent.gpu.mig import Instance, MigError, cap_minors

CAPABILITIES = "/proc/driver/nvidia/capabilities"
PROC_DEVICES = "/proc/devices"
DEVICES = "/dev"
NOT_SUPPORTED, IN_USE, IN_USE_BY_ANOTHER = 3, 19, 34
# NVML's number of a GPU instance profile by (compute slices, memory slices)
_PROFILES = {(1, 1): 0, (2, 2): 1, (3, 4): 2, (4, 4): 3, (7, 8): 4, (1, 2): 9}
_COMPUTE_PROFILES = {1: 0, 2: 1, 3: 2, 4: 3, 7: 4}
_MOST_INSTANCES = 8


class _Placement(Structure):
    _fields_ = [("start", c_uint), ("size", c_uint)]


class _InstanceInfo(Structure):
    _fields_ = [("device", c_void_p), ("id", c_uint), ("profile", c_uint), ("placement", _Placement)]


class _Profile(Structure):
    _fields_ = [
        ("id", c_uint),
        ("p2p", c_uint),
        ("slices", c_uint),
        ("count", c_uint),
        ("processors", c_uint),
        ("copy_engines", c_uint),
        ("decoders", c_uint),
        ("encoders", c_uint),
        ("jpeg", c_uint),
        ("ofa", c_uint),
        ("memory_mib", c_ulonglong),
    ]


class _ComputeProfile(Structure):
    _fields_ = [
        ("id", c_uint),
        ("slices", c_uint),
        ("count", c_uint),
        ("processors", c_uint),
        ("copy_engines", c_uint),
        ("decoders", c_uint),
        ("encoders", c_uint),
        ("jpeg", c_uint),
        ("ofa", c_uint),
    ]


class NvmlMig:
    """Raises OSError if there is no driver. `library`: libnvidia-ml, or a stand-in for tests."""

    def __init__(
        self,
        library: Any = None,
        *,
        capabilities: str = CAPABILITIES,
        devices: str = DEVICES,
        proc_devices: str = PROC_DEVICES,
    ) -> None:
        self._nvml = library or ctypes.CDLL("libnvidia-ml.so.1")
        self._capabilities, self._devices, self._proc_devices = capabilities, devices, proc_devices
        self._call("nvmlInit_v2")
        count = c_uint()
        self._call("nvmlDeviceGetCount_v2", byref(count))
        self._handles: dict[int, c_void_p] = {}
        for place in range(count.value):
            handle, minor = c_void_p(), c_uint()
            self._call("nvmlDeviceGetHandleByIndex_v2", c_uint(place), byref(handle))
            self._call("nvmlDeviceGetMinorNumber", handle, byref(minor))
            self._handles[minor.value] = handle

    def gpus(self) -> list[int]:
        """Returns all GPUs."""
        return sorted(self._handles)

    def enabled(self, gpu: int) -> bool:
        """Returns whether the GPU is in MIG mode, or will be after a reset."""
        return self._mode(gpu)[1] == 1

    def set_mode(self, gpu: int, *, on: bool) -> None:
        """Switches the MIG mode. The driver resets the GPU for it if no process uses it. Raises MigError if it can't."""
        activation = c_uint()
        self._call("nvmlDeviceSetMigMode", self._handles[gpu], c_uint(on), byref(activation))
        self._check_mode(gpu)

    def retry_mode(self, gpu: int) -> None:
        """Switches the MIG mode if that is still pending: a program that had the GPU open may have ended since."""
        now, pending = self._mode(gpu)
        if now != pending:
            self._call("nvmlDeviceSetMigMode", self._handles[gpu], c_uint(pending), byref(c_uint()))

    def instances(self, gpu: int) -> list[Instance]:
        """Returns the GPU instances. Compute slices are 0 for one without a compute instance."""
        self._check_mode(gpu)
        if not self.enabled(gpu):
            return []
        return [self._instance(gpu, handle) for handle in self._gpu_instances(gpu)]

    def create(self, gpu: int, wanted: Instance) -> None:
        """Creates the GPU instance at its place with one compute instance."""
        profile = _Profile()
        shape = (wanted.compute, wanted.size)
        self._call("nvmlDeviceGetGpuInstanceProfileInfo", self._handles[gpu], c_uint(_PROFILES[shape]), byref(profile))
        made, place = c_void_p(), _Placement(wanted.start, wanted.size)
        self._call(
            "nvmlDeviceCreateGpuInstanceWithPlacement",
            self._handles[gpu],
            c_uint(profile.id),
            byref(place),
            byref(made),
        )
        compute, kind = c_void_p(), _ComputeProfile()
        number = c_uint(_COMPUTE_PROFILES[wanted.compute])
        self._call("nvmlGpuInstanceGetComputeInstanceProfileInfo", made, number, c_uint(0), byref(kind))
        self._call("nvmlGpuInstanceCreateComputeInstance", made, c_uint(kind.id), byref(compute))

    def destroy(self, gpu: int, instance: Instance) -> None:
        """Destroys the GPU instance and its compute instances. Raises MigError while a process uses one."""
        for handle in list(self._gpu_instances(gpu)):
            if self._info(handle).id == instance.number:
                for compute in list(self._compute_instances(handle)):
                    self._call("nvmlComputeInstanceDestroy", compute)
                self._call("nvmlGpuInstanceDestroy", handle)

    def _mode(self, gpu: int) -> tuple[int, int]:
        now, pending = c_uint(), c_uint()
        code = self._nvml.nvmlDeviceGetMigMode(self._handles[gpu], byref(now), byref(pending))
        if code == NOT_SUPPORTED:
            return 0, 0
        self._raise_for("nvmlDeviceGetMigMode", code)
        return now.value, pending.value

    def _check_mode(self, gpu: int) -> None:
        now, pending = self._mode(gpu)
        if now != pending:
            raise MigError(
                f"GPU {gpu}: the MIG mode is switched {'on' if pending else 'off'} only by a reset of the GPU: end all "
                f"programs that use it (also monitoring) and run nvidia-smi -i {gpu} --gpu-reset, or reboot the machine"
            )

    def _gpu_instances(self, gpu: int) -> Iterator[c_void_p]:
        for number in _PROFILES.values():
            profile = _Profile()
            code = self._nvml.nvmlDeviceGetGpuInstanceProfileInfo(self._handles[gpu], c_uint(number), byref(profile))
            if code == NOT_SUPPORTED:
                continue
            self._raise_for("nvmlDeviceGetGpuInstanceProfileInfo", code)
            found, count = (c_void_p * _MOST_INSTANCES)(), c_uint()
            self._call("nvmlDeviceGetGpuInstances", self._handles[gpu], c_uint(profile.id), found, byref(count))
            yield from (c_void_p(found[at]) for at in range(count.value))

    def _compute_instances(self, instance: c_void_p) -> Iterator[c_void_p]:
        for number in _COMPUTE_PROFILES.values():
            kind = _ComputeProfile()
            code = self._nvml.nvmlGpuInstanceGetComputeInstanceProfileInfo(
                instance, c_uint(number), c_uint(0), byref(kind)
            )
            if code:
                continue  # the instance is smaller than this profile
            found, count = (c_void_p * _MOST_INSTANCES)(), c_uint()
            self._call("nvmlGpuInstanceGetComputeInstances", instance, c_uint(kind.id), found, byref(count))
            yield from (c_void_p(found[at]) for at in range(count.value))

    def _info(self, handle: c_void_p) -> _InstanceInfo:
        info = _InstanceInfo()
        self._call("nvmlGpuInstanceGetInfo", handle, byref(info))
        return info

    def _instance(self, gpu: int, handle: c_void_p) -> Instance:
        info, compute = self._info(handle), 0
        for (slices, size), number in _PROFILES.items():
            profile = _Profile()
            code = self._nvml.nvmlDeviceGetGpuInstanceProfileInfo(self._handles[gpu], c_uint(number), byref(profile))
            if code == 0 and profile.id == info.profile and size == info.placement.size:
                compute = slices
        whole = compute if len(list(self._compute_instances(handle))) == 1 else 0
        return Instance(info.placement.start, info.placement.size, whole, info.id)

    def make_files(self, gpu: int, instance: Instance) -> None:
        """Makes the device files that the driver has not made yet. Raises MigError if the driver's minor numbers are not
        those by which gres.conf names the files."""
        folder = f"{self._capabilities}/gpu{gpu}/mig/gi{instance.number}"
        for path, expected in zip(
            (f"{folder}/access", f"{folder}/ci0/access"), cap_minors(gpu, instance.number), strict=True
        ):
            minor = _device_minor(path)
            if minor != expected:
                raise MigError(f"{path} says device file {minor}, gres.conf expects nvidia-cap{expected}")
            file = f"{self._devices}/nvidia-caps/nvidia-cap{minor}"
            if not os.path.exists(file):
                os.makedirs(os.path.dirname(file), mode=0o755, exist_ok=True)
                with contextlib.suppress(FileExistsError):
                    os.mknod(file, 0o444 | stat.S_IFCHR, os.makedev(_caps_major(self._proc_devices), minor))

    def _call(self, name: str, *args: Any) -> None:
        self._raise_for(name, getattr(self._nvml, name)(*args))

    def _raise_for(self, name: str, code: int) -> None:
        if code in (IN_USE, IN_USE_BY_ANOTHER):
            raise MigError(f"{name}: a program still uses the GPU; end it (also monitoring) and try again")
        if code:
            self._nvml.nvmlErrorString.restype = ctypes.c_char_p
            words = self._nvml.nvmlErrorString(code)
            raise OSError(f"{name}: {words.decode() if words else code}")


def _device_minor(path: str) -> int:
    """Returns the minor number in the driver's description of a capability."""
    with open(path) as file:
        for line in file:
            name, _, value = line.partition(":")
            if name.strip() == "DeviceFileMinor":
                return int(value)
    raise MigError(f"{path} names no device file")


def _caps_major(path: str) -> int:
    """Returns the major number of nvidia-caps."""
    with open(path) as file:
        for line in file:
            words = line.split()
            if len(words) == 2 and words[1] == "nvidia-caps":
                return int(words[0])
    raise MigError("the driver has no device nvidia-caps")
