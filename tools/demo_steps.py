"""Shared by the demos: runs the same commands that a user would type, shows each, and prints how long each step
took."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
HEADWAY = ROOT / ".venv" / "bin" / "headway"
CLUSTER = "demo"
STEP = re.compile(r"^step (\d+) loss (\d+\.\d+|nan|inf)")
_COLOURS = sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


class StageError(Exception):
    """A command failed, or an awaited event did not come; the message says what to do."""


def dim(text: str) -> str:
    return f"\x1b[2m{text}\x1b[0m" if _COLOURS else text


def bold(text: str) -> str:
    return f"\x1b[1m{text}\x1b[0m" if _COLOURS else text


def shown(argv: Sequence[str]) -> str:
    """Returns a command as a user would type it."""
    return " ".join(f"'{word}'" if re.search(r"[\s*?$]", word) else word for word in argv)


class Steps:
    """The steps and their seconds, in order."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.seconds: list[tuple[str, float]] = []

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Measures a step and prints its seconds."""
        began = time.monotonic()
        yield
        took = time.monotonic() - began
        self.seconds.append((name, took))
        print(dim(f"  {name}: {took:.1f} s"), flush=True)

    def line(self) -> str:
        """Returns all steps with their seconds as one line."""
        parts = [f"{name} {took:.1f}" for name, took in self.seconds]
        return f"seconds: {' · '.join(parts)} · in all {time.monotonic() - self.began:.1f}"


def headway(*argv: str, show: bool = True, timeout_s: float = 900) -> str:
    """Runs `headway ...` and returns its standard output, which is also printed as it comes unless `show` is False.
    Raises StageError."""
    if show:
        print(bold(f"$ headway {shown(argv)}"), flush=True)
    lines: list[str] = []

    def keep(line: str) -> None:
        lines.append(line)
        if show:
            print(line, end="", flush=True)

    follow(argv, keep, timeout_s=timeout_s)
    return "".join(lines)


def follow(argv: Sequence[str], on_line: Callable[[str], None], *, timeout_s: float) -> None:
    """Runs `headway ...` and passes each line of its output to `on_line`. Raises StageError when it fails or takes too
    long."""
    deadline = time.monotonic() + timeout_s
    with subprocess.Popen(
        [str(HEADWAY), *argv], cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, errors="replace"
    ) as process:
        try:
            assert process.stdout is not None
            for line in process.stdout:
                on_line(line)
                if time.monotonic() > deadline:
                    raise StageError(f"headway {shown(argv)} took longer than {timeout_s:.0f} s")
            code = process.wait(timeout=60)
        except BaseException:
            process.kill()
            raise
    if code:
        raise StageError(f"headway {shown(argv)} ended with {code}")


def ask(*argv: str) -> Any:
    """Returns the answer of a command with -o json; prints nothing."""
    return json.loads(headway(*argv, "-o", "json", show=False, timeout_s=120))


def submit(*script_args: str) -> int:
    """Copies the examples to the user's home on the cluster, submits the training there, and returns the job's
    number."""
    headway("cp", "-q", "-r", "examples", f"{CLUSTER}:")
    output = headway("submit", CLUSTER, "--chdir", "examples", "examples/train_ddp.sbatch", *script_args)
    found = re.search(r"Submitted batch job (\d+)", output)
    if found is None:
        raise StageError(f"the submission printed no job id: {output.strip()!r}")
    return int(found.group(1))


def how_to_call() -> str:
    """Returns what to type so that `headway` is found; "" if it is found."""
    found = shutil.which("headway")
    if found and Path(found).resolve() == HEADWAY.resolve():
        return ""
    return f"headway on your path: source {HEADWAY.parent.relative_to(ROOT)}/activate"
