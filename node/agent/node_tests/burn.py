"""The burn test: all multiprocessors of all GPUs do the same arithmetic, and every result is compared bit for bit."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from ctypes import c_uint, c_uint64

from agent.node_tests import kernels
from agent.node_tests.cuda_driver import THREADS, CudaDevice
from agent.node_tests.memory import device_label
from agent.node_tests.results import NodeTestFailed

_SEED = 7
_BLOCKS = 2  # per multiprocessor: with the registers that the kernel needs, two blocks fill one
_FIRST_ROUNDS = 64
_LAUNCH_S = 0.1  # seconds that one launch should take: results are compared that often
_ROW = 4 * kernels.LANES  # bytes of one warp's digests


class Burn:
    """The burn kernel on one GPU. `tensor`: bfloat16 in tensor cores, else float32."""

    def __init__(self, device: CudaDevice, *, tensor: bool) -> None:
        text, name = (kernels.BURN_TENSOR, "burn_tensor") if tensor else (kernels.BURN_FMA, "burn_fma")
        self.device = device
        self.blocks = _BLOCKS * device.multiprocessors
        self.warps = self.blocks * THREADS // kernels.LANES
        self._function = device.load(text).function(name)
        self._digests, self._places = device.allocate(self.warps * _ROW), device.allocate(4 * self.warps)

    def launch(self, rounds: int) -> None:
        """Queues `rounds` rounds."""
        words = c_uint64(self._digests), c_uint64(self._places), c_uint(rounds), c_uint(_SEED)
        self.device.launch(self._function, self.blocks, *words)

    def rows(self) -> list[bytes]:
        """Returns each warp's digests, after all queued work."""
        content = self.device.read(self._digests, self.warps * _ROW)
        return [content[at : at + _ROW] for at in range(0, len(content), _ROW)]

    def multiprocessor(self, warp: int) -> int:
        """Returns the number of the multiprocessor on which the warp ran last."""
        return int.from_bytes(self.device.read(self._places + 4 * warp, 4), "little")

    def close(self) -> None:
        """Frees the GPU memory."""
        self.device.free([self._digests, self._places])


def run_burn_test(devices: Sequence[CudaDevice], seconds: float) -> tuple[float, bool]:
    """Loads all GPUs for some seconds. Returns the TFLOP/s of the slowest and whether tensor cores did the work. Raises
    NodeTestFailed when results differ between multiprocessors, GPUs or repetitions."""
    tensor = all(device.capability >= kernels.TENSOR_CAPABILITY for device in devices)
    burns = [Burn(device, tensor=tensor) for device in devices]
    try:
        rounds = _rounds_of_one_launch(burns)
        expected: dict[tuple[str, tuple[int, int]], bytes] = {}
        launches, spent = 0, [0.0] * len(burns)
        began = time.monotonic()
        while launches == 0 or time.monotonic() - began < seconds:
            marks = [_timed_launch(burn, rounds) for burn in burns]
            for number, (burn, (first, last)) in enumerate(zip(burns, marks, strict=True)):
                spent[number] += burn.device.seconds_between(first, last)
                _compare(burn, expected)
            launches += 1
        per_warp = kernels.TENSOR_FLOP if tensor else kernels.FMA_FLOP
        rates = [
            per_warp * burn.warps * rounds * launches / took / 1e12
            for burn, took in zip(burns, spent, strict=True)
            if took > 0
        ]
        return min(rates, default=0.0), tensor
    finally:
        for burn in burns:
            burn.close()


def _timed_launch(burn: Burn, rounds: int) -> tuple[object, object]:
    first = burn.device.mark()
    burn.launch(rounds)
    return first, burn.device.mark()


def _rounds_of_one_launch(burns: Sequence[Burn]) -> int:
    """Returns how many rounds make the slowest GPU busy for _LAUNCH_S. The same for all, so that their results agree."""
    rounds = _FIRST_ROUNDS
    while rounds < 1 << 24:
        marks = [_timed_launch(burn, rounds) for burn in burns]
        took = max(burn.device.seconds_between(*pair) for burn, pair in zip(burns, marks, strict=True))
        if took >= _LAUNCH_S / 2:
            return max(1, int(rounds * _LAUNCH_S / took))
        rounds *= 2
    return rounds


def _compare(burn: Burn, expected: dict[tuple[str, tuple[int, int]], bytes]) -> None:
    """Compares all warps' digests with the majority's, and that with earlier launches and equal GPUs. The compiler makes
    the same program for GPUs of one type only, so others are not compared."""
    rows = burn.rows()
    right, count = Counter(rows).most_common(1)[0]
    known = expected.setdefault((burn.device.name, burn.device.capability), right)
    if right != known or count <= len(rows) // 2:
        raise NodeTestFailed(
            f"{device_label(burn.device)} computes other results than before, or than other GPUs of its type"
        )
    if count < len(rows):
        wrong = [warp for warp, row in enumerate(rows) if row != right]
        places = sorted({burn.multiprocessor(warp) for warp in wrong})
        named = ", ".join(map(str, places[:8])) + (" ..." if len(places) > 8 else "")
        raise NodeTestFailed(
            f"{device_label(burn.device)} computes different results for the same input on multiprocessor {named}"
        )
