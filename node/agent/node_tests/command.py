"""Active tests of an idle node, run before it returns to service.

    agent.pyz test NAME [--json] [--seconds S] [--expect JSON]       NAME: checks, memory, burn, copy, upload, peer, dcgm, all
    agent.pyz test all|dcgm --dcgm-level 2                           with NVIDIA's longer diagnostic, about two minutes
    agent.pyz test allreduce --peers ADDRESS,ADDRESS,... --rank N    on all these nodes at the same time; one address: between
                                                                     the GPUs of that node
    agent.pyz test rdma --peers ADDRESS,ADDRESS --rank N             RDMA ports between two nodes; nothing where neither has any
    agent.pyz test fabric                                            takes part in all-reduces that standard input names

Each test prints one line; the exit status is 0 when none failed. Figures are compared with what the plan expects of a
healthy node. A test whose library or hardware is missing is skipped, with the reason, and fails no node. Where GPUs are
simulated, a stand-in for the driver does the same work on the CPU: results must be right, figures are only printed, and
the line is marked SIMULATED."""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict

from agent.checks.kernel_log_reader import KernelLog, kernel_line
from agent.checks.runner import BAD, FOLDER, UNFIT, MachineReading, run_every_check
from agent.config import PATH, Config, load_config
from agent.gpu import gpu_metrics
from agent.gpu.gpu_source import Gpu, GpuSource
from agent.gpu.gpu_source_choice import open_source
from agent.gpu.job_gpus import jobs_on_node
from agent.munge import Munge
from agent.node_tests.allreduce import load_gloo, run_allreduce_test
from agent.node_tests.burn import run_burn_test
from agent.node_tests.copies import run_copy_test, run_peer_copy_test, run_upload_test
from agent.node_tests.cuda_driver import LIBRARY, SIMULATED_LIBRARY, CudaDevice, CudaDriver
from agent.node_tests.dcgm import LEVEL, LONG_LEVEL, run_dcgm_test
from agent.node_tests.dcgm import PROGRAM as DCGMI
from agent.node_tests.end_on_job_start import gives_way_to_jobs
from agent.node_tests.fabric_member import take_part
from agent.node_tests.memory import run_memory_test
from agent.node_tests.nccl import Nccl
from agent.node_tests.rdma import NoRdmaPorts, Port, active_ports, run_rdma_test
from agent.node_tests.results import NodeTestFailed, NodeTestResult, NodeTestSkipped, result_of_error

GPU_TESTS = ("memory", "burn", "copy", "upload", "peer")
NAMES = ("checks", *GPU_TESTS, "dcgm", "allreduce", "rdma", "fabric", "all")
_SIMULATED_S = 0.5  # the longest time that one figure is measured where GPUs are simulated
_LONG_AGO_S = 3600.0
_PROLOG_S = 90.0  # the slowest check of the prolog runs every 30 s, or twice 15 s apart, and may take 20 s


def main(words: list[str]) -> int:
    """Runs the test that the arguments name, prints a line for each result, and returns the exit status: 0 when none
    failed."""
    ask = argparse.ArgumentParser("agent.pyz test")
    ask.add_argument("name", choices=NAMES)
    ask.add_argument("--json", action="store_true")
    ask.add_argument("--seconds", type=float, default=5.0, help="how long one figure is measured")
    ask.add_argument("--expect", type=json.loads, default={}, help="figures that replace the plan's")
    ask.add_argument("--peers", type=lambda text: text.split(","), default=[])
    ask.add_argument("--rank", type=int, default=0)
    ask.add_argument("--dcgm-level", type=int, choices=(LEVEL, LONG_LEVEL), default=LEVEL)
    ask.add_argument("--config", default=PATH)
    arguments = ask.parse_args(words)
    config = load_config(arguments.config)
    config.expects.update(arguments.expect)
    if arguments.name == "fabric":
        for line in take_part(config, lambda: prepare_allreduce(config, arguments.seconds)):
            print(line, flush=True)
        return 0
    fine = True
    for result in run_tests(config, arguments):
        fine = fine and result.ok
        print(json.dumps(asdict(result)) if arguments.json else result.line(), flush=True)
    return 0 if fine else 1


