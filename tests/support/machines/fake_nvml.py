"""A stand-in for NVML."""

from __future__ import annotations

from typing import Any

from agent.gpu import nvml


class FakeNvml:
    """libnvidia-ml of a machine with two GPUs; answers by way of pointers as the library does. `lost`: GPUs that fell
    off. `events`: (code, GPU, XID) that the next waits for an event return. A call that the test did not register is an error."""

    def __init__(self) -> None:
        self.lost: set[int] = set()
        self.events: list[tuple[int, int, int]] = []
        self.numbers: dict[str, Any] = {
            "nvmlDeviceGetPowerUsage": 345_600,
            "nvmlDeviceGetTotalEnergyConsumption": 9_000_000,
            "nvmlDeviceGetTemperature": 61,
            "nvmlDeviceGetCurrentClocksThrottleReasons": 0x40,
            "nvmlDeviceGetCurrPcieLinkWidth": 8,
            "nvmlDeviceGetMaxPcieLinkWidth": 16,
            "nvmlDeviceGetPcieReplayCounter": 3,
            "nvmlDeviceGetPersistenceMode": 1,
        }

    def nvmlInit_v2(self) -> int:  # noqa: N802
        return 0

    def __getattr__(self, name: str) -> Any:
        def call(*words: Any) -> int:
            return self._answer(name, words)

        if not name.startswith("nvml"):
            raise AttributeError(name)
        return call

    def _answer(self, name: str, words: tuple[Any, ...]) -> int:
        out = getattr(words[-1], "_obj", None)
        if name == "nvmlSystemGetDriverVersion":
            words[0].value = b"570.1"
        elif name == "nvmlSystemGetCudaDriverVersion_v2":
            out.value = 12_080
        elif name == "nvmlDeviceGetCount_v2":
            out.value = 2
        elif name == "nvmlDeviceGetHandleByIndex_v2":
            out.value = words[0].value + 100
        elif name == "nvmlEventSetCreate":
            out.value = 1
        elif name == "nvmlEventSetWait_v2":
            code, gpu, xid = self.events.pop(0)
            event = words[1]._obj
            event.device, event.kind, event.data = gpu + 100, nvml.XID_EVENT, xid
            return code
        elif words[0].value - 100 in self.lost:
            return int(nvml.GPU_IS_LOST)
        elif name == "nvmlDeviceGetMinorNumber":
            out.value = words[0].value - 100
        elif name == "nvmlDeviceGetUUID":
            words[1].value = b"GPU-%d" % words[0].value
        elif name == "nvmlDeviceGetName":
            words[1].value = b"NVIDIA H100"
        elif name == "nvmlDeviceGetPciInfo_v3":
            out.bus_id = b"00000000:%d:00.0" % (words[0].value - 40) if words[0].value > 100 else b"00000000:3B:00.0"
        elif name == "nvmlDeviceRegisterEvents":
            assert words[1].value == nvml.XID_EVENT
        elif name == "nvmlDeviceGetUtilizationRates":
            out.gpu, out.memory = 97, 41
        elif name == "nvmlDeviceGetMemoryInfo":
            out.total, out.used, out.free = 80 << 30, 60 << 30, 20 << 30
        elif name == "nvmlDeviceGetClockInfo":
            out.value = {1: 1755, 2: 2619}[words[1].value]
        elif name == "nvmlDeviceGetTotalEccErrors":
            out.value = {0: 12, 1: 2}[words[1].value]
        elif name == "nvmlDeviceGetRemappedRows":
            for pointer, value in zip(words[1:], (1, 2, 1, 0), strict=True):
                pointer._obj.value = value
        elif name == "nvmlDeviceGetNvLinkState":
            if words[1].value >= 4:
                return 3
            out.value = int(words[1].value != 2)
        elif name == "nvmlDeviceGetFieldValues":
            assert out.field == 82
            out.value = 77
        elif name in self.numbers:
            out.value = self.numbers[name]
        else:
            raise AssertionError(f"the test did not register {name}")
        return 0
