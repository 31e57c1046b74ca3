"""Measures `headway apply` of a running four-node cluster whose file has not changed. It must change nothing: no daemon
restarts."""

from __future__ import annotations

import statistics
import time

from bench_cluster import BenchCluster, bench_cluster

RUNS = 7
DAEMONS = ["pidof", "slurmctld", "slurmdbd", "slurmrestd", "mariadbd", "munged"]


def seconds(at: BenchCluster) -> float:
    """Returns the seconds of one `headway apply`."""
    began = time.perf_counter()
    at.headway("apply", str(at.spec), "--yes")
    return time.perf_counter() - began


def main() -> None:
    with bench_cluster() as at:
        at.headway("image", "build", "debian13", timeout_s=3600)
        at.headway("server", "start")
        first = seconds(at)
        before = at.headway("exec", "bench", "--", *DAEMONS)
        took = [seconds(at) for _ in range(RUNS)]
        assert at.headway("exec", "bench", "--", *DAEMONS) == before, "a no-op apply restarted a daemon"
    median = statistics.median(took)
    print(f"no-op apply, 4 nodes: {median:.2f} s (median of {RUNS}; best {min(took):.2f} s)")
    print(f"the apply that made them: {first:.2f} s")
    print(f"ratio: {median / first:.3f}")


if __name__ == "__main__":
    main()
