"""Measures the seconds without a controller when the first of two heads fails, while no Headway server runs: it is
switched off, or it hangs while its kernel still accepts connections. --without-agent also measures it with the second head's
agent stopped.

At the moment of the fault an sbatch is started on the second head, and again if it fails; what counts is when it gets a
job's number. The second controller leads when it has written its name into Slurm's state folder."""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time

from bench_cluster import BenchCluster, bench_cluster
from headway.cluster.active_head import LEADER_FILE
from headway.domain.cluster import SLURM_STATE_FOLDER
from headway.paths import instance_label

SPEC = """\
name: bench
plan: cpu-64
nodes: 1
controllers: 2
teams:
  lab: {users: [bench]}
"""
LEADS = f"{SLURM_STATE_FOLDER}/{LEADER_FILE}"
SAVED_S = 6  # Slurm saves its state at least so often
SETTLED_S = 14  # a second controller waits so long for the first one before its checks
MOST_S = 240
SUBMIT = """\
most=$(( $(date +%s) + $1 ))
until runuser -u bench -- sbatch --parsable -o /dev/null --wrap true 2>/dev/null; do
  [ "$(date +%s)" -lt "$most" ] || exit 1; sleep 0.1
done
date +%s.%N"""
FAULTS = {"switched off": ("kill", "start"), "hangs": ("pause", "unpause")}


class Heads:
    """The two heads of the cluster."""

    def __init__(self, at: BenchCluster) -> None:
        self.instance = instance_label(at.state)
        self.first, self.second = (self._container(name) for name in ("bench-head", "bench-head2"))

    def _container(self, machine: str) -> str:
        labels = {"instance": self.instance, "cluster": "bench", "machine": machine}
        filters = [f"--filter=label=headway.{key}={value}" for key, value in labels.items()]
        return str(json.loads(podman("ps", "-a", "--format", "json", *filters))[0]["Names"][0])

    def on_second(self, *argv: str, timeout_s: float = 60) -> str:
        """Runs a command on the second head and returns its output."""
        return podman("exec", self.second, *argv, timeout_s=timeout_s)

    def leads(self) -> tuple[str, float]:
        """Returns (the head that leads, since when in Unix seconds)."""
        name = self.on_second("cat", LEADS).split()[0]
        return name, float(self.on_second("stat", "-c", "%.Y", LEADS))

    def once(self, fault: str) -> tuple[float, float]:
        """Returns the seconds from the fault until the second head led, and until its sbatch had a job's number."""
        do, undo = FAULTS[fault]
        time.sleep(SAVED_S)
        began = time.time()  # the machines run on this host and share its clock
        podman(do, self.first)
        ended = self.on_second("bash", "-c", SUBMIT, "submit", str(MOST_S), timeout_s=MOST_S + 60).split()[-1]
        name, since = self.leads()
        if name != "bench-head2":
            sys.exit(f"bench: {name} leads")
        podman(undo, self.first)
        ends = time.monotonic() + 120
        while self.leads()[0] != "bench-head":
            if time.monotonic() > ends:
                sys.exit("bench: the first head does not lead again")
            time.sleep(0.5)
        time.sleep(SETTLED_S)
        return since - began, float(ended) - began


def podman(*argv: str, timeout_s: float = 60) -> str:
    """Runs podman and returns its output; exits when it fails."""
    done = subprocess.run(["podman", *argv], capture_output=True, text=True, timeout=timeout_s, check=False)
    if done.returncode:
        sys.exit(f"bench: podman {' '.join(argv)[:200]} ended with {done.returncode}: {done.stderr}")
    return done.stdout


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    words.add_argument("--rounds", type=int, default=3)
    words.add_argument("--fault", choices=FAULTS, default="switched off")
    words.add_argument("--without-agent", action="store_true", help="also with the second head's agent stopped")
    arguments = words.parse_args()
    with bench_cluster(SPEC) as at:
        at.headway("image", "build", "debian13", timeout_s=3600)
        at.headway("apply", str(at.spec), "--yes")
        at.headway("server", "stop")
        try:
            measure(Heads(at), arguments.fault, arguments.rounds, without_agent=arguments.without_agent)
        finally:
            at.tried("server", "start")  # the server is needed to delete the cluster


def measure(heads: Heads, fault: str, count: int, *, without_agent: bool) -> None:
    """Prints the times of `count` rounds. `without_agent`: also with the second head's agent stopped."""
    time.sleep(SETTLED_S)
    for title in ("", ", the second head's agent stopped") if without_agent else ("",):
        if title:
            heads.on_second("systemctl", "stop", "headway-agent.service")
        rounds = [heads.once(fault) for _ in range(count)]
        led, submitted = ([each[n] for each in rounds] for n in (0, 1))
        print(
            f"the first head {fault}{title}: {told('the second leads', led)}, {told('sbatch', submitted)}", flush=True
        )


def told(what: str, seconds: list[float]) -> str:
    """Returns median, minimum and maximum as text."""
    return f"{what} after {statistics.median(seconds):.1f} s ({min(seconds):.1f} to {max(seconds):.1f})"


if __name__ == "__main__":
    main()
