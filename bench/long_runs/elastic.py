"""Scales a cluster to random numbers of nodes under load, with a provider that sometimes fails: `python bench long_runs/elastic
--events 200 --seed 1`.

Jobs are submitted all the time. Each event scales the cluster to a number chosen by the seed. Before some events the
provider is made to fail once, to be slow, or to lose its answer; in some a node's machine is killed or reclaimed. It
ends with 1 when a job was lost, a machine exists that should not (a ghost), a node or an empty slot is stuck, an
incident stays open, or slurmctld was restarted. Then it prints the time until one node and until four nodes at once can
be used, compared with their machines' boot time, and how soon the job of a reclaimed machine runs again."""

from __future__ import annotations

import argparse
import base64
import json
import os
import random
import re
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from bench_cluster import BenchCluster, bench_cluster
from headway.schemas.submission.exec_commands import ExecIn
from headway.sdk.client import Client, connect

MOST = 4
SPEC = f"""\
name: bench
groups:
  work: {{plan: cpu-64, nodes: 1, max: {MOST}, spot: true}}
teams:
  lab: {{users: [bench]}}
"""
AT_ONCE = 6  # pending and running jobs
PATIENCE_S = 300.0
FAULTS = ("", "", "", "fail", "slow", "answer", "kill", "reclaim")
# A wrapper of podman, for `podman run` only: fails, is slow, or succeeds and reports a failure.
PODMAN = """\
#!/bin/bash
real={real} fault={fault}
if [[ " $* " == *" run "* ]] && mv "$fault" "$fault.$$" 2>/dev/null; then
    word=$(cat "$fault.$$"); rm -f "$fault.$$"
    case $word in
        fail) echo "Error: no capacity" >&2; exit 125 ;;
        slow) sleep 6 ;;
        answer) "$real" "$@" >/dev/null; echo "Error: connection lost" >&2; exit 125 ;;
    esac
fi
exec "$real" "$@"
"""
USED = ("idle", "mix", "alloc", "comp", "resv", "plnd")  # sinfo's states of a node that can be used
EMPTY = "headway: no machine"
OVER = ("returned", "false alarm")
_LINE = re.compile(r"^\s*([\d.]+)s\s+(\S+)\s+(.*)$", re.MULTILINE)


@dataclass
class Bench:
    """The cluster, the random generator, and the jobs that were submitted."""

    cluster: BenchCluster
    dice: random.Random
    jobs: list[int] = field(default_factory=list)
    _client: Client | None = None

    @property
    def client(self) -> Client:
        if self._client is None:
            self._client = connect(self.cluster.state)
        return self._client

    def head(self, *argv: str, user: str = "root") -> str:
        """Runs a command on the head and returns its output."""
        told = self.client.commands.exec("bench", ExecIn(argv=list(argv), user=user, stdin_b64=""))
        return base64.b64decode(told.stdout_b64).decode(errors="replace")

    def submit(self) -> None:
        """Submits jobs until AT_ONCE are in the queue."""
        there = len(self.head("squeue", "-h", "-o", "%A").split())
        for _ in range(AT_ONCE - there):
            wrap = "sleep 4; echo $SLURM_JOB_ID >> /scratch/bench/done"
            argv = ["sbatch", "--parsable", "--requeue", "-c", "24", "--mem=100", "-o", "/dev/null", f"--wrap={wrap}"]
            self.jobs.append(int(self.head(*argv, user="bench").strip()))

    def event(self, number: int) -> str:
        """Scales the cluster once, with or without a fault, and returns the result as text."""
        target, fault = self.dice.randint(0, MOST), self.dice.choice(FAULTS)
        self.submit()
        flag = self.cluster.folder / "fault"
        flag.unlink(missing_ok=True)
        if fault == "kill":
            self._one("kill-node")
        elif fault == "reclaim":
            self._one("reclaim", "--in", "15")
        elif fault:
            flag.write_text(fault)
        began = time.monotonic()
        ran = self.cluster.tried("scale", "bench", str(target), "--yes", "--deadline", "0")
        words = "done" if ran.returncode == 0 else ran.stderr.strip().splitlines()[-1][:100]
        print(f"{number:4}  to {target}  {fault or '-':7}  {time.monotonic() - began:5.1f} s  {words}", flush=True)
        return words

    def _one(self, kind: str, *more: str) -> None:
        nodes = [node for node in self.nodes() if node["role"] == "node" and node["machine"] == "running"]
        if nodes:
            self.cluster.tried("fault", "bench", kind, self.dice.choice(nodes)["name"], *more)

    def nodes(self) -> list[dict[str, Any]]:
        """Returns the machines as `headway nodes` lists them."""
        found: list[dict[str, Any]] = json.loads(self.cluster.headway("nodes", "bench", "-o", "json"))
        return found

    def stuck(self) -> list[str]:
        """Returns the nodes that can't be used, and empty slots whose reason in Slurm is not EMPTY."""
        rows = [
            line.split("|", 2) for line in self.head("sinfo", "-h", "-a", "-N", "-o", "%N|%t|%E").split("\n") if line
        ]
        return sorted({row[0] for row in rows if row[1] not in USED and row[2] != EMPTY})

    def incidents(self) -> list[str]:
        """Returns the open incidents."""
        found = json.loads(self.cluster.headway("incidents", "bench", "-o", "json"))
        return [f"{one['number']} {one['node']}: {one['state']}" for one in found if one["state"] not in OVER]

    def controller(self) -> str:
        """Returns slurmctld's pid and number of restarts."""
        return self.head("systemctl", "show", "-p", "MainPID", "-p", "NRestarts", "slurmctld")


