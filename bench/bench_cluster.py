"""Gives a measurement its own Headway: a temporary state folder and the real command; everything is removed at the
end."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from headway.paths import instance_label

HEADWAY = Path(sys.executable).with_name("headway")
USER = "bench"
SPEC = f"""\
name: bench
plan: h100-8
nodes: 4
teams:
  lab: {{users: [{USER}]}}
"""
GPU_STEP = ["srun", "--nodes=4", "--gres=gpu:8", "--mem=100", "printenv", "CUDA_VISIBLE_DEVICES"]


@dataclass(frozen=True)
class BenchCluster:
    """A state folder and the cluster file of the cluster "bench". `sources`: the src folder of a copy of Headway that runs
    instead of this checkout."""

    folder: Path
    text: str = SPEC
    sources: Path | None = None

    @property
    def state(self) -> Path:
        return self.folder / "state"

    @property
    def env(self) -> dict[str, str]:
        """Returns the environment for `headway`, with a state folder of its own."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("HEADWAY_")}
        own = {"HEADWAY_STATE": self.state, "XDG_CONFIG_HOME": self.folder / "config", "HEADWAY_PORT": 0}
        copy = {"PYTHONPATH": str(self.sources)} if self.sources else {}
        return {**kept, **{name: str(value) for name, value in own.items()}, **copy}

    @property
    def spec(self) -> Path:
        """Writes the cluster file and returns its path."""
        file = self.folder / "bench.yaml"
        file.write_text(self.text)
        return file

    def tried(self, *argv: str, timeout_s: float = 900) -> subprocess.CompletedProcess[str]:
        """Runs `headway ...` and returns how it ended."""
        return subprocess.run(
            [str(HEADWAY), *argv], env=self.env, capture_output=True, text=True, timeout=timeout_s,
            stdin=subprocess.DEVNULL, check=False,
        )  # fmt: skip

    def headway(self, *argv: str, timeout_s: float = 900) -> str:
        """Runs `headway ...` and returns its standard output. Exits with its messages when it fails."""
        ran = self.tried(*argv, timeout_s=timeout_s)
        if ran.returncode:
            sys.exit(f"bench: headway {' '.join(argv)} ended with {ran.returncode}\n{ran.stdout}{ran.stderr}")
        return ran.stdout

    def container(self, machine: str) -> str:
        """Returns the podman container of a machine. Exits if it does not run."""
        wanted = {
            "headway.instance": instance_label(self.state),
            "headway.cluster": "bench",
            "headway.machine": machine,
        }
        filters = [word for name, value in wanted.items() for word in ("--filter", f"label={name}={value}")]
        argv = ["podman", "ps", "--quiet", *filters]
        found = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True).stdout.split()
        if len(found) != 1:
            sys.exit(f"bench: {machine} has {len(found)} machines on this host")
        return found[0]

    def gpu_step(self) -> None:
        """Runs a step on all GPUs of four nodes, and exits if a node did not see its eight GPUs."""
        seen = self.headway("exec", "bench", "-u", USER, "--", *GPU_STEP).split()
        if seen != ["0,1,2,3,4,5,6,7"] * 4:
            sys.exit(f"bench: the step saw {seen}")


@contextmanager
def bench_cluster(text: str = SPEC, sources: Path | None = None) -> Iterator[BenchCluster]:
    """Yields a BenchCluster, and always removes its cluster and server afterwards. `text`: the cluster file, for a
    cluster named bench."""
    made = BenchCluster(Path(tempfile.mkdtemp(prefix="headway-bench-", dir="/var/tmp")), text, sources)
    try:
        yield made
    finally:
        for argv in (["down", "bench", "--yes", "--delete-data"], ["server", "stop"]):
            subprocess.run([str(HEADWAY), *argv], env=made.env, capture_output=True, timeout=300, check=False)
        shutil.rmtree(made.folder, ignore_errors=True)
