"""The GPU tests of a node run through the driver's functions: against the stand-in library that nodes with simulated GPUs
have, compiled here."""

from __future__ import annotations

import contextlib
import shutil
import struct
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from agent.config import Config
from agent.node_tests import command
from agent.node_tests.cuda_driver import CudaDevice, CudaDriver, CudaError
from agent.node_tests.memory import MemoryKernels, most_memory
from agent.node_tests.nccl import nccl_all_reduce
from agent.node_tests.results import NodeTestFailed, NodeTestResult

SOURCE = Path(__file__).parents[3] / "node/image/gpu/simulated_libcuda.c"
NODE = Config(head="h", gpus=2, simulated=True)


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("gcc")
    assert compiler, "gcc is missing: make test installs it"
    target = tmp_path_factory.mktemp("cuda") / "libcuda-simulated.so"
    options = ["-O2", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared"]
    subprocess.run([compiler, *options, "-o", str(target), str(SOURCE), "-lm"], check=True, timeout=120)
    return target


class Machine:
    """A folder with the device files and faults of a machine's simulated GPUs."""

    def __init__(self, folder: Path, library: Path) -> None:
        self.library = library
        self.devices, self.faults = folder / "dev", folder / "faults"
        self.devices.mkdir()
        self.faults.mkdir()
        for number in range(NODE.gpus):
            (self.devices / f"nvidia{number}").touch()

    def results(self, *names: str, config: Config = NODE) -> dict[str, NodeTestResult]:
        """Runs these tests, or all."""
        found = command.run_gpu_tests(names or command.GPU_TESTS, config, None, 0.05, library=str(self.library))
        return {one.test: one for one in found}


@pytest.fixture
def machine(tmp_path: Path, library: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    made = Machine(tmp_path, library)
    monkeypatch.setenv("HEADWAY_SIMULATED_DEVICES", str(made.devices))
    monkeypatch.setenv("HEADWAY_SIMULATED_FAULTS", str(made.faults))
    return made


def test_healthy_gpus_pass_every_test_with_a_figure(machine: Machine) -> None:
    found = machine.results()
    assert list(found) == ["memory", "burn", "copy", "upload", "peer"]
    assert {(one.ok, one.skipped, one.simulated) for one in found.values()} == {(True, False, True)}
    assert all(one.figure for one in found.values())
    assert found["peer"].unit.startswith("GB/s from GPU ")
    assert "SIMULATED" in found["burn"].line()


def test_bad_memory_fails_with_the_gpu_the_place_and_the_bits(machine: Machine) -> None:
    (machine.faults / "gpu1-bad-memory").touch()
    found = machine.results("memory", "copy")
    assert found["memory"].reason == (
        "GPU 1 (0000:2A:00.0): memory returns other data than was written: 1 word of 32 bits differ, "
        "first at byte 0x400c, bits 0x00000400"
    )
    assert not found["copy"].ok
    assert "a copy within its memory differs" in found["copy"].reason


def test_bad_multiprocessor_is_named_by_the_burn_test(machine: Machine) -> None:
    (machine.faults / "gpu0-bad-compute").touch()
    assert machine.results("burn")["burn"].reason == (
        "GPU 0 (0000:19:00.0) computes different results for the same input on multiprocessor 1"
    )


def test_missing_gpu_fails_and_missing_library_is_skipped(machine: Machine) -> None:
    (machine.devices / "nvidia1").unlink()
    assert machine.results("memory")["memory"].reason == "CUDA finds 1 GPUs, 2 expected"
    (machine.devices / "nvidia0").unlink()
    assert "cuInit: CUDA_ERROR_NO_DEVICE" in machine.results("memory")["memory"].reason
    machine.library = Path("/nowhere/libcuda.so")
    skipped = machine.results("burn")["burn"]
    assert (skipped.ok, skipped.skipped) == (True, True)
    assert "driver library is not installed" in skipped.reason


def test_one_gpu_has_no_peer(machine: Machine) -> None:
    (machine.devices / "nvidia1").unlink()
    one = machine.results("peer", config=Config(head="h", gpus=1, simulated=True))["peer"]
    assert (one.ok, one.skipped, one.reason) == (True, True, "the node has one GPU")


@pytest.fixture
def device(machine: Machine, library: Path) -> CudaDevice:
    return CudaDriver(str(library)).devices()[0]


def test_no_test_keeps_memory(machine: Machine) -> None:
    tests = command.GpuTests(NODE, 0.01, library=str(machine.library))
    devices = tests.open_devices()
    before = [device.free_bytes() for device in devices]
    for name in command.GPU_TESTS:
        tests.run(name)
        assert [device.free_bytes() for device in devices] == before, name


class Sums:
    """Stands in for NCCL. `fails`: an all-reduce raises."""

    def __init__(self, ranks: int, *, fails: bool) -> None:
        self.value, self.fails = struct.unpack("<I", struct.pack("<f", float(ranks)))[0], fails

    def unique_id(self) -> bytes:
        return bytes(128)

    @contextlib.contextmanager
    def communicators(self, *_: Any) -> Iterator[list[Any]]:
        yield []

    def all_reduce(self, devices: Sequence[CudaDevice], blocks: Sequence[int], words: int, _: Any) -> None:
        if self.fails:
            raise NodeTestFailed("ncclAllReduce: unhandled cuda error")
        for device, block in zip(devices, blocks, strict=True):
            device.set_words(block, self.value, words)


@pytest.mark.parametrize("fails", [False, True])
def test_all_reduce_with_nccl_keeps_no_memory(machine: Machine, library: Path, fails: bool) -> None:
    devices = CudaDriver(str(library)).devices()
    before = [device.free_bytes() for device in devices]
    with pytest.raises(NodeTestFailed) if fails else contextlib.nullcontext():
        assert nccl_all_reduce(cast(Any, Sums(len(devices), fails=fails)), devices, ["127.0.0.1"], 0, 0.01) > 0
    assert [device.free_bytes() for device in devices] == before


def test_all_reduce_without_enough_memory_keeps_none(machine: Machine, library: Path) -> None:
    devices = CudaDriver(str(library)).devices()
    sums, (first, last) = Sums(len(devices), fails=False), devices
    before = first.free_bytes()
    last.allocate = lambda size: first.allocate(1 << 40)  # type: ignore[method-assign]
    with pytest.raises(CudaError, match="OUT_OF_MEMORY"):
        nccl_all_reduce(cast(Any, sums), devices, ["127.0.0.1"], 0, 0.01)
    assert first.free_bytes() == before


def test_memory_is_free_again_after_the_tests(device: CudaDevice) -> None:
    before = device.free_bytes()
    with most_memory(device) as chunks:
        assert sum(size for _, size in chunks) > 0.9 * before
        with pytest.raises(CudaError, match="OUT_OF_MEMORY"):
            device.allocate(before)
    assert device.free_bytes() == before


@pytest.mark.parametrize(
    ("act", "text"),
    [
        (lambda device: device.load("no PTX"), "does not start with .version"),
        (lambda device: device.load(".version 9\n").function("other"), "CUDA_ERROR_NOT_FOUND"),
    ],
)
def test_errors_of_the_driver_say_what_was_wrong(
    device: CudaDevice, act: Callable[[CudaDevice], object], text: str
) -> None:
    with pytest.raises(CudaError, match=text):
        act(device)


def test_check_finds_a_word_that_changed_after_it_was_written(device: CudaDevice) -> None:
    kernels, address = MemoryKernels(device), device.allocate(1 << 16)
    kernels.fill(address, 1 << 16, 0xAAAAAAAA)
    kernels.reset()
    kernels.check(address, 1 << 16, 0xAAAAAAAA)
    assert kernels.finding() is None
    device.write(address + 4 * 77, b"\xab\xaa\xaa\xaa")
    kernels.check(address, 1 << 16, 0xAAAAAAAA)
    found = kernels.finding()
    assert found is not None
    assert (found.count, found.first, found.bits) == (1, 77, 1)
