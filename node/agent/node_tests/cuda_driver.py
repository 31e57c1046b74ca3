"""GPUs through the CUDA driver API (libcuda), by ctypes: memory, kernels from PTX, copies and their times.

Every NVIDIA driver installs libcuda, so neither a CUDA toolkit nor torch is needed. Where GPUs are simulated, a stand-in
library with the same functions runs the same kernels on the CPU (node/image/gpu/simulated_libcuda.c).

All functions that this module calls return a CUresult; every other value than 0 is raised as CudaError."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator, Sequence
from ctypes import byref, c_char_p, c_float, c_int, c_size_t, c_uint, c_uint64, c_void_p
from typing import Any

LIBRARY = "libcuda.so.1"
SIMULATED_LIBRARY = "/usr/lib/headway/libcuda-simulated.so"
NO_DEVICE = 100  # CUDA_ERROR_NO_DEVICE
_PEER_ALREADY_ENABLED = 704
_MULTIPROCESSORS, _MAJOR, _MINOR = 16, 75, 76  # CU_DEVICE_ATTRIBUTE_*
_JIT_ERROR_LOG, _JIT_ERROR_LOG_BYTES = 5, 6  # CU_JIT_ERROR_LOG_BUFFER, ..._SIZE_BYTES
_LOG_BYTES = 4096
THREADS = 256  # per block, of every launch


class CudaError(Exception):
    """A call of the driver failed. `code` is its CUresult."""

    def __init__(self, call: str, code: int, name: str, text: str) -> None:
        super().__init__(f"{call}: {name or code}{f' ({text})' if text else ''}")
        self.code = code


class CudaDriver:
    """The driver of this machine. Raises OSError where the library is missing, and CudaError where it finds no GPU."""

    def __init__(self, library: str = LIBRARY) -> None:
        os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"  # the order of nvidia-smi
        os.environ.pop("CUDA_VISIBLE_DEVICES", None)
        self._library = ctypes.CDLL(library)
        self.call("cuInit", c_uint(0))

    def devices(self) -> list[CudaDevice]:
        """Returns all GPUs, in the order of their PCI addresses."""
        count = c_int()
        self.call("cuDeviceGetCount", byref(count))
        return [CudaDevice(self, ordinal) for ordinal in range(count.value)]

    def call(self, name: str, *arguments: Any) -> None:
        """Calls a function of the library. Raises CudaError unless it returns 0."""
        code = int(getattr(self._library, name)(*arguments))
        if code:
            raise CudaError(name, code, self._text("cuGetErrorName", code), self._text("cuGetErrorString", code))

    def _text(self, name: str, code: int) -> str:
        text = c_char_p()
        failed = getattr(self._library, name)(c_int(code), byref(text))
        return "" if failed or not text.value else text.value.decode(errors="replace")


class CudaDevice:
    """One GPU with its primary context and one stream. Methods make its context current first, so a caller can use all
    GPUs in turn; kernels and copies are queued, and `wait` waits for them."""

    def __init__(self, driver: CudaDriver, ordinal: int) -> None:
        self._driver = driver
        self.ordinal = ordinal
        self._modules: dict[str, CudaModule] = {}
        self._device, self._context, self.stream = c_int(), c_void_p(), c_void_p()
        driver.call("cuDeviceGet", byref(self._device), c_int(ordinal))
        self.name = self._string("cuDeviceGetName")
        self.bus = self._string("cuDeviceGetPCIBusId")
        self.capability = self._attribute(_MAJOR), self._attribute(_MINOR)
        self.multiprocessors = self._attribute(_MULTIPROCESSORS)
        driver.call("cuDevicePrimaryCtxRetain", byref(self._context), self._device)
        self.activate()
        driver.call("cuStreamCreate", byref(self.stream), c_uint(0))

    def activate(self) -> None:
        """Makes this GPU's context the calling thread's current one."""
        self._driver.call("cuCtxSetCurrent", self._context)

    def free_bytes(self) -> int:
        """Returns the free memory in bytes."""
        free, total = c_size_t(), c_size_t()
        self._call("cuMemGetInfo_v2", byref(free), byref(total))
        return free.value

    def allocate(self, size: int) -> int:
        """Returns the address of `size` new bytes of GPU memory."""
        address = c_uint64()
        self._call("cuMemAlloc_v2", byref(address), c_size_t(size))
        return address.value

    def free(self, addresses: Sequence[int]) -> None:
        """Frees GPU memory."""
        for address in addresses:
            self._call("cuMemFree_v2", c_uint64(address))

    @contextlib.contextmanager
    def allocated(self, size: int) -> Iterator[int]:
        """Yields the address of `size` new bytes of GPU memory, and frees them at the end."""
        address = self.allocate(size)
        try:
            yield address
        finally:
            self.free([address])

    @contextlib.contextmanager
    def allocated_pinned(self, size: int) -> Iterator[int]:
        """Yields the address of `size` new bytes of page-locked main memory, and frees them at the end."""
        address = self.allocate_pinned(size)
        try:
            yield address
        finally:
            self.free_pinned(address)

    def allocate_pinned(self, size: int) -> int:
        """Returns the address of `size` new bytes of page-locked main memory."""
        address = c_void_p()
        self._call("cuMemAllocHost_v2", byref(address), c_size_t(size))
        return int(address.value or 0)

    def free_pinned(self, address: int) -> None:
        """Frees page-locked main memory."""
        self._call("cuMemFreeHost", c_void_p(address))

    def load(self, ptx: str) -> CudaModule:
        """Returns the module that the driver compiles from PTX, at the first call. Raises CudaError with the compiler's first
        message."""
        if ptx in self._modules:
            return self._modules[ptx]
        module, log = c_void_p(), ctypes.create_string_buffer(_LOG_BYTES)
        options = (c_int * 2)(_JIT_ERROR_LOG, _JIT_ERROR_LOG_BYTES)
        values = (c_void_p * 2)(ctypes.addressof(log), _LOG_BYTES)
        self.activate()
        try:
            self._driver.call("cuModuleLoadDataEx", byref(module), c_char_p(ptx.encode()), c_uint(2), options, values)
        except CudaError as error:
            message = log.value.decode(errors="replace").strip().partition("\n")[0]
            raise CudaError("cuModuleLoadDataEx", error.code, "PTX was not compiled", message or str(error)) from None
        return self._modules.setdefault(ptx, CudaModule(self, module))

    def launch(self, function: c_void_p, blocks: int, *arguments: Any) -> None:
        """Queues a kernel of `blocks` blocks of THREADS threads. `arguments` are ctypes values."""
        pointers = (c_void_p * len(arguments))(*(ctypes.addressof(one) for one in arguments))
        grid, threads = (c_uint(blocks), c_uint(1), c_uint(1)), (c_uint(THREADS), c_uint(1), c_uint(1))
        self._call("cuLaunchKernel", function, *grid, *threads, c_uint(0), self.stream, pointers, c_void_p())

    def wait(self) -> None:
        """Waits until everything queued on this GPU is done. Raises CudaError if a kernel failed."""
        self._call("cuStreamSynchronize", self.stream)

    def set_words(self, address: int, value: int, count: int) -> None:
        """Queues setting `count` 32-bit words to `value`."""
        self._call("cuMemsetD32Async", c_uint64(address), c_uint(value), c_size_t(count), self.stream)

    def copy_within(self, target: int, source: int, size: int) -> None:
        """Queues a copy within this GPU's memory."""
        self._call("cuMemcpyDtoDAsync_v2", c_uint64(target), c_uint64(source), c_size_t(size), self.stream)

    def copy_in(self, target: int, source: int, size: int) -> None:
        """Queues a copy from page-locked main memory to this GPU."""
        self._call("cuMemcpyHtoDAsync_v2", c_uint64(target), c_void_p(source), c_size_t(size), self.stream)

    def copy_out(self, target: int, source: int, size: int) -> None:
        """Queues a copy from this GPU to page-locked main memory."""
        self._call("cuMemcpyDtoHAsync_v2", c_void_p(target), c_uint64(source), c_size_t(size), self.stream)

    def read(self, source: int, size: int) -> bytes:
        """Returns `size` bytes of GPU memory, after all queued work."""
        self.wait()
        target = ctypes.create_string_buffer(size)
        self._call("cuMemcpyDtoH_v2", target, c_uint64(source), c_size_t(size))
        return target.raw

    def write(self, target: int, content: bytes) -> None:
        """Writes bytes to GPU memory and waits until they are there."""
        self._call("cuMemcpyHtoD_v2", c_uint64(target), c_char_p(content), c_size_t(len(content)))

    def can_access(self, peer: CudaDevice) -> bool:
        """Returns whether this GPU reaches the other's memory directly, over NVLink or PCIe."""
        answer = c_int()
        self._call("cuDeviceCanAccessPeer", byref(answer), self._device, peer._device)
        return bool(answer.value)

    def enable_access(self, peer: CudaDevice) -> None:
        """Maps the other GPU's memory for direct copies."""
        try:
            self._call("cuCtxEnablePeerAccess", peer._context, c_uint(0))
        except CudaError as error:
            if error.code != _PEER_ALREADY_ENABLED:
                raise

    def copy_to_peer(self, peer: CudaDevice, target: int, source: int, size: int) -> None:
        """Queues a copy from this GPU's memory to the other's."""
        ends = c_uint64(target), peer._context, c_uint64(source), self._context
        self._call("cuMemcpyPeerAsync", *ends, c_size_t(size), self.stream)

    def mark(self) -> c_void_p:
        """Queues a time mark and returns it; see `seconds_between`."""
        event = c_void_p()
        self._call("cuEventCreate", byref(event), c_uint(0))
        self._call("cuEventRecord", event, self.stream)
        return event

    def seconds_between(self, first: c_void_p, last: c_void_p) -> float:
        """Returns the GPU's time between two marks in seconds, after waiting for the last, and frees both."""
        took = c_float()
        self._call("cuEventSynchronize", last)
        self._call("cuEventElapsedTime", byref(took), first, last)
        for event in (first, last):
            self._call("cuEventDestroy_v2", event)
        return took.value / 1000

    def _call(self, name: str, *arguments: Any) -> None:
        self.activate()
        self._driver.call(name, *arguments)

    def _attribute(self, number: int) -> int:
        value = c_int()
        self._driver.call("cuDeviceGetAttribute", byref(value), c_int(number), self._device)
        return value.value

    def _string(self, name: str) -> str:
        text = ctypes.create_string_buffer(100)
        self._driver.call(name, text, c_int(100), self._device)
        return text.value.decode(errors="replace")


class CudaModule:
    """Compiled kernels of one GPU."""

    def __init__(self, device: CudaDevice, module: c_void_p) -> None:
        self._device, self._module = device, module

    def function(self, name: str) -> c_void_p:
        """Returns the kernel of this name."""
        function = c_void_p()
        self._device._call("cuModuleGetFunction", byref(function), self._module, c_char_p(name.encode()))
        return function
