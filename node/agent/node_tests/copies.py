"""Copy tests: within a GPU's memory, between main memory and GPU, and between GPUs. Every copy is compared."""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import time
from collections.abc import Callable, Sequence

from agent.node_tests.cuda_driver import CudaDevice
from agent.node_tests.memory import MemoryKernels, device_label
from agent.node_tests.results import NodeTestFailed, NodeTestSkipped

_WITHIN = 1 << 30  # bytes of one copy
_BETWEEN = 1 << 28
_AT_ONCE = 4  # copies between two looks at the clock
_PATTERN, _FACTOR = 0x2545F491, 0x9E3779B1  # every word differs from its neighbours


def run_copy_test(devices: Sequence[CudaDevice], seconds: float) -> float:
    """Copies within each GPU's memory. Returns GB/s of the slowest, counting bytes read and bytes written. Raises
    NodeTestFailed when a copy differs."""
    return min(_copy_within(device, seconds / len(devices)) for device in devices)


def _copy_within(device: CudaDevice, seconds: float) -> float:
    size = _size(device, _WITHIN)
    with (
        device.allocated(size) as source,
        device.allocated(size) as target,
        contextlib.closing(MemoryKernels(device)) as kernels,
    ):
        kernels.fill(source, size, _PATTERN, _FACTOR)
        rate = _rate(device, lambda: device.copy_within(target, source, size), size, seconds)
        _require_copy(device, kernels, target, size, "a copy within its memory")
        return 2 * rate


def run_upload_test(devices: Sequence[CudaDevice], seconds: float) -> float:
    """Copies from page-locked main memory to each GPU and back. Returns GB/s of the slowest upload. Raises NodeTestFailed when
    what comes back differs."""
    return min(_upload(device, seconds / len(devices)) for device in devices)


def _upload(device: CudaDevice, seconds: float) -> float:
    size = _size(device, _BETWEEN)
    with (
        device.allocated(size) as there,
        device.allocated_pinned(size) as here,
        device.allocated_pinned(size) as back,
    ):
        block = os.urandom(1 << 20)
        for at in range(0, size, len(block)):
            ctypes.memmove(here + at, block, min(len(block), size - at))
        rate = _rate(device, lambda: device.copy_in(there, here, size), size, seconds)
        device.copy_out(back, there, size)
        device.wait()
        if ctypes.string_at(here, size) != ctypes.string_at(back, size):
            raise NodeTestFailed(f"{device_label(device)}: data differs after a copy from main memory and back")
        return rate


def run_peer_copy_test(devices: Sequence[CudaDevice], seconds: float) -> tuple[float, str]:
    """Copies between each pair of GPUs, in both directions. Returns GB/s of the slowest pair and its name. Raises
    NodeTestSkipped where GPUs can't reach each other, and NodeTestFailed when a copy differs."""
    pairs = [(one, other) for one, other in itertools.permutations(devices, 2) if one.can_access(other)]
    if len(devices) < 2:
        raise NodeTestSkipped("the node has one GPU")
    if not pairs:
        raise NodeTestSkipped("no GPU can access another's memory (no NVLink, and none over PCIe: IOMMU or ACS is on)")
    rates: dict[str, float] = {}
    size = min(_size(device, _BETWEEN) for device in devices)
    with contextlib.ExitStack() as stack:
        blocks = {
            device.ordinal: (
                stack.enter_context(device.allocated(size)),
                stack.enter_context(contextlib.closing(MemoryKernels(device))),
            )
            for device in devices
        }
        for one, other in pairs:
            source, fills = blocks[one.ordinal]
            target, checks = blocks[other.ordinal]
            one.enable_access(other)
            fills.fill(source, size, _PATTERN ^ one.ordinal, _FACTOR)
            checks.fill(target, size, 0)
            other.wait()
            copy = _peer_copy(one, other, target, source, size)
            rates[f"GPU {one.ordinal} to GPU {other.ordinal}"] = _rate(one, copy, size, seconds / len(pairs))
            _require_copy(
                other, checks, target, size, f"a copy from {device_label(one)}", pattern=_PATTERN ^ one.ordinal
            )
    slowest = min(rates, key=rates.__getitem__)
    return rates[slowest], slowest


def _peer_copy(one: CudaDevice, other: CudaDevice, target: int, source: int, size: int) -> Callable[[], None]:
    return lambda: one.copy_to_peer(other, target, source, size)


def _size(device: CudaDevice, most: int) -> int:
    """Returns the bytes of one block: at most `most`, and three fit into the free memory."""
    return min(most, device.free_bytes() // 3) & ~0xFFF


def _rate(device: CudaDevice, copy: Callable[[], None], size: int, seconds: float) -> float:
    """Returns GB/s (10^9 bytes) of a queued copy, repeated for some seconds after a first one that is not timed."""
    copy()
    device.wait()
    copies, spent, began = 0, 0.0, time.monotonic()
    while copies == 0 or time.monotonic() - began < seconds:
        first = device.mark()
        for _ in range(_AT_ONCE):
            copy()
        spent += device.seconds_between(first, device.mark())
        copies += _AT_ONCE
    return size * copies / spent / 1e9 if spent else 0.0


def _require_copy(
    device: CudaDevice, kernels: MemoryKernels, address: int, size: int, what: str, *, pattern: int = _PATTERN
) -> None:
    kernels.reset()
    kernels.check(address, size, pattern, _FACTOR)
    if found := kernels.finding():
        raise NodeTestFailed(f"{device_label(device)}: {what} differs from the original: {found.text()}")
