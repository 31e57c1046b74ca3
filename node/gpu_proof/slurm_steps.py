"""The step "slurm": a one-node Slurm with this machine's GPUs, the isolation of the devices of jobs, the agent, and a training
that is killed and continued from its checkpoint as a job."""

from __future__ import annotations

import contextlib
import glob
import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from agent.gpu import gpu_metrics
from agent.metrics.http_endpoint import PORT as METRICS_PORT
from agent.node_tests.allreduce import address_of_interface
from agent.roles.node import SOCKET
from gpu_proof.machine import Proof
from gpu_proof.one_node_slurm import OneNodeSlurm, SlurmFailed, missing_programs
from gpu_proof.packages import install_packages
from gpu_proof.report import ReportLine
from gpu_proof.training import EVERY, KILL_AFTER, MODEL, ROOT, TRAIN_STEPS, ranks, reason_to_skip, torchrun

_LAUNCHER = ROOT / "node/programs/rank_launcher.py"
_LONGEST_S = 420.0
_AGENT_S = 30.0
_RUN = "/run/headway"  # the agent's files
# A device file without a driver (SIMULATED) gives another error than one that the cgroup denies.
_OPENS = """
import json, os
found = {"open": [], "denied": [], "visible": os.environ.get("CUDA_VISIBLE_DEVICES", "")}
for path in %r:
    try:
        os.close(os.open(path, os.O_RDWR))
    except PermissionError:
        found["denied"].append(path)
        continue
    except OSError:
        pass
    found["open"].append(path)
print(json.dumps(found))
"""


def run_slurm(proof: Proof) -> Iterator[ReportLine]:
    """Runs all checks of the one-node Slurm. What can't run is "not run" with the reason."""
    if os.geteuid():
        yield ReportLine("one-node Slurm", "not run", "skipped: it needs root, for cgroups and device files")
        return
    if not any(address_of_interface(name) for _, name in socket.if_nameindex() if name != "lo"):
        yield ReportLine(
            "one-node Slurm", "not run", "skipped: Slurm's daemons need an address besides that of loopback"
        )
        return
    try:
        if proof.packages is not None and missing_programs():
            yield ReportLine("packages", "ok", f"installed: {install_packages(proof.packages)}")
        if missing := missing_programs():
            text = f"skipped: not installed: {', '.join(missing)} (--packages FOLDER, or --install)"
            yield ReportLine("one-node Slurm", "not run", text)
            return
        devices = gpu_devices(proof)
        if len(devices) != proof.config.gpus:
            text = f"{len(devices)} device files, {proof.config.gpus} GPUs by NVML"
            yield ReportLine("GPUs for Slurm", "FAILED", text)
            return
        began = time.monotonic()
        with OneNodeSlurm(devices) as slurm:
            ready = f"Slurm {slurm.version()} with gpu:{len(devices)}, ready in {time.monotonic() - began:.1f} s"
            yield ReportLine("one-node Slurm", "ok", ready)
            yield from check_gpus_of_jobs(slurm)
            with contextlib.ExitStack() as stack:
                agent = Agent(proof, slurm.folder)
                yield agent.start(stack)
                yield from train_as_job(proof, slurm, agent)
    except SlurmFailed as error:
        yield ReportLine("one-node Slurm", "FAILED", str(error))


def gpu_devices(proof: Proof) -> list[str]:
    """Returns the device files of the GPUs, as NVML numbers them."""
    if proof.config.simulated:
        folder = os.environ.get("HEADWAY_SIMULATED_DEVICES", "/dev")
        return sorted(glob.glob(f"{folder}/nvidia[0-9]*"))
    return [path for gpu in proof.source.read() if os.path.exists(path := f"/dev/nvidia{gpu.index}")]


def check_gpus_of_jobs(slurm: OneNodeSlurm) -> Iterator[ReportLine]:
    """Runs jobs with one GPU, with all and with none, and compares the device files that they can open."""
    everything = list(slurm.devices)
    code = _OPENS % (everything,)
    jobs = {"a job with one GPU": 1, "a job without GPUs": 0}
    if len(everything) > 1:
        jobs["a job with all GPUs"] = len(everything)
    for what, count in jobs.items():
        request = [f"--gres=gpu:{count}"] if count else []
        found = json.loads(slurm.run("srun", *request, sys.executable, "-c", code))
        visible = found["visible"].split(",") if found["visible"] else []
        text = f"CUDA_VISIBLE_DEVICES={found['visible'] or 'unset'}"
        if not slurm.isolates:
            yield ReportLine(what, "ok" if len(visible) == count else "FAILED", text)
            continue
        text = f"may open {len(found['open'])} of {len(everything)} GPUs, {text}"
        apart = len(found["open"]) == count and len(found["denied"]) == len(everything) - count
        yield ReportLine(what, "ok" if apart and len(visible) == count else "FAILED", text)
    if not slurm.isolates:
        yield ReportLine("isolation of devices", "not run", f"skipped: slurmd can't use cgroups here: {slurm.why_not}")


