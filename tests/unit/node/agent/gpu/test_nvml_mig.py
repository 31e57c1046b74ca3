"""MIG through NVML: instances at their places with one compute instance each, device files by the driver's own numbers, and
messages that say what to do where the GPU is in use or needs a reset."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from agent.gpu.mig import Instance, MigError, cap_minors, make_instances
from agent.gpu.nvml_mig import NvmlMig

HALVES = (Instance(0, 4, 3, 1, "3g.71gb"), Instance(4, 4, 3, 2, "3g.71gb"))
# NVML's profile number -> (id that the driver gives it, compute slices, memory slices)
PROFILES = {0: (19, 1, 1), 1: (14, 2, 2), 2: (9, 3, 4), 3: (5, 4, 4), 4: (0, 7, 8)}
NOT_SUPPORTED, IN_USE = 3, 19


class FakeMig:
    """libnvidia-ml of a machine with one GPU; answers by way of pointers as the library does. A call that the test did
    not register is an error."""

    def __init__(self, capabilities: Path) -> None:
        self.mode = [0, 0]  # now, after a reset
        self.resets = True  # the driver resets the GPU itself
        self.busy = False
        self.made: dict[int, dict[str, Any]] = {}  # handle -> instance
        self.capabilities = capabilities
        self.shift = 0  # what the driver's numbers differ by from those expected

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("nvml"):
            raise AttributeError(name)
        answer = getattr(type(self), f"do_{name.removeprefix('nvml')}", None)
        if answer is None:
            raise AssertionError(f"the test did not register {name}")
        return lambda *words: answer(self, *words) or 0

    def do_Init_v2(self) -> None: ...  # noqa: N802

    def do_ErrorString(self, code: int) -> bytes:  # noqa: N802
        return b"error %d" % code

    def do_DeviceGetCount_v2(self, count: Any) -> None:  # noqa: N802
        count._obj.value = 1

    def do_DeviceGetHandleByIndex_v2(self, place: Any, handle: Any) -> None:  # noqa: N802
        handle._obj.value = place.value + 100

    def do_DeviceGetMinorNumber(self, handle: Any, minor: Any) -> None:  # noqa: N802
        minor._obj.value = handle.value - 100

    def do_DeviceGetMigMode(self, _: Any, now: Any, pending: Any) -> None:  # noqa: N802
        now._obj.value, pending._obj.value = self.mode

    def do_DeviceSetMigMode(self, _: Any, mode: Any, status: Any) -> int:  # noqa: N802
        if self.busy:
            return IN_USE
        self.mode = [mode.value if self.resets else self.mode[0], mode.value]
        return 0

    def do_DeviceGetGpuInstanceProfileInfo(self, _: Any, number: Any, info: Any) -> int:  # noqa: N802
        if number.value not in PROFILES:
            return NOT_SUPPORTED
        info._obj.id = PROFILES[number.value][0]
        return 0

    def do_DeviceCreateGpuInstanceWithPlacement(self, _: Any, profile: Any, place: Any, made: Any) -> None:  # noqa: N802
        start, size = place._obj.start, place._obj.size
        number = 8 // size - 1 + start // size
        handle = 200 + number
        self.made[handle] = {"id": number, "profile": profile.value, "start": start, "size": size, "parts": []}
        made._obj.value = handle

    def do_GpuInstanceGetComputeInstanceProfileInfo(self, handle: Any, number: Any, _: Any, info: Any) -> int:  # noqa: N802
        whole = next(p for p in PROFILES.values() if p[0] == self.made[handle.value]["profile"])
        if PROFILES[number.value][1] > whole[1]:
            return NOT_SUPPORTED
        info._obj.id = number.value
        return 0

    def do_GpuInstanceCreateComputeInstance(self, handle: Any, profile: Any, made: Any) -> None:  # noqa: N802
        one = self.made[handle.value]
        one["parts"].append(profile.value)
        made._obj.value = 1000 + handle.value
        for name, minor in zip(("access", "ci0/access"), cap_minors(0, one["id"]), strict=True):
            path = self.capabilities / f"gpu0/mig/gi{one['id']}" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"DeviceFileMinor: {minor + self.shift}\nDeviceFileMode: 292\n")

    def do_DeviceGetGpuInstances(self, _: Any, profile: Any, found: Any, count: Any) -> None:  # noqa: N802
        handles = [handle for handle, one in self.made.items() if one["profile"] == profile.value]
        found[: len(handles)] = handles
        count._obj.value = len(handles)

    def do_GpuInstanceGetInfo(self, handle: Any, info: Any) -> None:  # noqa: N802
        one = self.made[handle.value]
        info._obj.id, info._obj.profile = one["id"], one["profile"]
        info._obj.placement.start, info._obj.placement.size = one["start"], one["size"]

    def do_GpuInstanceGetComputeInstances(self, handle: Any, profile: Any, found: Any, count: Any) -> None:  # noqa: N802
        here = profile.value in self.made[handle.value]["parts"]
        found[0], count._obj.value = (1000 + handle.value if here else None), int(here)

    def do_ComputeInstanceDestroy(self, handle: Any) -> int:  # noqa: N802
        if self.busy:
            return IN_USE
        self.made[handle.value - 1000]["parts"].clear()
        return 0

    def do_GpuInstanceDestroy(self, handle: Any) -> None:  # noqa: N802
        assert not self.made.pop(handle.value)["parts"], "it still has a compute instance"


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeMig:
    def plain_file(path: str, mode: int, device: int) -> None:
        Path(path).write_text(f"{mode:o} {os.major(device)}:{os.minor(device)}")

    monkeypatch.setattr(os, "mknod", plain_file)
    (tmp_path / "devices").write_text("Character devices:\n195 nvidia\n236 nvidia-caps\n\nBlock devices:\n  8 sd\n")
    return FakeMig(tmp_path / "capabilities")


@pytest.fixture
def driver(library: FakeMig, tmp_path: Path) -> NvmlMig:
    return NvmlMig(
        library,
        capabilities=str(tmp_path / "capabilities"),
        devices=str(tmp_path),
        proc_devices=str(tmp_path / "devices"),
    )


def test_instances_get_their_places_compute_instances_and_device_files(driver: NvmlMig, tmp_path: Path) -> None:
    assert list(make_instances(driver, HALVES)) == [
        "GPU 0: MIG mode is on",
        "GPU 0: instance 1 is made, 3g.71gb",
        "GPU 0: instance 2 is made, 3g.71gb",
    ]
    assert [one.place for one in driver.instances(0)] == [(0, 4, 3), (4, 4, 3)]
    files = {path.name: path.read_text() for path in (tmp_path / "nvidia-caps").iterdir()}
    assert files == {f"nvidia-cap{minor}": f"20444 236:{minor}" for minor in (12, 13, 21, 22)}
    (tmp_path / "nvidia-caps" / "nvidia-cap21").unlink()
    assert list(make_instances(driver, HALVES)) == []
    assert (tmp_path / "nvidia-caps" / "nvidia-cap21").exists()
    assert list(make_instances(driver, ()))[-1] == "GPU 0: MIG mode is off"


def test_an_instance_without_compute_instance_is_made_again(driver: NvmlMig, library: FakeMig) -> None:
    list(make_instances(driver, HALVES))
    library.made[202]["parts"].clear()
    assert list(make_instances(driver, HALVES)) == [
        "GPU 0: instance 2 is removed",
        "GPU 0: instance 2 is made, 3g.71gb",
    ]


def test_a_gpu_that_needs_a_reset_is_named_with_the_command(driver: NvmlMig, library: FakeMig) -> None:
    library.resets = False
    with pytest.raises(MigError, match=r"GPU 0: the MIG mode is switched on only by a reset .* -i 0 --gpu-reset"):
        list(make_instances(driver, HALVES))
    with pytest.raises(MigError, match="--gpu-reset"):
        list(make_instances(driver, HALVES))
    library.mode = [1, 1]
    assert len(list(make_instances(driver, HALVES))) == 2


def test_a_mode_that_was_held_back_by_a_program_is_switched_once_that_has_ended(
    driver: NvmlMig, library: FakeMig
) -> None:
    list(make_instances(driver, HALVES))
    library.resets = False
    with pytest.raises(MigError, match="switched off only by a reset"):
        list(make_instances(driver, ()))
    library.resets = True
    assert list(make_instances(driver, ())) == []
    assert library.mode == [0, 0]


def test_a_program_that_uses_the_gpu_is_the_reason(driver: NvmlMig, library: FakeMig) -> None:
    list(make_instances(driver, HALVES))
    library.busy = True
    with pytest.raises(MigError, match="a program still uses the GPU"):
        list(make_instances(driver, ()))


def test_other_device_numbers_than_in_gres_conf_are_refused(driver: NvmlMig, library: FakeMig) -> None:
    library.shift = 5
    with pytest.raises(MigError, match=r"says device file 17, gres\.conf expects nvidia-cap12"):
        list(make_instances(driver, HALVES))
