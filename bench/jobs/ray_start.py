"""Measures how long `headway run --launcher ray` takes until Ray is ready on 4 nodes, from the start of the job's batch
script to the start of its command.

The command then connects to Ray and counts its nodes. The first round, which reads Ray's files from the disk, is shown apart.
--wheels names a folder with the wheels of Ray for the machines' Python; without it they are downloaded."""

from __future__ import annotations

import argparse
import re
import statistics
import subprocess
import sys
from pathlib import Path

from bench_cluster import USER, BenchCluster, bench_cluster

PACKAGES = "ray[default]==2.60.0"
PYTHON = "313"  # of the image debian13
NODES = 4
VENV = f"/scratch/{USER}/ray"
# The launcher writes this file at the start of the batch script.
READY = """\
import os, time
ready = time.time() - os.stat("hostfile." + os.environ["SLURM_JOB_ID"]).st_mtime
import ray
ray.init(log_to_driver=False, logging_level="error")
print("ready", round(ready, 2), "nodes", sum(node["Alive"] for node in ray.nodes()))
"""


def install(at: BenchCluster, wheels: Path) -> None:
    """Makes a venv with Ray on the storage that all nodes see."""
    if not list(wheels.glob("ray-*.whl")):
        fetch = ["pip", "download", "--quiet", "--python-version", PYTHON, "--only-binary=:all:", "--dest", str(wheels)]
        subprocess.run([sys.executable, "-m", *fetch, PACKAGES], check=True, timeout=3600, stderr=subprocess.DEVNULL)
    subprocess.run(
        ["podman", "cp", str(wheels), f"{at.container('bench-head')}:/scratch/wheels"], check=True, timeout=600
    )
    at.headway("exec", "bench", "--", "chmod", "-R", "a+rX", "/scratch/wheels")
    at.headway("exec", "bench", "-u", USER, "--", "python3", "-m", "venv", VENV)
    pip = [f"{VENV}/bin/pip", "install", "--quiet", "--no-index", "--find-links", "/scratch/wheels", PACKAGES]
    at.headway("exec", "bench", "-u", USER, "--", *pip)


def round_s(at: BenchCluster, folder: Path) -> float:
    """Runs a job and returns the seconds until Ray was ready."""
    words = ["--as", USER, "--nodes", str(NODES), "--gpus", "8", "--launcher", "ray", "--folder", str(folder)]
    told = at.headway("run", "bench", *words, "--", f"{VENV}/bin/python", "ready.py")
    found = re.search(r"batch job (\d+)", told)
    log = at.headway("logs", "bench", "-f", found[1] if found else "")
    said = re.search(rf"^ready (\S+) nodes {NODES}$", log, re.MULTILINE)
    if said is None:
        raise SystemExit(f"bench: Ray did not start on {NODES} nodes\n{log}")
    return float(said[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="rounds after the first")
    parser.add_argument("--wheels", type=Path, help="folder with the wheels of Ray")
    asked = parser.parse_args()
    with bench_cluster() as at:
        at.headway("image", "build", "debian13", timeout_s=3600)
        at.headway("apply", str(at.spec), "--yes")
        install(at, asked.wheels or at.folder / "wheels")
        files = at.folder / "files"
        files.mkdir()
        (files / "ready.py").write_text(READY)
        first, *rest = (round_s(at, files) for _ in range(asked.rounds + 1))
    print(
        f"Ray ready on {NODES} nodes: {statistics.median(rest):.1f} s ({min(rest):.1f} to {max(rest):.1f}), first {first:.1f} s"
    )


if __name__ == "__main__":
    main()
