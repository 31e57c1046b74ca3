"""Reads GPUs through NVML (libnvidia-ml), which every NVIDIA driver installs."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable
from ctypes import Structure, byref, c_char, c_uint, c_ulonglong, c_void_p
from typing import Any

from agent.gpu import gpu_metrics
from agent.gpu.gpu_source import Gpu
from agent.gpu.mig import Instance, MigDriver, MigError

GPU_IS_LOST = 15
TIMEOUT = 10
XID_EVENT = 0x8
_MOST_LINKS = 18
_MEMORY_TEMP = 82  # NVML_FI_DEV_MEMORY_TEMP


class _Utilization(Structure):
    _fields_ = [("gpu", c_uint), ("memory", c_uint)]


class _Memory(Structure):
    _fields_ = [("total", c_ulonglong), ("free", c_ulonglong), ("used", c_ulonglong)]


class _Pci(Structure):
    _fields_ = [
        ("legacy", c_char * 16),
        ("domain", c_uint),
        ("bus", c_uint),
        ("device", c_uint),
        ("id", c_uint),
        ("subsystem", c_uint),
        ("bus_id", c_char * 32),
    ]


class _FieldValue(Structure):
    _fields_ = [
        ("field", c_uint),
        ("scope", c_uint),
        ("timestamp", ctypes.c_longlong),
        ("latency_us", ctypes.c_longlong),
        ("type", c_uint),
        ("code", c_uint),
        ("value", c_ulonglong),  # a union; on a little-endian machine a 32-bit value is in its low half
    ]


class _Event(Structure):
    _fields_ = [
        ("device", c_void_p),
        ("kind", c_ulonglong),
        ("data", c_ulonglong),
        ("gpu_instance", c_uint),
        ("compute_instance", c_uint),
    ]


class GpuLost(OSError):
    """NVML reports that the GPU has fallen off the bus."""


class Nvml:
    """A `GpuSource` that asks NVML. Raises OSError if there is no driver. `library`: libnvidia-ml, or a stand-in for
    tests. `mig`: reads MIG instances; None where GPUs are not divided."""

    simulated = False

    def __init__(self, library: Any = None, mig: MigDriver | None = None) -> None:
        self._mig = mig
        self._nvml = library or ctypes.CDLL("libnvidia-ml.so.1")
        self._call("nvmlInit_v2")
        self.driver = self._text("nvmlSystemGetDriverVersion")
        self.cuda = 0
        with contextlib.suppress(OSError, AttributeError):  # only the warning about a job's PyTorch needs it
            self.cuda = self._number("nvmlSystemGetCudaDriverVersion_v2") // 1000  # 12040 is CUDA 12.4
        self._fixed: dict[int, Gpu] = {}

    def read(self) -> list[Gpu]:
        """Returns all GPUs. Raises OSError when the driver does not answer."""
        return [self._read(place) for place in range(self._number("nvmlDeviceGetCount_v2"))]

    def wait_for_event(self) -> Callable[[int], tuple[str, int] | None]:
        """Returns a function that waits for a number of milliseconds and returns (bus address, XID) of an error, or
        None; it raises OSError where NVML refuses, and does so at once. Raises OSError where NVML has no events."""
        found = c_void_p()
        self._call("nvmlEventSetCreate", byref(found))
        buses = {}  # handle -> address, because a GPU that has fallen off the bus no longer tells it
        for place in range(self._number("nvmlDeviceGetCount_v2")):
            with contextlib.suppress(GpuLost):
                handle = self._handle(place)
                self._call("nvmlDeviceRegisterEvents", handle, c_ulonglong(XID_EVENT), found)
                buses[handle.value] = self._bus(handle)

        def wait(timeout_ms: int) -> tuple[str, int] | None:
            event = _Event()
            code = self._nvml.nvmlEventSetWait_v2(found, byref(event), c_uint(timeout_ms))
            if code not in (0, TIMEOUT):
                raise OSError(f"nvmlEventSetWait_v2: NVML error {code}")
            if code or event.kind != XID_EVENT:
                return None
            return buses.get(event.device) or self._bus(c_void_p(event.device)), int(event.data)

        return wait

    def _read(self, place: int) -> Gpu:
        """Returns one GPU. A lost GPU is returned with `lost` and what was known of it before."""
        try:
            handle = self._handle(place)
            if place not in self._fixed:
                self._fixed[place] = Gpu(
                    self._number("nvmlDeviceGetMinorNumber", handle),
                    self._text("nvmlDeviceGetUUID", handle),
                    self._text("nvmlDeviceGetName", handle),
                    self._bus(handle),
                )
            figures = self._figures(handle)
        except GpuLost:
            known = self._fixed.get(place, Gpu(place, "", "", ""))
            return Gpu(known.index, known.uuid, known.name, known.bus, lost=True)
        known = self._fixed[place]
        return Gpu(known.index, known.uuid, known.name, known.bus, figures, mig=self._instances(known.index))

    def _instances(self, gpu: int) -> list[Instance] | None:
        """Returns the GPU's MIG instances, None while they can't be read."""
        try:
            return self._mig.instances(gpu) if self._mig else None
        except (MigError, OSError):
            return None

    def _figures(self, handle: c_void_p) -> dict[str, float]:
        found: dict[str, float] = {}

        def put(name: str, ask: Callable[[], float]) -> None:
            try:
                found[name] = ask()
            except GpuLost:
                raise
            except (OSError, AttributeError):  # this GPU or this driver does not have the metric
                pass

        busy, memory, rows = _Utilization(), _Memory(), [c_uint() for _ in range(4)]
        put(gpu_metrics.UTIL, lambda: self._into("nvmlDeviceGetUtilizationRates", handle, busy).gpu)
        if gpu_metrics.UTIL in found:
            found[gpu_metrics.MEM_UTIL] = busy.memory
        put(gpu_metrics.FB_USED, lambda: self._into("nvmlDeviceGetMemoryInfo", handle, memory).used >> 20)
        if gpu_metrics.FB_USED in found:
            found[gpu_metrics.FB_FREE] = memory.free >> 20
        put(gpu_metrics.POWER, lambda: self._number("nvmlDeviceGetPowerUsage", handle) / 1000)
        put(gpu_metrics.ENERGY, lambda: self._long("nvmlDeviceGetTotalEnergyConsumption", handle))
        put(gpu_metrics.TEMP, lambda: self._number("nvmlDeviceGetTemperature", handle, c_uint(0)))
        put(gpu_metrics.MEM_TEMP, lambda: self._field(handle, _MEMORY_TEMP))
        put(gpu_metrics.SM_CLOCK, lambda: self._number("nvmlDeviceGetClockInfo", handle, c_uint(1)))
        put(gpu_metrics.MEM_CLOCK, lambda: self._number("nvmlDeviceGetClockInfo", handle, c_uint(2)))
        put(gpu_metrics.SBE, lambda: self._long("nvmlDeviceGetTotalEccErrors", handle, c_uint(0), c_uint(0)))
        put(gpu_metrics.DBE, lambda: self._long("nvmlDeviceGetTotalEccErrors", handle, c_uint(1), c_uint(0)))
        put(gpu_metrics.ROWS_WEAK, lambda: self._rows(handle, rows))
        if gpu_metrics.ROWS_WEAK in found:
            names = (gpu_metrics.ROWS_WEAK, gpu_metrics.ROWS_BAD, gpu_metrics.ROWS_PENDING, gpu_metrics.ROWS_FAILED)
            found.update({name: row.value for name, row in zip(names, rows, strict=True)})
        put(gpu_metrics.THROTTLE, lambda: self._long("nvmlDeviceGetCurrentClocksThrottleReasons", handle))
        put(gpu_metrics.PCIE_WIDTH, lambda: self._number("nvmlDeviceGetCurrPcieLinkWidth", handle))
        put(gpu_metrics.PCIE_MAX_WIDTH, lambda: self._number("nvmlDeviceGetMaxPcieLinkWidth", handle))
        put(gpu_metrics.PCIE_REPLAYS, lambda: self._number("nvmlDeviceGetPcieReplayCounter", handle))
        put(gpu_metrics.NVLINKS, lambda: self._links(handle))
        put(gpu_metrics.PERSISTENCE, lambda: self._number("nvmlDeviceGetPersistenceMode", handle))
        return found

    def _links(self, handle: c_void_p) -> int:
        """Returns the number of active NVLinks. Raises OSError for a GPU that has none."""
        up = 0
        for link in range(_MOST_LINKS):
            try:
                up += self._number("nvmlDeviceGetNvLinkState", handle, c_uint(link))
            except GpuLost:
                raise
            except OSError:
                if link == 0:
                    raise
                break
        return up

    def _rows(self, handle: c_void_p, rows: list[c_uint]) -> int:
        self._call("nvmlDeviceGetRemappedRows", handle, *(byref(row) for row in rows))
        return rows[0].value

    def _field(self, handle: c_void_p, number: int) -> int:
        field_value = _FieldValue(field=number)
        self._call("nvmlDeviceGetFieldValues", handle, ctypes.c_int(1), byref(field_value))
        if field_value.code:
            raise OSError(f"NVML has no field {number}")
        return int(field_value.value) & 0xFFFFFFFF

    def _handle(self, place: int) -> c_void_p:
        handle = c_void_p()
        self._call("nvmlDeviceGetHandleByIndex_v2", c_uint(place), byref(handle))
        return handle

    def _bus(self, handle: c_void_p) -> str:
        return bytes(self._into("nvmlDeviceGetPciInfo_v3", handle, _Pci()).bus_id).decode()

    def _into(self, name: str, handle: c_void_p, answer: Any) -> Any:
        self._call(name, handle, byref(answer))
        return answer

    def _text(self, name: str, *handle: c_void_p) -> str:
        buffer = ctypes.create_string_buffer(96)
        self._call(name, *handle, buffer, c_uint(96))
        return buffer.value.decode()

    def _number(self, name: str, *words: Any) -> int:
        answer = c_uint()
        self._call(name, *words, byref(answer))
        return answer.value

    def _long(self, name: str, *words: Any) -> int:
        answer = c_ulonglong()
        self._call(name, *words, byref(answer))
        return answer.value

    def _call(self, name: str, *words: Any) -> None:
        code = getattr(self._nvml, name)(*words)
        if code == GPU_IS_LOST:
            raise GpuLost(f"{name}: the GPU is lost")
        if code:
            raise OSError(f"{name}: NVML error {code}")
