"""Runs the quick checks in parallel: style, types, import contracts, unit tests. Ends with the numbers of tests.

The output of a check is shown only when it fails; the tests' output is always shown, last."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections import Counter
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
# Plugins for tests with a server, which are slow to import. Each part of the tests is a process without xdist, whose workers
# would all import all modules of tests: in a fresh clone as much work as a third of the tests themselves.
UNUSED = ["-p", "no:schemathesis", "-p", "no:playwright", "-p", "no:xdist"]
MOST_PARTS = 8  # with more processes the tests would only take longer to start
PROPERTY_CHARACTERS = 8000  # of other tests, which take about as long as one property with its examples
# A test that waits for ever ends its process, which names the test; the slowest takes about two seconds.
HANGING = ["-o", "faulthandler_timeout=60"]
# Compiled modules are kept, also where the environment says that none are written: each process and each program that a test
# starts would compile all modules again, a fifth of the time.
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
TESTS = ["python", "-m", "pytest", "--hypothesis-profile=quick", *UNUSED, *HANGING]


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


def parts_of_tests(count: int) -> list[list[str]]:
    """Returns the files of unit tests in `count` parts that take about as long as each other, from their texts alone."""
    parts: list[tuple[int, list[str]]] = [(0, []) for _ in range(count)]
    texts = {str(path.relative_to(ROOT)): path.read_text() for path in (ROOT / "tests/unit").rglob("test_*.py")}
    sizes = {path: len(text) + PROPERTY_CHARACTERS * text.count("@given(") for path, text in texts.items()}
    for path in sorted(sizes, key=lambda path: (-sizes[path], path)):
        place = min(range(count), key=lambda place: parts[place][0])
        size, files = parts[place]
        parts[place] = (size + sizes[path], [*files, path])
    return [sorted(files) for _, files in parts]


def summary(outputs: list[str]) -> str:
    """Returns the numbers of all parts of the tests: "5806 passed, 2 skipped"."""
    counts: Counter[str] = Counter()
    for output in outputs:
        for number, word in re.findall(
            r"(\d+) (passed|failed|skipped|errors?|warnings?)\b", output.rpartition("\n")[2]
        ):
            counts[word.removesuffix("s") if word.startswith(("error", "warning")) else word] += int(number)
    return ", ".join(f"{number} {word}" for word, number in counts.items())


def main() -> int:
    count = min(os.cpu_count() or 1, MOST_PARTS)
    # One thread runs the other checks in turn, the others a part of the tests each.
    with ThreadPoolExecutor(max_workers=count + 1) as pool:
        tests = [pool.submit(run, "tests", [*TESTS, *files]) for files in parts_of_tests(count)]
        others = [pool.submit(run, name, argv) for name, argv in CHECKS.items()]
        failed = False
        for check in others:
            ended = check.result()
            failed |= bool(ended.code)
            print(f"{ended.name:<8} {'FAILED' if ended.code else 'ok':<7} {ended.seconds:5.1f} s", flush=True)
            if ended.code:
                print(ended.output.rstrip(), flush=True)
        parts = [part.result() for part in tests]
    for ended in parts:
        failed |= bool(ended.code)
        print(f"{ended.name:<8} {'FAILED' if ended.code else 'ok':<7} {ended.seconds:5.1f} s")
        print(ended.output.rstrip())
    print(summary([ended.output.rstrip() for ended in parts]))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
