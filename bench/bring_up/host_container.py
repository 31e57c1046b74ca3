"""Measures the time from bare machines to the output of a step on one node: `headway apply` on machines that run their node
image in a system container, against the same machines that are set up natively.

The machines are containers of plain Debian 13 with podman (or systemd-nspawn) on their own network; every run gets new ones.
The node image is built before the clock starts; the first run in a container also packs it for the hosts. Packages of
native machines come from the Debian mirror of this host. Runs alternate; the ratio is between the medians, and at most 1.3
is wanted."""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bench_cluster import BenchCluster, bench_cluster

sys.path.append(str(Path(__file__).parents[2]))  # the bare machines of the tests

if TYPE_CHECKING:
    from tests.cluster.providers.bare_machines import Bare

MOST: Final = 1.3
SYSTEM: Final = "debian13"
HEAD, NODE = 10, 11
PACKAGES: Final = {"podman": "podman,runc,nftables", "nspawn": "systemd-container,nftables"}
KINDS: Final = ("native", "container")


@contextmanager
def bare_machines(folder: Path, packages: str) -> Iterator[Bare]:
    """Yields two new bare machines, which answer SSH, and removes them afterwards."""
    from tests.cluster.providers.bare_machines import Bare

    bare = Bare(folder, SYSTEM, packages=packages)
    try:
        bare.up(HEAD, NODE)
        yield bare
    finally:
        bare.down()


def bring_up(at: BenchCluster, kind: str, packages: str) -> float:
    """Returns the seconds of `headway apply` and a step, with machines of this kind."""
    with bare_machines(at.folder / "bare", packages) as bare:
        spec = bare.spec("bench", (HEAD, NODE), "teams: {lab: {users: [bench]}}\n", host=f"run_in: {kind}")
        began = time.perf_counter()
        at.headway("apply", str(spec), "--yes", timeout_s=1800)
        said = at.headway("exec", "bench", "-u", "bench", "--", "srun", "hostname").strip()
        took = time.perf_counter() - began
        if said != "bench-1-1":
            sys.exit(f"bench: the step said {said}")
        at.headway("down", "bench", "--yes", "--delete-data")
    return took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--runtime", choices=list(PACKAGES), default="podman")
    given = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("bench: machines are made by podman: run this as root")
    packages = PACKAGES[given.runtime]
    with bench_cluster() as at:
        at.headway("image", "build", SYSTEM, "-o", "json", timeout_s=3600)
        at.headway("server", "start")
        rounds = []
        for number in range(1, given.rounds + 1):
            rounds.append([bring_up(at, kind, packages) for kind in KINDS])
            native_s, container_s = rounds[-1]
            print(f"round {number}: native {native_s:.1f} s, container {container_s:.1f} s", flush=True)
    native_s, container_s = (statistics.median(column) for column in zip(*rounds, strict=True))
    ratio = container_s / native_s
    print(f"native: {native_s:.1f} s (median of {given.rounds})")
    print(f"in a system container ({given.runtime}): {container_s:.1f} s")
    print(f"ratio: {ratio:.2f} (at most {MOST})")
    sys.exit(ratio > MOST)


if __name__ == "__main__":
    main()
