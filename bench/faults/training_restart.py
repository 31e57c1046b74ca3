"""Measures the seconds from a power cut until the demo's training has done its first new step, and what they are spent
on.

The cluster is that of `make demo`: four nodes and a spare. It trains examples/train_ddp.sbatch on all four nodes; then
the machine of one of them is killed from outside (podman kill). A program on the head reads the training's log and Slurm
ten times a second. All machines run on this host and share its clock."""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path

from bench_cluster import BenchCluster, bench_cluster

ROOT = Path(__file__).resolve().parents[2]
SPEC = (ROOT / "examples" / "quickstart.yaml").read_text(encoding="utf-8").replace("name: demo", "name: bench")
STEPS = ("--steps", "100000", "--step-seconds", "0.15", "--log-every", "1")
KILL_AT_STEP = 45  # two checkpoints exist by then
MOST_S = 180
# Prints a line of JSON: what was first seen when, in Unix seconds by this machine's clock.
WATCH = r"""
import json, re, subprocess, sys, time
job, node, log, restarts, most = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), float(sys.argv[5])
def ask(*argv):
    return subprocess.run(argv, capture_output=True, text=True, timeout=30).stdout.strip()
def note(name, seen):
    if seen and name not in found:
        found[name] = time.time()
found, numbers, ends = {}, {}, time.time() + most
text = open(log, errors="replace")
text.seek(0, 2)
rest = ""
while "step" not in found and time.time() < ends:
    rest += text.read()
    *lines, rest = rest.split("\n")
    for line in lines:
        note("script", line.startswith("job ") and line.endswith(f"restart {restarts}"))
        if "script" in found:
            if match := re.match(r"start-up: ([\d.]+) s imports, ([\d.]+) s until", line):
                note("together", True)
                numbers = dict(zip(("imports", "met"), map(float, match.groups())))
            note("loaded", line.startswith("resumed from"))
            note("step", line.startswith("step "))
    if "down" not in found:
        note("down", "down" in ask("sinfo", "-h", "-N", "-n", node, "-o", "%T"))
    if "running" not in found:
        state, _, count = ask("squeue", "-h", "-j", job, "-O", "State:20,RestartCnt:10").partition(" ")
        note("requeued", count.strip() == str(restarts))
        note("running", count.strip() == str(restarts) and state == "RUNNING")
    time.sleep(0.1)
print(json.dumps({"found": found, "numbers": numbers}))
"""
PARTS = (
    ("down", "node down"),
    ("requeued", "job requeued"),
    ("running", "job runs again"),
    ("script", "batch script runs"),
    ("python", "Python runs on rank 0"),
    ("imported", "torch imported"),
    ("together", "process group formed"),
    ("loaded", "checkpoint loaded"),
    ("step", "first new step"),
)


def submit(at: BenchCluster) -> int:
    """Submits the training as `make demo` does. Returns the job's number."""
    printed = at.headway("submit", "bench", "--chdir", "examples", "examples/train_ddp.sbatch", *STEPS)
    found = re.search(r"Submitted batch job (\d+)", printed)
    if found is None:
        sys.exit(f"bench: the submission printed no job id: {printed}")
    return int(found[1])


def until(ready: object, what: str, most_s: float = 240) -> None:
    """Waits until `ready()` is true. Exits when that takes too long."""
    ends = time.monotonic() + most_s
    while not ready():  # type: ignore[operator]
        if time.monotonic() > ends:
            sys.exit(f"bench: {what} did not come within {most_s:.0f} s")
        time.sleep(0.5)


def once(at: BenchCluster, victim: int) -> dict[str, float]:
    """Returns the seconds from the power cut to each of PARTS; a name is missing if it was not seen."""
    job = submit(at)
    log = at.headway("exec", "bench", "--", "scontrol", "show", "job", str(job))
    log = re.search(r"StdOut=(\S+)", log)[1]  # type: ignore[index]
    tail = ["exec", "bench", "--", "tail", "-n", "1", log]

    def reached() -> bool:
        step = re.match(r"step (\d+)", at.tried(*tail).stdout)
        return bool(step) and int(step[1]) >= KILL_AT_STEP

    until(reached, f"step {KILL_AT_STEP}")
    nodes = json.loads(at.headway("job", "bench", str(job), "-o", "json"))["nodes"]
    machine = at.container(nodes[victim])
    argv = ["exec", "bench", "--", "python3", "-c", WATCH, str(job), nodes[victim], log, "1", str(MOST_S)]
    watch = subprocess.Popen(
        [str(Path(sys.executable).with_name("headway")), *argv], env=at.env, stdout=subprocess.PIPE, text=True
    )
    time.sleep(3)  # until it watches
    began = time.time()
    subprocess.run(["podman", "kill", machine], capture_output=True, timeout=60, check=True)
    out = watch.communicate(timeout=MOST_S + 60)[0]
    seen = json.loads(out.splitlines()[-1])
    text = at.headway("exec", "bench", "--", "cat", log)
    at.headway("exec", "bench", "--", "scancel", str(job))
    result = {name: float(when) - began for name, when in seen["found"].items()}
    if "step" not in result:
        print(text[-4000:], file=sys.stderr)
    if seen["numbers"]:
        result["imported"] = result["together"] - seen["numbers"]["met"]
        result["python"] = result["imported"] - seen["numbers"]["imports"]
    until(lambda: settled(at), "the return of all nodes")
    return result


def settled(at: BenchCluster) -> bool:
    """Returns whether no job runs and all nodes are in service."""
    states = at.tried("exec", "bench", "--", "sinfo", "-h", "-N", "-o", "%T").stdout.split()
    return bool(states) and set(states) <= {"idle", "reserved"}


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    words.add_argument("--rounds", type=int, default=3)
    words.add_argument("--victim", type=int, default=1, help="which of the job's nodes; 0 runs the batch script")
    arguments = words.parse_args()
    with bench_cluster(SPEC) as at:
        at.headway("image", "build", "debian13", timeout_s=3600)
        at.headway("apply", str(at.spec), "--yes")
        at.headway("cp", "-q", "-r", str(ROOT / "examples"), "bench:")
        rounds = []
        for _ in range(arguments.rounds):
            rounds.append(once(at, arguments.victim))
            print(", ".join(f"{says} {rounds[-1].get(name, float('nan')):.1f}" for name, says in PARTS), flush=True)
        print("power cut to ...: " + "; ".join(part_text(rounds, name, says) for name, says in PARTS))


def part_text(rounds: list[dict[str, float]], name: str, says: str) -> str:
    """Returns the median of the rounds as text."""
    found = [one[name] for one in rounds if name in one]
    return f"{says} {statistics.median(found):.1f} s" if len(found) == len(rounds) else f"{says} never"


if __name__ == "__main__":
    main()
