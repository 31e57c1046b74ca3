"""Measures the time from nothing to the output of a four-node GPU step: `headway apply` against a minimal script
(minimal_bringup.sh).

Both use the same node image, which is built before the clock starts, and the same podman options. Rounds alternate; the
ratio is between the medians."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from bench_cluster import BenchCluster, bench_cluster

FLOOR = Path(__file__).with_name("minimal_bringup.sh")


def ours(at: BenchCluster) -> float:
    """Returns the seconds of `headway apply` and a GPU step."""
    began = time.perf_counter()
    at.headway("apply", str(at.spec), "--yes")
    at.gpu_step()
    took = time.perf_counter() - began
    at.headway("down", "bench", "--yes", "--delete-data")
    return took


def floor(at: BenchCluster, image: str) -> float:
    """Returns the seconds that minimal_bringup.sh takes for the same."""
    # the options that the provider found to work on this host
    found = json.loads((at.state / "podman.json").read_text())
    env = {**os.environ, "PODMAN": " ".join(["podman", *found["runtime"]]), "LIMITS": " ".join(found["limits"])}
    ran = subprocess.run([str(FLOOR), image], env=env, capture_output=True, text=True, timeout=600, check=False)
    if ran.returncode:
        sys.exit(f"bench: minimal_bringup.sh ended with {ran.returncode}\n{ran.stdout}{ran.stderr}")
    return float(ran.stdout.split("seconds:")[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    with bench_cluster() as at:
        image = json.loads(at.headway("image", "build", "debian13", "-o", "json", timeout_s=3600))["tag"]
        at.headway("server", "start")
        ours(at)  # determines podman's options, and warms the disk's cache for both
        pairs = []
        for number in range(1, rounds + 1):
            pairs.append((floor(at, image), ours(at)))
            print(f"round {number}: floor {pairs[-1][0]:.2f} s, headway {pairs[-1][1]:.2f} s", flush=True)
    by_hand, by_headway = (statistics.median(column) for column in zip(*pairs, strict=True))
    print(f"floor:   {by_hand:.2f} s (median of {rounds})")
    print(f"headway: {by_headway:.2f} s")
    print(f"ratio: {by_headway / by_hand:.2f}")


if __name__ == "__main__":
    main()
