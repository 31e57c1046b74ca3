"""Measures how long the tests of a node take, as `headway node test` and the tests after a repair run them: with 8 GPUs that are
SIMULATED on the CPU. Ends with 1 if they take longer than `make gpu-proof` allows on real GPUs."""

from __future__ import annotations

import statistics
import sys
import time

from bench_cluster import BenchCluster, bench_cluster

MOST_S = 90.0  # the limit of node/gpu_proof
RUNS = 3
SPEC = "name: bench\nplan: h100-8\nnodes: 1\n"


def seconds(at: BenchCluster, *flags: str) -> float:
    """Returns the seconds of one test of the node."""
    began = time.perf_counter()
    at.headway("node", "test", "bench-1-1", *flags)
    return time.perf_counter() - began


def main() -> None:
    with bench_cluster(SPEC) as at:
        at.headway("apply", str(at.spec), "--yes")
        checks = [seconds(at) for _ in range(RUNS)]
        hard = [seconds(at, "--hard") for _ in range(RUNS)]
    for what, took in (("checks", checks), ("checks, memory, load and copies", hard)):
        print(
            f"{what} of a node with 8 GPUs (SIMULATED): {statistics.median(took):.1f} s (of {RUNS}; most {max(took):.1f} s)"
        )
    if max(hard) > MOST_S:
        sys.exit(f"bench: the tests of a node took {max(hard):.1f} s, which exceeds {MOST_S:.0f} s")


if __name__ == "__main__":
    main()
