"""Active tests of an idle node, run before it returns to service.

    agent.pyz test NAME [--json] [--seconds S] [--expect JSON]       NAME: checks, memory, burn, copy, all
    agent.pyz test allreduce --peers ADDRESS,ADDRESS --rank 0|1      on two nodes at the same time; the first is rank 0

Each test prints one line; the exit status is 0 when all pass. Figures are compared with what the plan expects of a
healthy node. Where GPUs are simulated, the CPU does the same work: the result must be right, the figure is only
printed, and the line is marked SIMULATED."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from agent.checks.kernel_log import KernelLog, kernel_line
from agent.checks.runner import BAD, MachineState, run_every_check
from agent.config import PATH, Config, load
from agent.gpu import interface as gpu
from agent.gpu.factory import open_source
from agent.gpu.interface import Gpu, Source
from agent.gpu.job_gpus import jobs_on_node
from agent.munge import Munge

NAMES = ("checks", "memory", "burn", "copy", "allreduce", "all")
PORT = 29655
_PATTERNS = (0x00, 0xFF, 0x55, 0xAA)
_BURN_N, _BURN_CPU_N = 8192, 384
_LONG_AGO_S = 3600.0


@dataclass
class TestResult:
    """The outcome of one test."""

    test: str
    ok: bool
    simulated: bool = False
    figure: float | None = None
    unit: str = ""
    expected: float | None = None  # the least that the plan expects
    reason: str = ""

    def line(self) -> str:
        """Returns the result as one line of text."""
        parts = [f"{self.test:<10} {'ok' if self.ok else 'FAILED'}"]
        if self.figure is not None:
            least = f" (at least {self.expected:g} expected)" if self.expected else ""
            parts.append(f"{self.figure:g} {self.unit}{least}")
        parts += [self.reason] if self.reason else []
        return "  ".join([*parts, *(["SIMULATED"] if self.simulated else [])])


class TestFailed(Exception):
    """A test failed; the message says what it found."""


def main(words: list[str]) -> int:
    """Runs the test that the arguments name, prints a line for each result, and returns the exit status: 0 when all
    passed."""
    ask = argparse.ArgumentParser("agent.pyz test")
    ask.add_argument("name", choices=NAMES)
    ask.add_argument("--json", action="store_true")
    ask.add_argument("--seconds", type=float, default=5.0, help="how long one figure is measured")
    ask.add_argument("--expect", type=json.loads, default={}, help="figures that others stand for the plan's")
    ask.add_argument("--peers", type=lambda text: text.split(","), default=[])
    ask.add_argument("--rank", type=int, default=0)
    ask.add_argument("--config", default=PATH)
    arguments = ask.parse_args(words)
    config = load(arguments.config)
    config.expects.update(arguments.expect)
    fine = True
    for test in run_tests(config, arguments):
        fine = fine and test.ok
        print(json.dumps(asdict(test)) if arguments.json else test.line(), flush=True)
    return 0 if fine else 1


def run_tests(config: Config, arguments: argparse.Namespace) -> Iterator[TestResult]:
    """Yields the results of the tests that the arguments ask for."""
    source = open_source(config)
    names = ("checks", "memory", "burn", "copy") if arguments.name == "all" else (arguments.name,)
    for name in names:
        if name == "checks":
            yield from run_all_checks(config, source)
        elif name == "allreduce":
            yield run_guarded(
                name, config, lambda bench: bench.allreduce(arguments.peers, arguments.rank), arguments.seconds
            )
        elif config.gpus:
            broken = device_errors(name, source)
            if broken:
                yield TestResult(name, False, config.simulated, reason=broken)
            elif name == "memory":
                yield run_guarded(name, config, TorchTests.memory, arguments.seconds)
            elif name == "burn":
                yield run_guarded(name, config, TorchTests.burn, arguments.seconds)
            else:
                yield run_guarded(name, config, TorchTests.copy, arguments.seconds)
                if not config.simulated:
                    yield run_guarded("upload", config, TorchTests.upload, arguments.seconds)


def run_all_checks(config: Config, source: Source | None) -> Iterator[TestResult]:
    """Yields the result of every check of the agent, run once. A warning counts as passed."""
    for row in run_every_check(read_machine(config, source)):
        shown = config.simulated and row["check"].startswith("gpu_")
        yield TestResult(row["check"], row["state"] != BAD, shown, reason=row["reason"])


def read_machine(config: Config, source: Source | None) -> MachineState:
    """Returns the state of this machine as the checks need it, read now."""
    from agent.checks.node_checks import is_kernel_error
    from agent.checks.runner import Process
    from agent.jobs.processes import list_processes
    from agent.metrics.sampler import GpuReader

    now = time.monotonic()
    seen = MachineState(config, now=now, started=now - _LONG_AGO_S, jobs=jobs_on_node())
    if source is not None:
        reader = GpuReader(source)
        reader.start()
        reader.first.wait(20)
        seen.gpus, seen.gpus_at, seen.gpu_error = reader.gpus, reader.at, reader.error
    seen.processes = [Process(pid, name, state, now) for pid, name, state in list_processes()]
    log = KernelLog(config.kernel_log)
    while records := log.new_records():
        seen.kernel += [text for text in map(kernel_line, records) if is_kernel_error(text)]
    try:
        Munge().seal(b"")
        seen.sealed_at = now
    except OSError:
        pass
    return seen


def device_errors(name: str, source: Source | None) -> str:
    """Returns what the driver reports against the GPUs in the test `name`; "" if nothing."""
    found: list[Gpu] = source.read() if source else []
    for result in found:
        if result.lost:
            return f"GPU {result.index} does not answer"
        if name == "memory" and result.figures.get(gpu.DBE):
            return f"GPU {result.index} had {result.figures[gpu.DBE]:.0f} uncorrected memory errors"
        if name == "burn" and int(result.figures.get(gpu.THROTTLE, 0)) & 0xE8:
            return f"GPU {result.index} is throttled"
    return ""


def run_guarded(name: str, config: Config, run: Callable[[TorchTests], TestResult], seconds: float) -> TestResult:
    """Returns the result of `run`. Any exception becomes a failed result."""
    try:
        found = run(TorchTests(config, seconds))
    except Exception as error:
        text = str(error) if isinstance(error, TestFailed) else f"{type(error).__name__}: {error}"
        return TestResult(name, False, config.simulated, reason=text[:500])
    if found.expected and found.figure is not None and found.figure < found.expected:
        found.ok, found.reason = False, "less than the plan expects"
    return found


class TorchTests:
    """The tests that compute with torch, on every GPU, or on the CPU where GPUs are simulated."""

    def __init__(self, config: Config, seconds: float) -> None:
        import torch

        self.torch: Any = torch
        self._config, self._seconds = config, seconds
        if config.simulated or not config.gpus:
            self._devices = ["cpu"]
            self._seconds = min(seconds, 1.0)
        elif not torch.cuda.is_available():
            raise TestFailed("PyTorch finds no CUDA on this node")
        else:
            self._devices = [f"cuda:{index}" for index in range(torch.cuda.device_count())]
            if len(self._devices) < config.gpus:
                raise TestFailed(f"CUDA finds {len(self._devices)} GPUs, {config.gpus} expected")

    def memory(self) -> TestResult:
        """Writes patterns to nearly all GPU memory and reads them back. Raises TestFailed when they differ."""
        tested = 0
        for device in self._devices:
            tested += self._patterns(device)
        return self._outcome("memory", round(tested / len(self._devices)), "MiB a GPU", None)

    def _patterns(self, device: str) -> int:
        torch, chunk = self.torch, 1 << (24 if device == "cpu" else 30)
        free = 4 * chunk if device == "cpu" else int(torch.cuda.mem_get_info(device)[0] * 0.95)
        blocks = [torch.empty(chunk, dtype=torch.uint8, device=device) for _ in range(max(1, free // chunk))]
        for pattern in _PATTERNS:
            for number, block in enumerate(blocks):
                # each block has its own pattern, so that a faulty address line shows
                block.fill_((pattern + number) & 0xFF)
            for number, block in enumerate(blocks):
                if not bool((block == (pattern + number) & 0xFF).all()):
                    raise TestFailed(f"{device}: memory returns other data than was written (pattern {pattern:#x})")
        return len(blocks) * chunk >> 20

    def burn(self) -> TestResult:
        """Multiplies the same matrices repeatedly on all GPUs at once. Raises TestFailed when a product differs in any
        bit from an earlier one or from another GPU's. The figure is TFLOP/s of the slowest GPU, because each round
        waits for all."""
        torch = self.torch
        n, kind = (_BURN_CPU_N, torch.float32) if self._config.simulated else (_BURN_N, torch.bfloat16)
        torch.manual_seed(7)
        left, right = torch.randn(n, n), torch.randn(n, n)
        work = [(left.to(device, kind), right.to(device, kind)) for device in self._devices]
        first = [a @ b for a, b in work]
        self._settle()
        rounds, began = 0, time.monotonic()
        while time.monotonic() - began < self._seconds:
            last: list[Any] = []
            for _ in range(1 if self._config.simulated else 20):
                last = [a @ b for a, b in work]
                rounds += 1
            self._settle()
            wrong = [d for d, x, y in zip(self._devices, last, first, strict=True) if not torch.equal(x, y)]
            if wrong:
                raise TestFailed(f"{wrong[0]} computes different results for the same input")
        took = time.monotonic() - began
        if not all(torch.equal(first[0].cpu(), result.cpu()) for result in first[1:]):
            raise TestFailed("the GPUs compute different results for the same product")
        return self._outcome("burn", 2 * n**3 * rounds / took / 1e12, "TFLOP/s", "burn_tflops")

    def copy(self) -> TestResult:
        """Measures copies within a GPU's memory; the figure counts bytes read and bytes written."""
        size = 1 << (24 if self._config.simulated else 30)
        slowest = min(self._rate(device, device, size) for device in self._devices) * 2
        return self._outcome("copy", slowest, "GB/s", "copy_gb_s")

    def upload(self) -> TestResult:
        """Measures copies from pinned main memory to a GPU."""
        slowest = min(self._rate("cpu", device, 1 << 28) for device in self._devices)
        return self._outcome("upload", slowest, "GB/s", "upload_gb_s")

    def _rate(self, source: str, target: str, size: int) -> float:
        torch = self.torch
        pinned = source == "cpu" != target
        data = torch.randint(0, 255, (size,), dtype=torch.uint8, pin_memory=pinned).to(source)
        there = torch.empty(size, dtype=torch.uint8, device=target)
        there.copy_(data)
        self._settle()
        rounds, began = 0, time.monotonic()
        while time.monotonic() - began < self._seconds / max(1, len(self._devices)):
            for _ in range(4):
                there.copy_(data, non_blocking=True)
            self._settle()
            rounds += 4
        took = time.monotonic() - began
        if not torch.equal(there.cpu(), data.cpu()):
            raise TestFailed(f"{target}: a copy differs from the original")
        return float(size * rounds / took / 1e9)

    def _settle(self) -> None:
        if not self._config.simulated:
            for device in self._devices:
                self.torch.cuda.synchronize(device)

    def allreduce(self, peers: list[str], rank: int) -> TestResult:
        """Measures bus bandwidth between two nodes with NCCL, or with gloo where GPUs are simulated."""
        if len(peers) != 2 or rank not in (0, 1):
            raise TestFailed("--peers takes two addresses, and --rank 0 or 1")
        cuda = self._devices != ["cpu"]
        each = len(self._devices)
        ask = (rank, each, peers[0], interface_with_address(peers[rank]), self._seconds, cuda)
        if each == 1:
            rate = _allreduce(0, *ask)
        else:
            context = self.torch.multiprocessing.get_context("spawn")
            answers = context.SimpleQueue()
            ranks = [
                context.Process(target=_put_allreduce_result, args=(answers, local, *ask)) for local in range(each)
            ]
            for process in ranks:
                process.start()
            for process in ranks:
                process.join()
            if any(process.exitcode for process in ranks):
                raise TestFailed("a rank of the all-reduce failed")
            rate = min(answers.get() for _ in ranks)
        return self._outcome("allreduce", rate, "GB/s", "allreduce_gb_s")

    def _outcome(self, test: str, figure: float, unit: str, expected: str | None) -> TestResult:
        least = self._config.expects.get(expected) if expected and not self._config.simulated else None
        return TestResult(test, True, self._config.simulated, float(f"{figure:.4g}"), unit, least)


