"""GPUs read by NVML."""

from __future__ import annotations

import ctypes

import pytest

from agent.gpu import nvml
from tests.support.machines.fake_nvml import FakeNvml


def test_nvml_values_use_dcgm_names_and_units() -> None:
    first, second = nvml.Nvml(FakeNvml()).read()
    assert (first.index, first.uuid, first.name, first.bus) == (0, "GPU-100", "NVIDIA H100", "00000000:3B:00.0")
    assert second.index == 1
    assert first.figures == {
        "DCGM_FI_DEV_GPU_UTIL": 97,
        "DCGM_FI_DEV_MEM_COPY_UTIL": 41,
        "DCGM_FI_DEV_FB_USED": 61440,
        "DCGM_FI_DEV_FB_FREE": 20480,
        "DCGM_FI_DEV_POWER_USAGE": 345.6,
        "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": 9_000_000,
        "DCGM_FI_DEV_GPU_TEMP": 61,
        "DCGM_FI_DEV_MEMORY_TEMP": 77,
        "DCGM_FI_DEV_SM_CLOCK": 1755,
        "DCGM_FI_DEV_MEM_CLOCK": 2619,
        "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL": 12,
        "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": 2,
        "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS": 1,
        "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": 2,
        "DCGM_FI_DEV_ROW_REMAP_PENDING": 1,
        "DCGM_FI_DEV_ROW_REMAP_FAILURE": 0,
        "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS": 0x40,
        "DCGM_FI_DEV_PCIE_LINK_WIDTH": 8,
        "DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH": 16,
        "DCGM_FI_DEV_PCIE_REPLAY_COUNTER": 3,
        "headway_gpu_nvlinks_active": 3,
        "headway_gpu_persistence_mode": 1,
    }


def test_newest_cuda_of_the_driver_is_known_unless_the_library_refuses() -> None:
    assert nvml.Nvml(FakeNvml()).cuda == 12
    library = FakeNvml()
    library.nvmlSystemGetCudaDriverVersion_v2 = lambda *_: 3  # type: ignore[attr-defined]  # not supported
    assert nvml.Nvml(library).cuda == 0


def test_gpu_that_fell_off_the_bus_is_listed_as_lost() -> None:
    library = FakeNvml()
    source = nvml.Nvml(library)
    source.read()
    library.lost = {1}
    first, second = source.read()
    assert not first.lost
    assert (second.lost, second.index, second.uuid, second.figures) == (True, 1, "GPU-101", {})


def test_unsupported_nvml_value_is_left_out() -> None:
    library = FakeNvml()
    library.nvmlDeviceGetTotalEnergyConsumption = lambda *_: 3  # type: ignore[attr-defined]  # not supported
    (first, _) = nvml.Nvml(library).read()
    assert "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION" not in first.figures
    assert first.figures["DCGM_FI_DEV_GPU_TEMP"] == 61


def test_ctypes_structures_have_the_sizes_of_nvml_h() -> None:
    sizes = {"_Utilization": 8, "_Memory": 24, "_Pci": 68, "_FieldValue": 40, "_Event": 32}
    assert {name: ctypes.sizeof(getattr(nvml, name)) for name in sizes} == sizes


def test_event_of_a_gpu_that_fell_off_the_bus_has_its_address() -> None:
    library = FakeNvml()
    wait = nvml.Nvml(library).wait_for_event()
    library.lost, library.events = {1}, [(0, 1, 79), (nvml.TIMEOUT, 0, 0)]
    assert wait(5000) == ("00000000:61:00.0", 79)
    assert wait(5000) is None


def test_gpu_that_is_lost_already_does_not_keep_the_others_from_being_watched() -> None:
    library = FakeNvml()
    source = nvml.Nvml(library)
    library.lost, library.events = {0}, [(0, 1, 48)]
    assert source.wait_for_event()(5000) == ("00000000:61:00.0", 48)


def test_wait_for_an_event_that_nvml_refuses_is_an_error() -> None:
    library = FakeNvml()
    wait = nvml.Nvml(library).wait_for_event()
    library.events = [(nvml.GPU_IS_LOST, 0, 0)]
    with pytest.raises(OSError, match="nvmlEventSetWait_v2"):
        wait(5000)