@dataclass
class Agent:
    """The agent of a node on this machine, with its metrics. `why_not`: why it does not run."""

    proof: Proof
    folder: Path
    why_not: str = ""
    _process: subprocess.Popen[bytes] | None = None
    _cpu_s: float = 0.0
    _began: float = 0.0

    def start(self, stack: contextlib.ExitStack) -> ReportLine:
        """Starts the agent until the end of `stack`, and returns whether its metrics name all GPUs."""
        if os.path.exists(SOCKET):
            self.why_not = "an agent of Headway runs on this machine already"
            return ReportLine("agent", "not run", f"skipped: {self.why_not}")
        config = self.proof.config
        if not os.path.exists(_RUN):
            stack.callback(shutil.rmtree, _RUN, ignore_errors=True)
        path = self.folder / "agent.json"
        own = {"head": "127.0.0.1", "simulated": config.simulated, "gpus": config.gpus, "product": config.product}
        path.write_text(json.dumps(own))
        env = {**os.environ, "PYTHONPATH": str(ROOT / "node")}
        with (self.folder / "agent.out").open("wb") as out:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "agent", "node", str(path)], env=env, stdout=out, stderr=subprocess.STDOUT
            )
        stack.callback(self._end)
        ends = time.monotonic() + _AGENT_S
        while time.monotonic() < ends and self._process.poll() is None:
            if (found := self._gpus_in_metrics()) == config.gpus:
                return ReportLine("agent", "ok", f"its metrics name {found} GPUs")
            time.sleep(0.2)
        self.why_not = (self.folder / "agent.out").read_text(errors="replace").strip().rpartition("\n")[2][:300]
        return ReportLine(
            "agent", "FAILED", f"no metrics of {config.gpus} GPUs within {_AGENT_S:.0f} s: {self.why_not}"
        )

    def begin_cost(self) -> None:
        """Begins the measurement of what the agent costs."""
        self._cpu_s, self._began = self._used_cpu_s(), time.monotonic()

    def cost(self, what: str) -> ReportLine:
        """Returns what the agent has cost since `begin_cost`."""
        if self._process is None or self._process.poll() is not None:
            return ReportLine(what, "not run", f"skipped: {self.why_not or 'the agent has ended'}")
        share = 100 * (self._used_cpu_s() - self._cpu_s) / max(time.monotonic() - self._began, 1e-9)
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        resident = re.search(r"^VmRSS:\s+(\d+)", status, re.MULTILINE)
        mb = int(resident[1]) * 1024 / 1e6 if resident else 0
        return ReportLine(what, "ok", f"{share:.2f} % of one core, {mb:.0f} MB resident")

    def _used_cpu_s(self) -> float:
        if self._process is None:
            return 0.0
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def _gpus_in_metrics(self) -> int:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{METRICS_PORT}/metrics", timeout=5) as answer:
                text = answer.read().decode()
        except OSError:
            return 0
        return len(set(re.findall(rf'^{gpu_metrics.FB_USED}{{[^}}]*\bgpu="(\d+)"', text, re.MULTILINE)))

    def _end(self) -> None:
        assert self._process is not None
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        with contextlib.suppress(OSError):
            os.unlink(SOCKET)  # of an agent that was killed


def train_as_job(proof: Proof, slurm: OneNodeSlurm, agent: Agent) -> Iterator[ReportLine]:
    """Trains examples/train_fsdp.py as a batch job with the launcher of `headway run`; kills it by a requeue; lets it end."""
    if reason := reason_to_skip(proof, ()):
        yield ReportLine("training as a job", "not run", reason)
        return
    job = TrainingJob(proof, slurm)
    agent.begin_cost()
    number = job.submit()
    first = job.until_step(KILL_AFTER)
    yield first
    if first.state == "FAILED":
        return
    slurm.run("scontrol", "requeue", str(number))
    job.forget()
    yield job.until_end()
    found = re.search(r"continues after step (\d+)", job.log)
    yield ReportLine(
        "continues as a job", "ok" if found else "FAILED", found[0] if found else "it began at its first step"
    )
    yield agent.cost("agent during the training")


