"""Measures what a container adds to the start of a step: the same step without a container and in a cached image,
alternately."""

from __future__ import annotations

import statistics
import sys
from typing import Final

from bench_cluster import USER, BenchCluster, bench_cluster

RUNS: Final = 15
MOST_S: Final = 0.2
# Builds an image with the node's own shell. An OCI layout needs no registry.
MAKE = """
set -eu
mkdir -p /scratch/bench/image/usr/bin; cd /scratch/bench/image; ln -s usr/bin bin
cp /bin/bash /bin/true usr/bin
for library in $(ldd /bin/bash | grep -o '/[^ ]*'); do mkdir -p .${library%/*}; cp $(readlink -f $library) .$library; done
cd ..; umoci init --layout oci; umoci new --image oci:bench; umoci insert --rootless --image oci:bench image / 2>/dev/null
"""
# Timed on the login node, so that the connection to it does not count.
TIME = """
for _ in $(seq $1); do
    for flags in "" "--container-image=oci:/scratch/bench/oci:bench"; do
        began=$(date +%s%N); srun -N1 -w bench-1-1 $flags /bin/true || exit 1; echo $((($(date +%s%N) - began) / 1000))
    done
done
"""


def measure(at: BenchCluster, runs: int) -> tuple[list[float], list[float]]:
    """Returns the seconds of each step: (without a container, in a container)."""
    words = at.headway("exec", "bench", "-u", USER, "--", "bash", "-c", TIME, "bench", str(runs)).split()
    took_s = [int(word) / 1e6 for word in words]
    return took_s[0::2], took_s[1::2]


def main() -> None:
    with bench_cluster() as at:
        at.headway("image", "build", "debian13", timeout_s=3600)
        at.headway("apply", str(at.spec), "--yes")
        at.headway("exec", "bench", "-u", USER, "--", "bash", "-c", MAKE)
        measure(at, 2)  # the first steps import the image and load files
        bare, boxed = measure(at, RUNS)
    more_s = statistics.median(boxed) - statistics.median(bare)
    print(
        f"a bare step: {statistics.median(bare):.3f} s (median of {RUNS}); in a cached image: {statistics.median(boxed):.3f} s"
    )
    print(f"a container adds: {more_s:+.3f} s (at most {MOST_S:+.1f} s)")
    sys.exit(more_s > MOST_S)


if __name__ == "__main__":
    main()