def run_tests(config: Config, arguments: argparse.Namespace) -> Iterator[NodeTestResult]:
    """Yields the results of the tests that the arguments ask for."""
    source = open_source(config)
    name = str(arguments.name)
    fit = False
    if name in ("checks", "all"):
        fit = True
        for result in run_all_checks(config, source):
            fit = fit and result.ok
            yield result
    if name == "all":
        yield from run_gpu_tests(GPU_TESTS, config, source, arguments.seconds)
        yield from run_dcgm(config, arguments.dcgm_level)
    elif name == "dcgm":
        yield from run_dcgm(config, arguments.dcgm_level)
    elif name == "allreduce":
        run = GpuTests(config, arguments.seconds, peers=arguments.peers, rank=arguments.rank).run
        yield run_guarded(name, config, lambda: run(name))
    elif name == "rdma":
        with contextlib.suppress(NoRdmaPorts):
            yield run_guarded(name, config, lambda: measure_rdma(arguments, active_ports()))
    elif name in GPU_TESTS:
        yield from run_gpu_tests((name,), config, source, arguments.seconds)
    if fit and (why := wait_until_prolog_accepts()):
        yield NodeTestResult("prolog", False, reason=f"it would turn jobs away: {why}")


def wait_until_prolog_accepts(unfit: str = f"{FOLDER}/{UNFIT}", patience_s: float = _PROLOG_S) -> str:
    """Waits until the running agent, too, has seen that its checks pass. Returns why the prolog still turns jobs away, ""
    if it does not.

    The tests look at a repaired node before the agent's next round does. A node that returned to service in between
    would turn its first job away, and Slurm would drain it."""
    ends = time.monotonic() + patience_s
    while True:
        try:
            with open(unfit) as file:
                reason = file.read().strip()
        except FileNotFoundError:
            return ""
        if time.monotonic() >= ends:
            return reason
        time.sleep(0.2)


def prepare_allreduce(config: Config, seconds: float) -> Callable[[list[str], int], NodeTestResult]:
    """Loads what an all-reduce needs, and returns the function that measures one. Raises NodeTestSkipped where it is not
    installed."""
    tests = GpuTests(config, seconds)
    tests.prepare_allreduce()
    return lambda peers, rank: run_guarded("allreduce", config, lambda: tests.measure_allreduce(peers, rank))


def run_gpu_tests(
    names: Sequence[str], config: Config, source: GpuSource | None, seconds: float, *, library: str = ""
) -> Iterator[NodeTestResult]:
    """Yields the results of these tests of the node's GPUs; none on a node without GPUs. `library` as in GpuTests."""
    tests = GpuTests(config, seconds, library=library)
    for name in names if config.gpus else ():
        broken = device_errors(name, source)
        if broken:
            yield NodeTestResult(name, False, config.simulated, reason=broken)
        else:
            yield run_guarded(name, config, lambda name=name: tests.run(name))


def run_dcgm(config: Config, level: int = LEVEL) -> Iterator[NodeTestResult]:
    """Yields the result of NVIDIA's diagnostic; none on a node without GPUs, and where GPUs are simulated unless dcgmi is
    installed."""
    if not config.gpus or (config.simulated and not shutil.which(DCGMI)):
        return

    def measure() -> NodeTestResult:
        if config.mig:
            raise NodeTestSkipped("the GPUs of this node are divided into MIG instances")
        passed, settings = run_dcgm_test(level)
        return NodeTestResult("dcgm", True, config.simulated, float(passed), "tests passed", reason=settings)

    yield run_guarded("dcgm", config, measure)


def measure_rdma(arguments: argparse.Namespace, ports: Mapping[str, Port]) -> NodeTestResult:
    """Measures the RDMA ports between two nodes. Raises as run_rdma_test."""
    with gives_way_to_jobs():
        figure, count, skipped = run_rdma_test(arguments.peers, arguments.rank, arguments.seconds, ports)
    unit = "Gbit/s by RDMA" if count == 1 else f"Gbit/s by RDMA, the slowest of {count} ports"
    return NodeTestResult("rdma", True, False, float(f"{figure:.4g}"), unit, reason=skipped)


def run_all_checks(config: Config, source: GpuSource | None) -> Iterator[NodeTestResult]:
    """Yields the result of every check of the agent, run once. A warning counts as passed."""
    for row in run_every_check(read_machine(config, source)):
        shown = config.simulated and row["check"].startswith("gpu_")
        yield NodeTestResult(row["check"], row["state"] != BAD, shown, reason=row["reason"])


def read_machine(config: Config, source: GpuSource | None) -> MachineReading:
    """Returns the state of this machine as the checks need it, read now."""
    from agent.checks.kernel_log_errors import is_kernel_error
    from agent.checks.runner import Process
    from agent.metrics.sampler import GpuReader
    from agent.processes import list_processes

    now = time.monotonic()
    seen = MachineReading(config, now=now, started=now - _LONG_AGO_S, jobs=jobs_on_node())
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


