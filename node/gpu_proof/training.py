"""The step "training": a GPT on the machine's GPUs, killed and continued from its checkpoint, with its power and MFU."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from agent.gpu import interface
from agent.gpu.interface import Source
from gpu_proof.machine import Proof, torch_version
from gpu_proof.report import Result

ROOT = Path(__file__).resolve().parents[2]
_MODEL = "--width 2048 --layers 16 --heads 16 --context 1024 --batch 8"
_EVERY = "--log-every 5 --checkpoint-every 10"
_STEPS = 40
_KILL_AFTER = 20  # the training is killed once it has logged this step
_LONGEST_S = 420.0


def run_training(proof: Proof) -> Iterator[Result]:
    """Trains with torchrun, kills it with SIGKILL, starts it again, and compares."""
    torch = torch_version()
    if torch == "none":
        yield Result("training", "not run", "this Python has no torch")
        return
    if not proof.config.simulated and not torch.endswith("True"):
        yield Result("training", "not run", f"torch finds no CUDA: {torch}")
        return
    with tempfile.TemporaryDirectory() as folder:
        argv = _training_argv(proof, Path(folder))
        first = Training(argv, proof.source, kill_after=_KILL_AFTER)
        yield first.result("training until it is killed")
        again = Training(argv, proof.source)
        yield again.result("training again")
        found = re.search(r"continues after step (\d+)", again.log)
        text = found[0] if found else "it began at its first step"
        yield Result("it continues from its checkpoint", "ok" if found else "FAILED", text)


def _training_argv(proof: Proof, folder: Path) -> list[str]:
    """Returns the command that trains on all GPUs and keeps its checkpoints in the folder."""
    ranks = 1 if proof.config.simulated else proof.config.gpus
    size = "" if proof.config.simulated else _MODEL
    words = ["--steps", str(_STEPS), "--checkpoint-dir", str(folder), *f"{size} {_EVERY}".split()]
    return ["python3", "-m", "torch.distributed.run", f"--nproc_per_node={ranks}", "train_fsdp.py", *words]


class Training:
    """One run of a training. `kill_after`: it is killed once it has logged this step; 0: it runs to its end."""

    def __init__(
        self, argv: Sequence[str], source: Source, *, kill_after: int = 0, longest_s: float = _LONGEST_S
    ) -> None:
        self._source, self._kill_after, self._longest_s = source, kill_after, longest_s
        self._watts: list[float] = []
        self._killed = self._too_long = False
        self.log, self.ended = "", 0
        began = time.monotonic()
        self._run(argv)
        self.took = time.monotonic() - began

    def result(self, what: str) -> Result:
        """Returns what the run showed. A training that was to be killed must not have ended before by itself."""
        lines = re.findall(r"step (\d+) loss (\S+) (\S+) tokens/s(?: MFU (\S+))?", self.log)
        if self._too_long:
            return Result(what, "FAILED", f"it did not end within {self._longest_s:g} s")
        if not lines or (not self._killed if self._kill_after else self.ended):
            last = self.log.strip().rpartition("\n")[2][:300]
            return Result(what, "FAILED", f"it ended by itself with exit status {self.ended}: {last}")
        step, loss, rate, mfu = lines[-1]
        watts = f", {sum(self._watts) / len(self._watts):.0f} W per GPU" if self._watts else ""
        text = f"step {step}, loss {loss}, {rate} tokens/s{f', MFU {mfu}' if mfu else ''}{watts}, {self.took:.0f} s"
        return Result(what, "ok", text)

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
            watts = [gpu.figures.get(interface.POWER, 0.0) for gpu in self._source.read()]
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
