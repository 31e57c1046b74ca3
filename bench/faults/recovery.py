"""Measures the seconds from a fault until the job runs elsewhere and until its first new step, compared with stock
Slurm on the same machines.

A job of one node writes the time of each of its steps. Its node is broken by an XID 79 in its kernel's log, and by a
power cut. Times count from the fault and are read on the head, ten times a second. Stock Slurm is the same cluster with
Headway only watching (`health: {act: false}`) and Slurm's own time limit for a dead node, SlurmdTimeout=300. What does
not happen within six minutes is printed as "never"."""

from __future__ import annotations

import argparse
import re
import statistics
import sys
import time

from bench_cluster import BenchCluster, bench_cluster

SPEC = """\
name: bench
plan: h100-8
nodes: 1
spares: 1
teams:
  lab: {users: [bench]}
"""
STOCK = "health: {act: false}\nslurm: {SlurmdTimeout: 300}\n"
STOCK_MOST_S = 360
JOB = """\
cd /scratch/bench; while :; do echo $SLURM_RESTART_COUNT $(date +%s.%N) >>steps-$SLURM_JOB_ID; sleep 0.1; done"""
# Prints each of these when it is first seen, by the head's clock: drained or down, the job running again, its first new
# step.
WATCH = """\
node=$1 job=$2 most=$3 seen=''
ends=$(( $(date +%s) + most ))
say() { case $seen in *"$1"*) ;; *) seen="$seen $1"; echo "$1 $(date +%s.%N)";; esac; }
while [ "$(date +%s)" -lt "$ends" ]; do
  case $(sinfo -h -n "$node" -N -o %T | head -n 1) in *drain*|*down*) say away;; esac
  set -- $(squeue -h -j "$job" -t R -o '%N %r')
  if [ "${1:-}" ] && [ "$1" != "$node" ]; then say running; fi
  new=$(grep -m 1 '^1 ' "/scratch/bench/steps-$job") && { echo "step ${new#1 }"; break; }
  sleep 0.1
done"""


def once(at: BenchCluster, words: list[str], most_s: int, *, stock: bool = False) -> dict[str, float]:
    """Returns the seconds from the fault to each thing that was seen; a name is missing if it was not seen within
    `most_s`."""
    job = at.headway(
        "exec", "bench", "-u", "bench", "--", "sbatch", "--parsable", "--requeue", "--gpus=1", "--mem=64",
        "--output=/dev/null", f"--wrap={JOB}",
    ).strip()  # fmt: skip
    ends = time.monotonic() + 120
    while not (node := at.headway("exec", "bench", "--", "squeue", "-h", "-j", job, "-t", "R", "-o", "%N").strip()):
        if time.monotonic() > ends:
            sys.exit(f"bench: job {job} does not start")
        time.sleep(0.2)
    time.sleep(2)
    gpu = "0"
    began = time.time()  # the machines run on this host and share its clock
    told = at.tried("fault", "bench", *(word.format(node=node, gpu=gpu) for word in words), timeout_s=60)
    if told.returncode:
        sys.exit(f"bench: {told.stderr}")
    argv = ["exec", "bench", "--", "bash", "-c", WATCH, "watch", node, job, str(most_s)]
    seen = dict(re.findall(r"^(\w+) (\d+\.\d+)$", at.headway(*argv, timeout_s=most_s + 120), re.M))
    at.headway("exec", "bench", "--", "scancel", job)
    mend(at, words, node, stock)
    return {name: float(when) - began for name, when in seen.items()}


def mend(at: BenchCluster, words: list[str], node: str, stock: bool) -> None:
    """Heals the fault and waits until both nodes accept jobs."""
    ends = time.monotonic() + 240
    at.tried("fault", "bench", *(word.format(node=node, gpu="0") for word in words), "--heal", timeout_s=120)
    while time.monotonic() < ends:
        states = at.headway("exec", "bench", "--", "sinfo", "-h", "-N", "-o", "%N %T").splitlines()
        if {line.split()[1] for line in states} <= {"idle", "reserved"}:
            return
        for number in re.findall(r'"number": (\d+)', at.headway("incidents", "bench", "-o", "json")):
            at.tried("incident", "return", number, "--cluster", "bench", timeout_s=120)
        # Slurm set it down; an administrator would resume it
        if stock and any(line.split() == [node, "down"] for line in states):
            at.tried("exec", "bench", "--", "scontrol", "update", f"NodeName={node}", "State=RESUME")
        time.sleep(1)
    sys.exit(f"bench: {node} does not come back\n" + "\n".join(states))


FAULTS = {
    "XID 79": (["xid", "79", "{node}", "--gpu", "{gpu}"], "drained"),
    "power cut": (["kill-node", "{node}"], "down"),
}


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    words.add_argument("--rounds", type=int, default=3)
    words.add_argument("--no-stock", action="store_true", help="leave out the five minutes that stock Slurm takes")
    arguments = words.parse_args()
    with bench_cluster(SPEC) as at:
        at.headway("image", "build", "debian13", timeout_s=3600)
        at.headway("apply", str(at.spec), "--yes")
        for name, (fault, word) in FAULTS.items():
            rounds = [once(at, fault, 120) for _ in range(arguments.rounds)]
            print(f"{name}: {told(rounds, word)}", flush=True)
        if arguments.no_stock:
            return
        at.spec.write_text(SPEC + STOCK)
        at.headway("apply", str(at.folder / "bench.yaml"), "--yes")
        for name, (fault, word) in FAULTS.items():
            print(f"{name}, stock Slurm: {told([once(at, fault, STOCK_MOST_S, stock=True)], word)}", flush=True)


def told(rounds: list[dict[str, float]], word: str) -> str:
    """Returns the medians of the rounds as text."""
    parts = []
    for name, says in (("away", word), ("running", "running elsewhere"), ("step", "first new step")):
        found = [one[name] for one in rounds if name in one]
        parts.append(f"{says} {statistics.median(found):.1f} s" if len(found) == len(rounds) else f"{says} never")
    return ", ".join(parts)


if __name__ == "__main__":
    main()
