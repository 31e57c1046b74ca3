"""The quick checks, side by side: style, types, import contracts, unit tests. Ends with pytest's own closing line.

Each check's output is kept and shown only when it fails; the tests speak for themselves, last.
"""

from __future__ import annotations

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
# A worker a core; one that has run out of tests takes some from another. More than eight would only start up longer.
WORKERS = ["-n", "auto", "--maxprocesses", "8", "--dist", "worksteal"]
UNUSED = ["-p", "no:schemathesis", "-p", "no:playwright"]  # those of the tests with a server, slow to import
TESTS = ["python", "-m", "pytest", "--hypothesis-profile=quick", *WORKERS, *UNUSED, "tests/unit"]


@dataclass(frozen=True)
class Ended:
    name: str
    code: int
    output: str
    seconds: float


def run(name: str, argv: list[str]) -> Ended:
    """Runs one check to its end, with its output kept."""
    began = time.monotonic()
    try:
        ran = subprocess.run(
            [str(BIN / argv[0]), *argv[1:]],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        code, output = ran.returncode, ran.stdout
    except subprocess.TimeoutExpired as error:
        said = bytes(error.stdout or b"").decode(errors="replace")  # bytes, though text was asked for
        code, output = 124, f"{said}\ntook longer than {TIMEOUT_S} s"
    return Ended(name, code, output, time.monotonic() - began)


def main() -> int:
    # Two lanes: what is quick and the types one after the other, and the tests, which take every core there is.
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