@dataclass
class TrainingJob:
    """The batch job, its log, and the power of the GPUs while it runs."""

    proof: Proof
    slurm: OneNodeSlurm
    number: int = 0
    _read: int = 0  # bytes of the log that belong to earlier runs
    _watts: list[float] = field(default_factory=list)
    _began: float = 0.0

    @property
    def log(self) -> str:
        """What the current run has written."""
        path = self.slurm.folder / "training.log"
        return path.read_bytes()[self._read :].decode(errors="replace") if path.exists() else ""

    def submit(self) -> int:
        """Submits the job and returns its number."""
        folder = self.slurm.folder
        size = "" if self.proof.config.simulated else MODEL
        words = ["train_fsdp.py", "--steps", str(TRAIN_STEPS), "--checkpoint-dir", str(folder / "checkpoints")]
        words += f"{size} {EVERY}".split()
        command = shlex.join([str(_LAUNCHER), "task", "--", *torchrun(ranks(self.proof), words)])
        script = f"""#!/bin/bash
#SBATCH --requeue --open-mode=append --time=30
export PYTHONPATH={shlex.quote(str(ROOT / "node/train"))} PYTHONUNBUFFERED=1
eval "$({sys.executable} {_LAUNCHER} job)"
srun --ntasks=1 {sys.executable} {command}
"""
        options = [f"--gres=gpu:{len(self.slurm.devices)}", f"--chdir={ROOT / 'examples'}"]
        options += [f"--output={folder}/training.log", f"--cpus-per-task={os.cpu_count()}"]
        self.number = int(self.slurm.run("sbatch", "--parsable", *options, stdin=script).split(";")[0])
        self._began = time.monotonic()
        return self.number

    def forget(self) -> None:
        """Counts what is in the log as that of an earlier run."""
        path = self.slurm.folder / "training.log"
        self._read, self._watts, self._began = path.stat().st_size, [], time.monotonic()

    def until_step(self, step: int) -> ReportLine:
        """Waits until the training has logged a step."""
        return self._watch("training as a job until it is killed", lambda: self._steps()[-1:] >= [step])

    def until_end(self) -> ReportLine:
        """Waits for the end of the job."""
        return self._watch("training as a job again", lambda: self.slurm.job(self.number, "JobState") == "COMPLETED")

    def _steps(self) -> list[int]:
        return [int(step) for step in re.findall(r"^step (\d+) ", self.log, re.MULTILINE)]

    def _watch(self, what: str, done: Callable[[], bool]) -> ReportLine:
        ends = time.monotonic() + _LONGEST_S
        while not done():
            state = self.slurm.job(self.number, "JobState")
            if state in ("FAILED", "TIMEOUT", "NODE_FAIL", "CANCELLED", "OUT_OF_MEMORY") or (
                state == "COMPLETED" and not done()
            ):
                lines = [line for line in self.log.splitlines() if line.strip() and not line.startswith("srun: ")]
                last = lines[-1].strip() if lines else "it wrote nothing"
                return ReportLine(what, "FAILED", f"the job is {state}: {last[:300]}")
            if time.monotonic() > ends:
                return ReportLine(what, "FAILED", f"the job is {state} after {_LONGEST_S:.0f} s")
            if state == "PENDING":  # a requeued job otherwise waits two minutes
                with contextlib.suppress(SlurmFailed):
                    self.slurm.run("scontrol", "update", f"JobId={self.number}", "StartTime=now")
            self._read_power()
            time.sleep(1.0)
        lines = re.findall(r"^step (\d+) (loss .*)", self.log, re.MULTILINE)
        if not lines:
            return ReportLine(what, "FAILED", "it has logged no step")
        watts = f", {sum(self._watts) / len(self._watts):.0f} W per GPU" if self._watts else ""
        step, figures = lines[-1]
        return ReportLine(what, "ok", f"step {step}, {figures}{watts}, {time.monotonic() - self._began:.0f} s")

    def _read_power(self) -> None:
        watts = [gpu.figures.get(gpu_metrics.POWER, 0.0) for gpu in self.proof.source.read()]
        if watts:
            self._watts.append(sum(watts) / len(watts))