def _put_allreduce_result(answers: Any, local: int, *ask: Any) -> None:
    answers.put(_allreduce(local, *ask))


def _allreduce(local: int, node: int, each: int, leader: str, interface: str, seconds: float, cuda: bool) -> float:
    """Returns the bus bandwidth in GB/s that one rank measures. Raises TestFailed for a wrong sum."""
    from datetime import timedelta

    import torch
    import torch.distributed as dist

    if interface:
        os.environ["GLOO_SOCKET_IFNAME"] = interface
        os.environ.setdefault("NCCL_SOCKET_IFNAME", interface)
    world, rank = 2 * each, node * each + local
    dist.init_process_group(
        "nccl" if cuda else "gloo",
        init_method=f"tcp://{leader}:{PORT}",
        world_size=world,
        rank=rank,
        timeout=timedelta(seconds=120),
    )
    try:
        device = f"cuda:{local}" if cuda else "cpu"
        size = 1 << (28 if cuda else 20)
        data = torch.ones(size, dtype=torch.float32, device=device)
        dist.all_reduce(data)
        if not bool((data == world).all()):
            raise TestFailed("the sum over all ranks is wrong")
        go_on, rounds, began = torch.ones(1, device=device), 0, time.monotonic()
        while bool(go_on.item()):
            for _ in range(5):
                dist.all_reduce(data)
            rounds += 5
            go_on.fill_(float(time.monotonic() - began < seconds))
            dist.broadcast(go_on, 0)  # rank 0 decides, so that all ranks stop in the same round
        took = time.monotonic() - began
        return 2 * (world - 1) / world * size * 4 * rounds / took / 1e9
    finally:
        dist.destroy_process_group()


def interface_with_address(address: str) -> str:
    """Returns the network interface of this machine that has the address; "" if none has."""
    import fcntl
    import socket
    import struct

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        for _, name in socket.if_nameindex():
            try:
                reply = fcntl.ioctl(any_socket, 0x8915, struct.pack("256s", name.encode()[:15]))
            except OSError:
                continue
            if socket.inet_ntoa(reply[20:24]) == address:
                return name
    return ""


def start(words: list[str]) -> None:
    """Runs `main` with the packages of this machine's Python, which the agent otherwise does not load."""
    import site

    site.main()
    sys.exit(main(words))
