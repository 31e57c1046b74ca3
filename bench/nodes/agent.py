"""Measures the cost of a node's agent for its trainings: how long a scrape takes, its memory, its share of a core.

The node has 8 simulated GPUs that a job holds and keeps busy. The head scrapes it, as Prometheus does. Goals: <= 10 ms
(the second slowest of a hundred), <= 40 MB resident, <= 1 % of a core."""

from __future__ import annotations

import re
import sys
import time

from bench_cluster import USER, BenchCluster, bench_cluster

SPEC = f"name: bench\nplan: h100-8\nnodes: 1\nteams:\n  lab: {{users: [{USER}]}}\n"
URL = "http://bench-1-1:6822/metrics"
SCRAPES = 100
SETTLE_S, OVER_S = 20.0, 60.0
GOALS = {"scrape": 10.0, "memory": 40.0, "core": 1.0}


def head(bench: BenchCluster, *argv: str) -> str:
    """Runs a command on the head and returns its output."""
    return bench.headway("exec", "bench", "--", *argv)


def figure(bench: BenchCluster, name: str) -> float:
    """Returns one metric of the node's agent."""
    found = re.search(rf"^{name} (\S+)$", head(bench, "curl", "-s", URL), re.MULTILINE)
    if found is None:
        sys.exit(f"bench: the agent does not tell {name}")
    return float(found[1])


def scrapes(bench: BenchCluster) -> list[float]:
    """Returns the milliseconds of SCRAPES scrapes, the fastest first."""
    argv = ["curl", "-s", "-o", "/dev/null", "-w", "%{time_total}\\n", f"{URL}?[1-{SCRAPES}]"]
    return sorted(1000 * float(line) for line in head(bench, *argv).split())


def main() -> int:
    with bench_cluster(SPEC) as bench:
        bench.headway("apply", str(bench.spec), "--yes")
        burn = ["sbatch", "--gpus-per-node=8", "-o", "/dev/null", "--wrap=timeout 200 sh -c 'while :; do :; done'"]
        bench.headway("exec", "bench", "-u", USER, "--", *burn)
        time.sleep(SETTLE_S)
        gpus = head(bench, "curl", "-s", URL).count("DCGM_FI_DEV_GPU_UTIL{")
        if gpus != 8:
            sys.exit(f"bench: the agent tells of {gpus} GPUs")
        began, before = time.monotonic(), figure(bench, "process_cpu_seconds_total")
        times = scrapes(bench)
        time.sleep(OVER_S)
        after, took = figure(bench, "process_cpu_seconds_total"), time.monotonic() - began
        memory_mb = figure(bench, "process_resident_memory_bytes") / 1e6
    got = {"scrape": times[-2], "memory": memory_mb, "core": 100 * (after - before) / took}
    print(f"scrape of 8 GPUs   {got['scrape']:6.1f} ms   (middle {times[len(times) // 2]:.1f} ms)   goal <= 10")
    print(f"resident           {got['memory']:6.1f} MB                      goal <= 40")
    print(f"of one core        {got['core']:6.2f} %                       goal <= 1")
    return 0 if all(got[name] <= goal for name, goal in GOALS.items()) else 1


if __name__ == "__main__":
    sys.exit(main())