def device_errors(name: str, source: GpuSource | None) -> str:
    """Returns what the driver reports against the GPUs in the test `name`; "" if nothing."""
    found: list[Gpu] = source.read() if source else []
    for device in found:
        if device.lost:
            return f"GPU {device.index} does not answer"
        if name == "memory" and device.figures.get(gpu_metrics.DBE):
            return f"GPU {device.index} had {device.figures[gpu_metrics.DBE]:.0f} uncorrected memory errors"
        if name == "burn" and int(device.figures.get(gpu_metrics.THROTTLE, 0)) & 0xE8:
            return f"GPU {device.index} is throttled"
    return ""


def run_guarded(name: str, config: Config, run: Callable[[], NodeTestResult]) -> NodeTestResult:
    """Returns the result of `run`, compared with what the plan expects. An exception other than NoRdmaPorts becomes a
    skipped or failed result."""
    try:
        return run().compare()
    except NoRdmaPorts:
        raise
    except Exception as error:
        return result_of_error(name, config.simulated, error)


class GpuTests:
    """The tests that compute on the node's GPUs. The driver is opened by the first of them. `library`: the driver's
    library, "" for the one that this machine has."""

    def __init__(
        self, config: Config, seconds: float, *, peers: Sequence[str] = (), rank: int = 0, library: str = ""
    ) -> None:
        self._config = config
        self._seconds = min(seconds, _SIMULATED_S) if config.simulated else seconds
        self._peers, self._rank = list(peers), rank
        self._library = library or (SIMULATED_LIBRARY if config.simulated else LIBRARY)
        self._devices: list[CudaDevice] = []

    def run(self, name: str) -> NodeTestResult:
        """Runs one test. Raises NodeTestFailed, NodeTestSkipped, or CudaError from the driver."""
        if name == "allreduce":
            with gives_way_to_jobs():
                return self.measure_allreduce(self._peers, self._rank)
        devices = self.open_devices()
        if name == "memory":
            return self._outcome(name, run_memory_test(devices), "MiB per GPU", "")
        if name == "burn":
            rate, tensor = run_burn_test(devices, self._seconds)
            return self._outcome(
                name, rate, "TFLOP/s" if tensor else "TFLOP/s float32", "burn_tflops" if tensor else ""
            )
        if name == "copy":
            return self._outcome(name, run_copy_test(devices, self._seconds), "GB/s", "copy_gb_s")
        if name == "upload":
            return self._outcome(name, run_upload_test(devices, self._seconds), "GB/s", "upload_gb_s")
        rate, pair = run_peer_copy_test(devices, self._seconds)
        return self._outcome(name, rate, f"GB/s from {pair}", "peer_gb_s")

    def prepare_allreduce(self) -> None:
        """Opens the GPUs, or loads torch where they are simulated. Raises NodeTestSkipped where that is not possible."""
        if self._config.simulated or not self._config.gpus:
            load_gloo()
        else:
            self.open_devices()
            Nccl()

    def measure_allreduce(self, peers: list[str], rank: int) -> NodeTestResult:
        """Runs one all-reduce. Raises NodeTestFailed, NodeTestSkipped, or CudaError from the driver."""
        devices = [] if self._config.simulated or not self._config.gpus else self.open_devices()
        rate = run_allreduce_test(self._config, devices, peers, rank, self._seconds)
        return self._outcome("allreduce", rate, "GB/s", "allreduce_gb_s")

    def open_devices(self) -> list[CudaDevice]:
        """Returns the node's GPUs. Raises NodeTestSkipped where the driver's library is missing, or GPUs are divided, and
        NodeTestFailed when CUDA finds fewer GPUs than the node has."""
        if self._config.mig:  # CUDA lets a process use one instance only
            raise NodeTestSkipped("the GPUs of this node are divided into MIG instances")
        if not self._devices:
            try:
                self._devices = CudaDriver(self._library).devices()
            except OSError as error:
                raise NodeTestSkipped(f"the CUDA driver library is not installed on this node ({error})") from None
        if len(self._devices) < self._config.gpus:
            raise NodeTestFailed(f"CUDA finds {len(self._devices)} GPUs, {self._config.gpus} expected")
        return self._devices

    def _outcome(self, test: str, figure: float, unit: str, expected: str) -> NodeTestResult:
        least = self._config.expects.get(expected) if expected and not self._config.simulated else None
        return NodeTestResult(test, True, self._config.simulated, float(f"{figure:.4g}"), unit, least)


def start_tests(words: list[str]) -> None:
    """Runs `main`. The all-reduce may need torch, so it gets the packages of this machine's Python, which the agent
    otherwise does not load."""
    if "allreduce" in words or "fabric" in words:
        import site

        site.main()
    sys.exit(main(words))
