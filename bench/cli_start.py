"""Measures how long `headway --help` takes, compared with starting Python. Prints median milliseconds and `ratio:
X`."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path

RUNS = 15
HELP = [str(Path(sys.executable).with_name("headway")), "--help"]
BARE = [sys.executable, "-c", "pass"]


def seconds(argv: list[str]) -> float:
    """Returns the seconds that the command takes."""
    start = time.perf_counter()
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def main() -> None:
    seconds(HELP)  # the first run writes bytecode
    pairs = [(seconds(HELP), seconds(BARE)) for _ in range(RUNS)]
    ours, bare = (statistics.median(column) for column in zip(*pairs, strict=True))
    print(f"headway --help: {ours * 1000:.0f} ms (median of {RUNS}; best {min(p[0] for p in pairs) * 1000:.0f} ms)")
    print(f"python -c pass: {bare * 1000:.0f} ms")
    print(f"ratio: {ours / bare:.2f}")


if __name__ == "__main__":
    main()