def settle(bench: Bench, nodes: int) -> tuple[list[int], list[str], list[str], list[str]]:
    """Waits until everything has ended, and returns (lost jobs, ghosts, stuck nodes, open incidents)."""
    (bench.cluster.folder / "fault").unlink(missing_ok=True)
    ends = time.monotonic() + PATIENCE_S
    ghosts = stuck = unfinished = ["?"]
    while time.monotonic() < ends:
        bench.cluster.tried("scale", "bench", str(nodes), "--yes", "--deadline", "0")
        there = [node for node in bench.nodes() if node["role"] != "head"]
        ghosts = [node["name"] for node in there[nodes:]]
        stuck, unfinished = bench.stuck(), bench.incidents()
        if not (ghosts or stuck or unfinished or bench.head("squeue", "-h", "-o", "%A").split()):
            break
        time.sleep(3)
    done = set(bench.head("cat", "/scratch/bench/done").split())
    return [job for job in bench.jobs if str(job) not in done], ghosts, stuck, unfinished


def timed(bench: Bench, target: int, label: str) -> tuple[float, float]:
    """Scales up once, and returns the seconds until its machines answered and until its nodes could be used."""
    told = bench.cluster.headway("scale", "bench", str(target), "--yes")
    rows = [(float(at), what, text) for at, what, text in _LINE.findall(told)]
    made = min(at for at, _, text in rows if text == "machine is being created")
    up = max(at for at, _, text in rows if text == "machine is up") - made
    usable = max(at for at, what, _ in rows if what == "nodes") - made
    print(f"{label}: machine up after {up:.1f} s, node usable after {usable:.1f} s: {usable / up:.2f} x")
    return up, usable


def compared(one: tuple[float, float], four: tuple[float, float]) -> None:
    """Prints how much longer four nodes at once take than one: in all, the machines' boots alone, and the rest after
    the boot."""
    shares = (
        ("usable", one[1], four[1]),
        ("boots", one[0], four[0]),
        ("after boot", one[1] - one[0], four[1] - four[0]),
    )
    print(f"{MOST} at once against one: " + ", ".join(f"{what} {many / single:.2f} x" for what, single, many in shares))


def reclaimed(bench: Bench) -> None:
    """Reclaims a machine with a job, and prints how long it takes until the job runs on another one, which may have the
    same name."""
    job = bench.head("sbatch", "--parsable", "--requeue", "-o", "/dev/null", "--wrap=sleep 1000", user="bench").strip()
    node = _until(lambda: bench.head("squeue", "-h", "-j", job, "-t", "RUNNING", "-o", "%N").strip())
    known = {row["number"] for row in json.loads(bench.cluster.headway("incidents", "bench", "-o", "json"))}
    bench.cluster.headway("fault", "bench", "reclaim", node, "--in", "120")

    def over() -> Any:
        found = json.loads(bench.cluster.headway("incidents", "bench", "-o", "json"))
        new = [one for one in found if one["number"] not in known and one["times"]["running_s"] is not None]
        return next((one for one in new if one["state"] in OVER), None)

    told = _until(over)
    gone = next(step["at"] for step in told["steps"] if step["text"].startswith("returned to the provider"))
    print(
        f"reclaimed in 120 s: returned after {gone - told['fault_at']:.1f} s, "
        f"its job runs again after {told['times']['running_s']:.1f} s"
    )
    bench.head("scancel", job)


def _until(ask: Callable[[], Any]) -> Any:
    ends = time.monotonic() + PATIENCE_S
    while not (answer := ask()):
        if time.monotonic() > ends:
            raise SystemExit("gave up waiting")
        time.sleep(0.2)
    return answer


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--events", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with bench_cluster(SPEC) as own:
        real = subprocess.run(["which", "podman"], capture_output=True, text=True, check=True).stdout.strip()
        folder = own.folder / "bin"
        folder.mkdir()
        (folder / "podman").write_text(PODMAN.format(real=real, fault=own.folder / "fault"))
        (folder / "podman").chmod(0o755)
        os.environ["PATH"] = f"{folder}:{os.environ['PATH']}"
        own.headway("apply", str(own.spec), "--yes")
        bench = Bench(own, random.Random(options.seed))
        before = bench.controller()
        for number in range(1, options.events + 1):
            bench.event(number)
        lost, ghosts, stuck, unfinished = settle(bench, 1)
        restarts = int(bench.controller() != before)
        print(f"events: {options.events}, jobs: {len(bench.jobs)}, lost: {len(lost)} {lost[:5]}")
        print(f"ghosts: {len(ghosts)} {ghosts}, stuck: {len(stuck)} {stuck}, restarts of slurmctld: {restarts}")
        print(f"incidents without an end: {len(unfinished)} {unfinished}")
        began = time.monotonic()
        own.headway("scale", "bench", "0", "--yes", "--deadline", "0")
        print(f"one node returned after {time.monotonic() - began:.1f} s")
        one = timed(bench, 1, "one node")
        reclaimed(bench)
        own.headway("scale", "bench", "0", "--yes", "--deadline", "0")
        compared(one, timed(bench, MOST, f"{MOST} nodes at once"))
        sys.exit(1 if lost or ghosts or stuck or unfinished or restarts else 0)


if __name__ == "__main__":
    main()
