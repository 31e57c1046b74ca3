"""The steps "training" and "rlhf": the examples on the machine's GPUs. Each training is killed and continued from its
checkpoint, with its power and MFU."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from agent.gpu import gpu_metrics
from agent.gpu.gpu_source import GpuSource
from gpu_proof.machine import Proof, torch_version
from gpu_proof.report import ReportLine

ROOT = Path(__file__).resolve().parents[2]
# Each example with the packages that it needs in addition to torch.
_TRAININGS = {
    "train_fsdp.py": (),
    "train_deepspeed.py": ("deepspeed", "transformers"),
    "train_accelerate.py": ("accelerate", "transformers"),
    "train_lightning.py": ("lightning", "transformers"),
}
_RLHF = ("sft", "reward", "policy")
MODEL = "--width 2048 --layers 16 --heads 16 --context 1024 --batch 8"
EVERY = "--log-every 5 --checkpoint-every 10"
TRAIN_STEPS = 40
KILL_AFTER = 20  # a training is killed once it has logged this step
_LONGEST_S = 420.0


def run_training(proof: Proof) -> Iterator[ReportLine]:
    """Trains each example with torchrun, kills it with SIGKILL, starts it again, and compares."""
    for script, packages in _TRAININGS.items():
        what = script.removesuffix(".py")
        if reason := reason_to_skip(proof, packages):
            yield ReportLine(what, "not run", reason)
            continue
        with tempfile.TemporaryDirectory() as folder:
            size = "" if proof.config.simulated else MODEL
            words = [script, "--steps", str(TRAIN_STEPS), "--checkpoint-dir", folder, *f"{size} {EVERY}".split()]
            argv = torchrun(ranks(proof), words)
            first = Training(argv, proof.source, kill_after=KILL_AFTER)
            yield first.result(f"{what} until it is killed")
            again = Training(argv, proof.source)
            yield again.result(f"{what} again")
            found = re.search(r"continues after step (\d+)", again.log)
            text = found[0] if found else "it began at its first step"
            yield ReportLine(f"{what} continues", "ok" if found else "FAILED", text)


def run_rlhf(proof: Proof) -> Iterator[ReportLine]:
    """Runs the training steps of examples/rlhf.yaml one after another, each on all GPUs."""
    if reason := reason_to_skip(proof, ("trl", "datasets", "transformers")):
        yield ReportLine("rlhf", "not run", reason)
        return
    with tempfile.TemporaryDirectory() as folder:
        for step in _RLHF:
            argv = torchrun(ranks(proof), ["rlhf.py", step, "--models", folder, "--width", "512"])
            result = Training(argv, proof.source).result(f"rlhf {step}")
            yield result
            if result.state == "FAILED":  # the next step needs its model
                return


def torchrun(ranks: int, words: Sequence[str], python: str = sys.executable) -> list[str]:
    """Returns the command that runs an example on this machine; `words` are its file name and its arguments."""
    return [python, "-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={ranks}", *words]


def ranks(proof: Proof) -> int:
    """Returns the number of processes of a training: one for each GPU."""
    return 1 if proof.config.simulated else proof.config.gpus


def reason_to_skip(proof: Proof, packages: Sequence[str]) -> str:
    """Returns why an example that needs these packages can't run here, "" if it can."""
    torch = torch_version()
    if torch == "none":
        return "skipped: this Python has no torch"
    if not proof.config.simulated and not torch.endswith("True"):
        return f"skipped: torch finds no CUDA: {torch}"
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    if missing:
        install = "pip install -r examples/requirements-llm.txt"
        return f"skipped: this Python has no {', '.join(missing)} ({install})"
    return ""


class Training:
    """One run of a training. `kill_after`: it is killed once it has logged this step; 0: it runs to its end."""

    def __init__(
        self, argv: Sequence[str], source: GpuSource, *, kill_after: int = 0, longest_s: float = _LONGEST_S
    ) -> None:
        self._source, self._kill_after, self._longest_s = source, kill_after, longest_s
        self._watts: list[float] = []
        self._killed = self._too_long = False
        self.log, self.ended = "", 0
        began = time.monotonic()
        self._run(argv)
        self.took = time.monotonic() - began

    def result(self, what: str) -> ReportLine:
        """Returns what the run showed. A training that was to be killed must not have ended before by itself."""
        lines = re.findall(r"^step (\d+) (loss .*)", self.log, re.MULTILINE)
        if self._too_long:
            return ReportLine(what, "FAILED", f"it did not end within {self._longest_s:g} s")
        if not lines or (not self._killed if self._kill_after else self.ended):
            last = self.log.strip().rpartition("\n")[2][:300]
            return ReportLine(what, "FAILED", f"it ended by itself with exit status {self.ended}: {last}")
        step, figures = lines[-1]
        watts = f", {sum(self._watts) / len(self._watts):.0f} W per GPU" if self._watts else ""
        return ReportLine(what, "ok", f"step {step}, {figures}{watts}, {self.took:.0f} s")

    def _run(self, argv: Sequence[str]) -> None:
        env = {**os.environ, "PYTHONPATH": str(ROOT / "node/train"), "PYTHONUNBUFFERED": "1"}
        process = subprocess.Popen(
            argv, cwd=ROOT / "examples", env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        stop = threading.Event()
        power = threading.Thread(target=self._read_power, args=(stop,), daemon=True)
        longest = threading.Timer(self._longest_s, self._end_long, (process.pid,))
        power.start()
        longest.start()
        assert process.stdout is not None
        try:
            for line in process.stdout:
                self.log += line
                step = re.match(r"step (\d+) ", line)
                if step and self._kill_after and int(step[1]) >= self._kill_after:
                    self._killed = True
                    _kill_tree(process.pid)
        finally:
            stop.set()
            longest.cancel()
            self.ended = process.wait()
            power.join(10)

    def _end_long(self, pid: int) -> None:
        self._too_long = True
        _kill_tree(pid)

    def _read_power(self, stop: threading.Event) -> None:
        while not stop.wait(1.0):
            watts = [gpu.figures.get(gpu_metrics.POWER, 0.0) for gpu in self._source.read()]
            if watts:
                self._watts.append(sum(watts) / len(watts))


def _kill_tree(pid: int) -> None:
    """Kills a process and all below it, as a power cut would. torchrun gives its ranks sessions of their own."""
    for one in (pid, *_below(pid)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(one, signal.SIGKILL)


def _below(pid: int) -> list[int]:
    """Returns the processes below a process."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(entry.name))
    found = list(children.get(pid, []))
    for one in found:
        found += children.get(one, [])
    return found
