"""Measures the seconds of a fabric test of four nodes under two leaf switches: with a sound fabric, and with one node whose
link is limited by tc in the network namespace of its machine. Exits with an error if the slow node, and nothing else, is
not named."""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from typing import Any

from bench_cluster import BenchCluster, bench_cluster
from headway.paths import instance_label

SPEC = """\
name: bench
plan: h100-8
nodes: 4
fabric: {leaf_size: 2}
health: {act: false}
teams:
  lab: {users: [bench]}
"""
SLOW = "bench-2-1"
LIMIT = ("root", "tbf", "rate", "50mbit", "burst", "64kb", "latency", "200ms")


def limit_link(at: BenchCluster, node: str) -> None:
    """Limits what the node sends."""
    labels = {"instance": instance_label(at.state), "cluster": "bench", "machine": node}
    filters = [f"--filter=label=headway.{key}={value}" for key, value in labels.items()]
    row = json.loads(run("podman", "ps", "--format", "json", *filters))[0]
    run("nsenter", "-t", str(row["Pid"]), "-n", "tc", "qdisc", "add", "dev", "eth0", *LIMIT)


def run(*argv: str) -> str:
    """Runs a command and returns its output."""
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True).stdout


def fabric_test(at: BenchCluster, named: list[str]) -> float:
    """Returns the seconds of one test. Exits if it names anything else."""
    found: dict[str, Any] = json.loads(at.tried("test", "fabric", "bench", "-o", "json").stdout)
    if [finding["name"] for finding in found["findings"]] != named or found["skipped"]:
        sys.exit(f"bench: {named} expected, found {found['findings']} {found['skipped']}")
    return float(found["seconds"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    runs = parser.parse_args().runs
    with bench_cluster(SPEC) as at:
        at.headway("apply", str(at.spec), "--yes")
        sound = [fabric_test(at, []) for _ in range(runs)]
        limit_link(at, SLOW)
        slow = [fabric_test(at, [SLOW]) for _ in range(runs)]
    for what, seconds in (("sound fabric, nothing named", sound), (f"slow link of {SLOW}, named alone", slow)):
        print(f"{what}: median {statistics.median(seconds):.1f} s, most {max(seconds):.1f} s, of {runs}")


if __name__ == "__main__":
    main()
