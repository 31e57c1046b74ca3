"""Measures `headway whatif`: a day of made-up jobs through the real slurmctld, on a cluster of 100 nodes or of 10,000. Prints
the seconds of the whole replay, of its start, and how many virtual seconds pass in one. Needs root, podman and the node image.

    python bench whatif 100 --jobs 1000
    python bench whatif 10000 --jobs 20000"""

from __future__ import annotations

import argparse
import asyncio
import random
import time
from dataclasses import dataclass
from math import ceil

from headway.catalog.plans import load_catalogue
from headway.clusterfile.load import resolve_cluster_file
from headway.domain.cluster import Cluster
from headway.whatif.container import Progress, run_replay
from headway.whatif.trace import Trace, TraceJob, check_trace

BEGIN, DAY_S, LONGEST_S = 1_795_000_000, 86_400, 6 * 3600
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f"
TEAMS = {f"team{n}": {"users": [f"user{n}a", f"user{n}b"], "share": 10 * n} for n in range(1, 6)}


@dataclass
class Clock:
    """Real seconds since the start, and when the first progress came."""

    began: float
    first: float = 0.0

    def __call__(self, progress: Progress) -> None:
        self.first = self.first or time.monotonic() - self.began
        print(f"\r{time.monotonic() - self.began:6.0f} s: hour {progress.virtual_s / 3600:.1f}", end="", flush=True)


def cluster_of(nodes: int) -> Cluster:
    """Returns a cluster of this many nodes with eight GPUs, and five teams."""
    hosts = [{"address": f"10.{n >> 16}.{n >> 8 & 255}.{n & 255}"} for n in range(1, nodes + 2)]
    spec = {
        "name": "bench",
        "provider": "ssh",
        "plan": "h100-8",
        "nodes": nodes,
        "teams": TEAMS,
        "ssh_keys": [KEY],
        "hosts": hosts,
    }
    return resolve_cluster_file(spec, load_catalogue(), owner="owner")[0]


def day_of(cluster: Cluster, jobs: int, load: float) -> Trace:
    """Returns jobs of one day that would fill this part of all GPUs. Most are small; sizes and lengths are skewed as those of
    published traces."""
    rng, nodes = random.Random(1), len(cluster.slot_names)
    made = []
    for number in range(jobs):
        team = rng.choice(sorted(TEAMS))
        size = min(nodes // 4, ceil(rng.paretovariate(1.2))) if rng.random() < 0.3 else 1
        gpus = 8 if size > 1 else rng.choice((1, 1, 2, 4, 8))
        made.append((team, size, gpus, rng.lognormvariate(0, 1.5), rng.random() * DAY_S, number))
    scale = load * nodes * 8 * DAY_S / sum(size * gpus * length for _, size, gpus, length, _, _ in made)
    found = []
    for team, size, gpus, length, at, number in made:
        run_s = min(LONGEST_S, 10 + int(scale * length))
        user = f"user{team[4:]}{rng.choice('ab')}"
        limit_min = ceil(run_s * rng.uniform(1.1, 4) / 60)
        found.append(
            TraceJob(str(number), user, team, BEGIN + int(at), size, 4 * gpus, run_s, gpus=gpus, limit_min=limit_min)
        )
    return check_trace(found, cluster)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("nodes", type=int, nargs="?", default=100)
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--load", type=float, default=0.8, help="part of all GPUs that the jobs would fill")
    options = parser.parse_args()
    cluster = cluster_of(options.nodes)
    trace = day_of(cluster, options.jobs, options.load)
    clock = Clock(time.monotonic())
    outcome = asyncio.run(run_replay(cluster, trace, clock))
    took = time.monotonic() - clock.began
    virtual = max(run.end for run in outcome.runs) - trace.first
    waits = sorted(run.wait_s for run in outcome.runs)
    print(f"\r{options.nodes:,} nodes, {options.jobs:,} jobs of a day: {took:.1f} s, of them {clock.first:.1f} s to start; "
          f"{virtual / max(0.1, took - clock.first):,.0f} virtual seconds a second")  # fmt: skip
    print(
        f"{len(outcome.runs):,} runs; median wait {waits[len(waits) // 2]:.0f} s, p90 {waits[len(waits) * 9 // 10]:.0f} s"
    )


if __name__ == "__main__":
    main()
