"""All-reduce over the GPUs of several nodes with NCCL (libnccl), by ctypes: one process per node drives all its GPUs.

The library is Debian's, or that of a CUDA wheel that root has installed. The nodes agree over a TCP connection
to the first one, which sends NCCL's unique id and decides how many rounds are measured."""

from __future__ import annotations

import contextlib
import ctypes
import glob
import json
import socket
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from ctypes import byref, c_char_p, c_int, c_size_t, c_uint64, c_void_p
from typing import Any, BinaryIO

from agent.node_tests.cuda_driver import CudaDevice
from agent.node_tests.memory import MemoryKernels, device_label
from agent.node_tests.results import NodeTestFailed, NodeTestSkipped

PORT = 29655
LIBRARY = "libnccl.so.2"
# Only what root has installed: the test runs as root, and the packages of /environments are those of users.
WHEELS = ("/usr/local/lib/python3*/dist-packages/nvidia/nccl/lib/libnccl.so.2",)
_FLOAT32, _SUM = 7, 0  # ncclDataType_t, ncclRedOp_t
_WORDS = 1 << 28  # float32 values that are summed: 1 GiB
_FIRST_ROUNDS = 3
MEET_S = 60.0  # seconds that nodes wait for each other


class _UniqueId(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_char * 128)]


class Nccl:
    """The NCCL library of this machine. Raises NodeTestSkipped where none is installed."""

    def __init__(self, library: str = "") -> None:
        found = [path for pattern in WHEELS for path in sorted(glob.glob(pattern), reverse=True)]
        for path in [library] if library else [LIBRARY, *found]:
            with contextlib.suppress(OSError):
                self._library = ctypes.CDLL(path)
                self._library.ncclGetErrorString.restype = c_char_p
                return
        raise NodeTestSkipped("NCCL is not installed: no libnccl.so.2 (install the package libnccl2)")

    def unique_id(self) -> bytes:
        """Returns the id of a new group of GPUs."""
        made = _UniqueId()
        self._call("ncclGetUniqueId", byref(made))
        return ctypes.string_at(byref(made), 128)

    @contextlib.contextmanager
    def communicators(
        self, devices: Sequence[CudaDevice], group_id: bytes, ranks: int, first: int
    ) -> Iterator[list[c_void_p]]:
        """Joins these GPUs as the ranks `first`, `first` + 1, ... of `ranks`; leaves the group at the end."""
        group = _UniqueId.from_buffer_copy(group_id)
        joined = [c_void_p() for _ in devices]
        try:
            with self._calls_of_one_group():
                for number, device in enumerate(devices):
                    device.activate()
                    self._call("ncclCommInitRank", byref(joined[number]), c_int(ranks), group, c_int(first + number))
            yield joined
        finally:
            for one in joined:
                if one:
                    self._library.ncclCommDestroy(one)

    def all_reduce(
        self, devices: Sequence[CudaDevice], blocks: Sequence[int], words: int, group: list[c_void_p]
    ) -> None:
        """Queues the sum of float32 values over all ranks, in place."""
        with self._calls_of_one_group():
            for device, block, one in zip(devices, blocks, group, strict=True):
                device.activate()
                ends = c_uint64(block), c_uint64(block)
                self._call("ncclAllReduce", *ends, c_size_t(words), c_int(_FLOAT32), c_int(_SUM), one, device.stream)

    @contextlib.contextmanager
    def _calls_of_one_group(self) -> Iterator[None]:
        """Lets NCCL run the calls of all GPUs together. After an error, too, the group is ended: in one that stays open the
        calls of later all-reduces would never run."""
        self._call("ncclGroupStart")
        try:
            yield
        except BaseException:
            self._library.ncclGroupEnd()
            raise
        self._call("ncclGroupEnd")

    def _call(self, name: str, *arguments: Any) -> None:
        code = int(getattr(self._library, name)(*arguments))
        if code:
            text = self._library.ncclGetErrorString(c_int(code)) or b""
            raise NodeTestFailed(f"{name}: {text.decode(errors='replace') or code}")


