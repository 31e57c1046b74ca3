"""Measures the memory of the server with two clusters: resident set of its own process, and the proportional set of it with
the processes that it started (a poller for each cluster)."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path

from bench_cluster import HEADWAY, BenchCluster, bench_cluster
from server.server_requests import resident_mb

ONE_NODE = "name: {name}\nplan: h100-8\nnodes: 1\nteams:\n  lab: {{users: [bench]}}\n"
SETTLE_S = 30.0  # readings, pages and reports have run a few times by then


def tree(pid: int) -> list[int]:
    """Returns the process and all processes below it."""
    listed = subprocess.run(["ps", "-e", "-o", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    parents = [tuple(map(int, line.split())) for line in listed.splitlines()]
    found = [pid]
    for one in found:
        found += [child for child, parent in parents if parent == one]
    return found


def proportional_mb(pid: int) -> float:
    """Returns the proportional memory of a process in MB (10^6 bytes): pages shared by n processes count 1/n; 0 for a
    process that has ended since it was listed."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return next((int(line.split()[1]) * 1024 / 1e6 for line in text.splitlines() if line.startswith("Pss:")), 0.0)


def measure(at: BenchCluster) -> None:
    """Applies two clusters, lets the server read them, and prints its memory."""
    other = at.folder / "other.yaml"
    other.write_text(ONE_NODE.format(name="other"))
    at.headway("apply", str(at.spec), "--yes")
    at.headway("apply", str(other), "--yes")
    try:
        for name in ("bench", "other"):
            at.headway("exec", name, "-u", "bench", "--", "srun", "hostname")
            at.headway("queue", name)
        report(at, "after the applies")
        at.headway("server", "stop")
        at.headway("server", "start")
        at.headway("queue", "bench")
        at.headway("queue", "other")
        report(at, "after a restart")
    finally:
        argv = [str(HEADWAY), "down", "other", "--yes", "--delete-data"]
        subprocess.run(argv, env=at.env, capture_output=True, timeout=300, check=False)


def report(at: BenchCluster, when: str) -> None:
    """Prints the memory of the server and its processes."""
    time.sleep(SETTLE_S)
    pid = int(json.loads(at.headway("server", "status", "-o", "json"))["pid"])
    below = tree(pid)
    total = sum(proportional_mb(one) for one in below)
    print(
        f"server with two clusters {when}: {resident_mb(pid):.0f} MB resident; with its {len(below) - 1} processes {total:.0f} MB"
    )


def main() -> None:
    with bench_cluster(ONE_NODE.format(name="bench")) as at:
        measure(at)


if __name__ == "__main__":
    main()
