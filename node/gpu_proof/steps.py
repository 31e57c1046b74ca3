"""The steps of `make gpu-proof`. Each yields its results; none changes the machine, but for packages that it may install."""

from __future__ import annotations

import os
import resource
import threading
import time
from collections.abc import Callable, Iterator, Mapping

from agent.checks import gpu_checks, host_settings
from agent.checks.runner import BAD, CHECKS, MachineReading, run_every_check
from agent.gpu import gpu_metrics
from agent.gpu.nvml import Nvml
from agent.node_tests.allreduce import interface_with_address
from agent.node_tests.command import GPU_TESTS, GpuTests, run_dcgm, run_gpu_tests, run_guarded
from agent.node_tests.nccl import Nccl, nccl_all_reduce
from agent.node_tests.results import NodeTestResult, NodeTestSkipped
from gpu_proof.machine import Proof
from gpu_proof.report import ReportLine
from gpu_proof.slurm_steps import run_slurm
from gpu_proof.training import run_rlhf, run_training

_READS = 50
_TESTS_S = 90.0  # the longest time that the tests of a node may take
_COST_S = 20.0  # seconds that the agent's cost is measured
_READ_EVERY_S = 1.0  # as the agent does


def read_metrics(proof: Proof) -> Iterator[ReportLine]:
    """Reads all metrics of all GPUs, and names those that this driver does not have."""
    gpus = proof.source.read()
    lost = [gpu.index for gpu in gpus if gpu.lost]
    yield ReportLine(
        "GPUs answer", "FAILED" if lost or not gpus else "ok", f"{len(gpus)} GPUs" + (f", lost {lost}" if lost else "")
    )
    for gpu in gpus[:1]:
        missing = sorted(name for name in gpu_metrics.FIELDS if name not in gpu.figures)
        shown = ", ".join(
            f"{name.removeprefix('DCGM_FI_DEV_')} {value:g}" for name, value in sorted(gpu.figures.items())
        )
        yield ReportLine("metrics of the first GPU", "ok" if gpu.figures else "FAILED", shown)
        yield ReportLine("metrics it does not have", "ok", ", ".join(missing) or "none")
    took = []
    for _ in range(_READS):
        began = time.perf_counter()
        proof.source.read()
        took.append(time.perf_counter() - began)
    yield ReportLine(
        "one reading of all GPUs", "ok", f"{1000 * sorted(took)[len(took) // 2]:.1f} ms (median of {_READS})"
    )


def read_errors(proof: Proof) -> Iterator[ReportLine]:
    """Reads the counters of errors and registers for XID events."""
    for gpu in proof.source.read():
        counters = (
            gpu_metrics.SBE,
            gpu_metrics.DBE,
            gpu_metrics.ROWS_BAD,
            gpu_metrics.ROWS_WEAK,
            gpu_metrics.ROWS_PENDING,
        )
        known = {name: gpu.figures[name] for name in counters if name in gpu.figures}
        text = ", ".join(f"{name.removeprefix('DCGM_FI_DEV_')} {value:g}" for name, value in known.items())
        yield ReportLine(
            f"error counters of GPU {gpu.index}", "ok" if known else "not run", text or "ECC is off or unknown"
        )
    if isinstance(proof.source, Nvml):
        try:
            event = proof.source.wait_for_event()(100)
            yield ReportLine(
                "XID events by NVML", "ok", f"an event waits: {event}" if event else "registered, none waits"
            )
        except OSError as error:
            yield ReportLine("XID events by NVML", "FAILED", str(error))
    else:
        yield ReportLine("XID events by NVML", "not run", "the GPUs are simulated")
    readable = os.access("/dev/kmsg", os.R_OK)
    yield ReportLine(
        "kernel log", "ok" if readable else "not run", "/dev/kmsg is readable" if readable else "/dev/kmsg is not"
    )


def run_checks(proof: Proof) -> Iterator[ReportLine]:
    """Runs the agent's checks of GPUs and of host settings once."""
    now = time.monotonic()
    state = MachineReading(proof.config, now=now, started=now - 3600)
    state.gpus, state.gpus_at = proof.source.read(), now
    of_gpus = [check for check in CHECKS if check.name in {**vars(gpu_checks), **vars(host_settings)}]
    for row in run_every_check(state, of_gpus):
        yield ReportLine(row["check"], "FAILED" if row["state"] == BAD else "ok", row["reason"])


