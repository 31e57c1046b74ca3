"""The memory test: writes patterns to nearly all GPU memory and compares what it reads back."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterator, Sequence
from ctypes import c_uint, c_uint64
from dataclasses import dataclass

from agent.node_tests.cuda_driver import CudaDevice, CudaError
from agent.node_tests.kernels import MEMORY
from agent.node_tests.results import NodeTestFailed

CHUNK = 1 << 30  # bytes
_LEAVE = 0.05  # of the free memory: for the driver
_NO_INDEX = (1 << 64) - 1
_ODD = 0x9E3779B1  # 2**32 divided by the golden ratio: neighbouring words differ in half of their bits
# (pattern, factor) of each pass; the last writes another value to every word
_PASSES = ((0x00000000, 0), (0xFFFFFFFF, 0), (0x55555555, 0), (0xAAAAAAAA, 0), (0x5BD1E995, _ODD))
_BLOCKS = 16  # per multiprocessor


@dataclass(frozen=True)
class WrongWords:
    """What a comparison found: the number of wrong 32-bit words, the index of the first, and the bits that differ."""

    count: int
    first: int
    bits: int

    def text(self) -> str:
        """Returns the finding as text."""
        words = "1 word" if self.count == 1 else f"{self.count} words"
        return f"{words} of 32 bits differ, first at byte {4 * self.first:#x}, bits {self.bits:#010x}"


class MemoryKernels:
    """The kernels `fill` and `check` on one GPU. `close` frees what they need."""

    def __init__(self, device: CudaDevice) -> None:
        module = device.load(MEMORY)
        self._device, self._fill, self._check = device, module.function("fill"), module.function("check")
        self._result = device.allocate(24)
        self._blocks = _BLOCKS * device.multiprocessors

    def close(self) -> None:
        """Frees the GPU memory."""
        self._device.free([self._result])

    def fill(self, address: int, size: int, pattern: int, factor: int = 0) -> None:
        """Queues writing the pattern to `size` bytes."""
        words = c_uint64(address), c_uint64(size // 4), c_uint(pattern), c_uint(factor)
        self._device.launch(self._fill, self._blocks, *words)

    def check(self, address: int, size: int, pattern: int, factor: int = 0) -> None:
        """Queues a comparison with what `fill` wrote; `finding` returns the outcome of all since `reset`."""
        words = c_uint64(address), c_uint64(size // 4), c_uint(pattern), c_uint(factor)
        self._device.launch(self._check, self._blocks, *words, c_uint64(self._result))

    def reset(self) -> None:
        """Forgets what earlier comparisons found."""
        self._device.write(self._result, struct.pack("<3Q", 0, _NO_INDEX, 0))

    def finding(self) -> WrongWords | None:
        """Waits for the queued comparisons and returns what they found; None if all words were right."""
        count, first, bits = struct.unpack("<3Q", self._device.read(self._result, 24))
        return WrongWords(count, first, bits) if count else None


def run_memory_test(devices: Sequence[CudaDevice]) -> float:
    """Tests all GPUs at the same time and returns the tested MiB per GPU. Raises NodeTestFailed when a word differs."""
    with contextlib.ExitStack() as stack:
        work = [
            (
                device,
                stack.enter_context(contextlib.closing(MemoryKernels(device))),
                stack.enter_context(most_memory(device)),
            )
            for device in devices
        ]
        for pattern, factor in _PASSES:
            for _, kernels, chunks in work:
                kernels.reset()
                for number, (address, size) in enumerate(chunks):
                    kernels.fill(address, size, pattern ^ number if factor else pattern, factor)
            for _, kernels, chunks in work:
                for number, (address, size) in enumerate(chunks):
                    kernels.check(address, size, pattern ^ number if factor else pattern, factor)
            for device, kernels, _ in work:
                if found := kernels.finding():
                    raise NodeTestFailed(
                        f"{device_label(device)}: memory returns other data than was written: {found.text()}"
                    )
        return min(sum(size for _, size in chunks) for _, _, chunks in work) / (1 << 20)


@contextlib.contextmanager
def most_memory(device: CudaDevice) -> Iterator[list[tuple[int, int]]]:
    """Allocates nearly all free memory in chunks of at most CHUNK bytes, yields (address, bytes) of each, and frees them.
    Raises NodeTestFailed when the GPU has no free memory."""
    left = int(device.free_bytes() * (1 - _LEAVE))
    chunks: list[tuple[int, int]] = []
    try:
        while left >= 1 << 20:
            size = min(CHUNK, left) & ~0xFFF
            try:
                chunks.append((device.allocate(size), size))
            except CudaError:  # fragmented, or used by another program since
                break
            left -= size
        if not chunks:
            raise NodeTestFailed(f"{device_label(device)} has no free memory: a process uses it")
        yield chunks
    finally:
        device.free([address for address, _ in chunks])


def device_label(device: CudaDevice) -> str:
    """Returns a GPU's name in messages: its number and its PCI address."""
    return f"GPU {device.ordinal} ({device.bus})"