def nccl_all_reduce(
    nccl: Nccl, devices: Sequence[CudaDevice], peers: Sequence[str], rank: int, seconds: float
) -> float:
    """Returns the bus bandwidth in GB/s of an all-reduce over all GPUs of the nodes `peers`; `rank` is this node's place
    among them. Raises NodeTestFailed for a wrong sum."""
    ranks = len(peers) * len(devices)
    words = min(_WORDS, min(device.free_bytes() for device in devices) // 8)
    with connected(peers, rank) as control, contextlib.ExitStack() as memory:
        group_id = bytes.fromhex(control.agree(lambda: nccl.unique_id().hex()))
        words = min(control.gather(words))
        blocks = [memory.enter_context(device.allocated(4 * words)) for device in devices]
        with nccl.communicators(devices, group_id, ranks, rank * len(devices)) as group:
            _check_sum(nccl, devices, blocks, words, group, ranks)
            took = _timed(nccl, devices, blocks, words, group, _FIRST_ROUNDS)
            rounds = int(control.agree(lambda: max(1, round(seconds / max(took / _FIRST_ROUNDS, 1e-6)))))
            took = _timed(nccl, devices, blocks, words, group, rounds)
        slowest = max(control.gather(took))
    return bus_gb_s(4 * words, ranks, slowest / rounds)


def bus_gb_s(size: int, ranks: int, seconds: float) -> float:
    """Returns the bus bandwidth in GB/s of an all-reduce of `size` bytes that takes `seconds`, as NCCL's tests define it:
    https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md"""
    return 2 * (ranks - 1) / ranks * size / seconds / 1e9


def _check_sum(
    nccl: Nccl, devices: Sequence[CudaDevice], blocks: list[int], words: int, group: list[c_void_p], ranks: int
) -> None:
    """Sums ones over all ranks. Raises NodeTestFailed unless every value is the number of ranks."""
    (one,) = struct.unpack("<I", struct.pack("<f", 1.0))
    (total,) = struct.unpack("<I", struct.pack("<f", float(ranks)))
    for device, block in zip(devices, blocks, strict=True):
        device.set_words(block, one, words)
    nccl.all_reduce(devices, blocks, words, group)
    for device, block in zip(devices, blocks, strict=True):
        with contextlib.closing(MemoryKernels(device)) as kernels:
            kernels.reset()
            kernels.check(block, 4 * words, total)
            if found := kernels.finding():
                raise NodeTestFailed(f"{device_label(device)}: the sum over all ranks is wrong: {found.text()}")


def _timed(
    nccl: Nccl, devices: Sequence[CudaDevice], blocks: list[int], words: int, group: list[c_void_p], rounds: int
) -> float:
    """Returns the seconds that `rounds` all-reduces take."""
    began = time.monotonic()
    for _ in range(rounds):
        nccl.all_reduce(devices, blocks, words, group)
    for device in devices:
        device.wait()
    return time.monotonic() - began


class Control:
    """The nodes of one measurement, connected to the first of them. Every node makes the same calls in the same order."""

    def __init__(self, channels: list[BinaryIO], *, leads: bool) -> None:
        self._channels, self._leads = channels, leads

    def agree(self, decide: Callable[[], Any]) -> Any:
        """Returns the first node's value on all nodes."""
        if not self._leads:
            return self._receive(self._channels[0])
        value = decide()
        for channel in self._channels:
            self._send(channel, value)
        return value

    def gather(self, value: Any) -> list[Any]:
        """Returns the values of all nodes, on all nodes."""
        if not self._leads:
            self._send(self._channels[0], value)
            return list(self._receive(self._channels[0]))
        values = [value, *(self._receive(channel) for channel in self._channels)]
        return list(self.agree(lambda: values))

    @staticmethod
    def _send(channel: BinaryIO, value: Any) -> None:
        channel.write(json.dumps(value).encode() + b"\n")
        channel.flush()

    @staticmethod
    def _receive(channel: BinaryIO) -> Any:
        line = channel.readline(1 << 16)
        if not line:
            raise NodeTestFailed("another node of the test ended early")
        return json.loads(line)


@contextlib.contextmanager
def connected(peers: Sequence[str], rank: int) -> Iterator[Control]:
    """Connects the nodes. Raises NodeTestFailed when one does not come within MEET_S seconds."""
    with contextlib.ExitStack() as stack:
        try:
            found = _accept(peers, stack) if rank == 0 else [_connect(peers[0], stack)]
        except OSError as error:
            raise NodeTestFailed(
                f"the nodes of the test did not meet at {peers[0]}: {error}; TCP port {PORT} must be open between nodes"
            ) from None
        yield Control([stack.enter_context(one.makefile("rwb")) for one in found], leads=rank == 0)


def _accept(peers: Sequence[str], stack: contextlib.ExitStack) -> list[socket.socket]:
    if len(peers) == 1:
        return []  # a node alone needs no port
    server = stack.enter_context(socket.create_server((peers[0], PORT), backlog=len(peers)))
    deadline, found = time.monotonic() + MEET_S, {}
    while len(found) < len(peers) - 1:
        server.settimeout(max(0.1, deadline - time.monotonic()))
        one, (address, _) = server.accept()
        if address not in peers[1:] or address in found:
            one.close()
            continue
        one.settimeout(2 * MEET_S)
        found[address] = stack.enter_context(one)
    return [found[address] for address in peers[1:]]


def _connect(leader: str, stack: contextlib.ExitStack) -> socket.socket:
    deadline = time.monotonic() + MEET_S
    while True:
        try:
            one = stack.enter_context(socket.create_connection((leader, PORT), timeout=5))
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
        else:
            one.settimeout(2 * MEET_S)
            return one