def run_node_tests(proof: Proof) -> Iterator[ReportLine]:
    """Runs the tests that a node passes before it returns to service."""
    began = time.monotonic()
    for result in run_gpu_tests(GPU_TESTS, proof.config, proof.source, proof.seconds, library=proof.library):
        yield _result(result)
    for result in run_dcgm(proof.config):
        yield _result(result)
    yield duration_result(time.monotonic() - began)


def duration_result(took_s: float) -> ReportLine:
    """Returns whether the tests of a node took longer than they may."""
    fits = took_s <= _TESTS_S
    text = f"{took_s:.1f} s, {'within' if fits else 'which exceeds'} the limit of {_TESTS_S:.0f} s"
    return ReportLine("all tests of the node", "ok" if fits else "FAILED", text)


def run_nccl(proof: Proof) -> Iterator[ReportLine]:
    """Sums over all GPUs of this machine with NCCL."""

    def measure() -> NodeTestResult:
        if proof.config.simulated:
            raise NodeTestSkipped("the GPUs are simulated")
        os.environ.setdefault("NCCL_SOCKET_IFNAME", interface_with_address("127.0.0.1"))
        nccl, devices = Nccl(), GpuTests(proof.config, proof.seconds, library=proof.library).open_devices()
        rate = nccl_all_reduce(nccl, devices, ["127.0.0.1"], 0, proof.seconds)
        return NodeTestResult("allreduce", True, False, round(rate, 1), f"GB/s over {len(devices)} GPUs")

    yield _result(run_guarded("allreduce", proof.config, measure))


def measure_agent(proof: Proof) -> Iterator[ReportLine]:
    """Measures what reading the GPUs each second costs, and how much it slows a burn."""
    rates = []
    for reads in (False, True):
        stop, used = threading.Event(), [0.0]
        reader = threading.Thread(target=_read_until, args=(proof, stop, used), daemon=True)
        if reads:
            reader.start()
        seconds = 1.0 if proof.config.simulated else _COST_S
        (burn,) = run_gpu_tests(("burn",), proof.config, None, seconds, library=proof.library)
        stop.set()
        if reads:
            reader.join(10)
        rates.append(burn.figure or 0.0)
        if not burn.ok:
            yield _result(burn)
            return
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
    change = 100 * (rates[1] - rates[0]) / rates[0] if rates[0] else 0.0
    yield ReportLine("burn with readings each second", "ok", f"{rates[1]:.4g} TFLOP/s, {change:+.2f} % against none")
    yield ReportLine("CPU time of one reading", "ok", f"{1000 * used[0]:.2f} ms, so {100 * used[0]:.2f} % of one core")
    yield ReportLine("largest resident size", "ok", f"{resident:.0f} MB, with the tests in the same process")


def _read_until(proof: Proof, stop: threading.Event, used: list[float]) -> None:
    """Reads the GPUs each second until `stop`; used[0] is the mean CPU time of one reading in seconds."""
    reads, spent = 0, 0.0
    while not stop.wait(_READ_EVERY_S if reads else 0.0):
        began = time.thread_time()
        proof.source.read()
        spent, reads = spent + time.thread_time() - began, reads + 1
        used[0] = spent / reads


def _result(test: NodeTestResult) -> ReportLine:
    if test.skipped:
        return ReportLine(test.test, "not run", test.reason)
    figure = f"{test.figure:g} {test.unit}" if test.figure is not None else ""
    return ReportLine(
        test.test, "ok" if test.ok else "FAILED", " ".join(part for part in (figure, test.reason) if part)
    )


STEPS: Mapping[str, Callable[[Proof], Iterator[ReportLine]]] = {
    "metrics": read_metrics,
    "errors": read_errors,
    "checks": run_checks,
    "tests": run_node_tests,
    "nccl": run_nccl,
    "agent": measure_agent,
    "slurm": run_slurm,
    "training": run_training,
    "rlhf": run_rlhf,
}
