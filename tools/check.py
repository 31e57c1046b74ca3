"""Runs the quick checks in parallel: style, types, import contracts, unit tests. Ends with pytest's own last line.

The output of a check is shown only when it fails; the tests' output is always shown, last."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
TIMEOUT_S = 300

CHECKS = {
    "style": ["ruff", "check", "--quiet", "."],
    "format": ["ruff", "format", "--check", "--quiet", "."],
    "imports": ["lint-imports"],
    "types": ["mypy"],
}
# One worker for each core; an idle worker takes tests from another. More than eight would only take longer to start.
WORKERS = ["-n", "auto", "--maxprocesses", "8", "--dist", "worksteal"]
UNUSED = ["-p", "no:schemathesis", "-p", "no:playwright"]  # plugins for tests with a server; they are slow to import
# A test that waits for ever ends its worker, which names the test; the slowest takes about two seconds.
HANGING = ["-o", "faulthandler_timeout=60"]
# Compiled modules are kept, also where the environment says that none are written: each worker and each program that a test
# starts would compile all modules again, a fifth of the time.
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
TESTS = ["python", "-m", "pytest", "--hypothesis-profile=quick", *WORKERS, *UNUSED, *HANGING, "tests/unit"]


@dataclass(frozen=True)
class Ended:
    """How one check ended."""

    name: str
    code: int
    output: str
    seconds: float


def run(name: str, argv: list[str]) -> Ended:
    """Runs one check and returns its exit code and output."""
    began = time.monotonic()
    try:
        ran = subprocess.run(
            [str(BIN / argv[0]), *argv[1:]],
            cwd=ROOT,
            env=ENVIRONMENT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        code, output = ran.returncode, ran.stdout
    except subprocess.TimeoutExpired as error:
        said = bytes(error.stdout or b"").decode(errors="replace")  # bytes, although text=True
        code, output = 124, f"{said}\ntook longer than {TIMEOUT_S} s"
    return Ended(name, code, output, time.monotonic() - began)


def main() -> int:
    # Two threads: one runs the other checks in turn, one the tests, which use every core.
    with ThreadPoolExecutor(max_workers=2) as pool:
        tests = pool.submit(run, "tests", TESTS)
        others = [pool.submit(run, name, argv) for name, argv in CHECKS.items()]
        failed = False
        for check in others:
            ended = check.result()
            failed |= bool(ended.code)
            print(f"{ended.name:<8} {'FAILED' if ended.code else 'ok':<7} {ended.seconds:5.1f} s", flush=True)
            if ended.code:
                print(ended.output.rstrip(), flush=True)
        ended = tests.result()
    print(f"{'tests':<8} {'FAILED' if ended.code else 'ok':<7} {ended.seconds:5.1f} s")
    print(ended.output.rstrip())
    return 1 if failed or ended.code else 0


if __name__ == "__main__":
    sys.exit(main())
