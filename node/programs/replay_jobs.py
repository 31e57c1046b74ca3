"""Submits jobs on the head of a rehearsal at set times, as their users, and prints what Slurm says of each, one JSON object
a line. Runs as root. The server sends this text with a call of `replay` below it, whose argument is the plan as JSON."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time

SAMPLE_S = 5.0
COMMAND_S = 60


def run(*argv: str) -> subprocess.CompletedProcess[str]:
    """Runs a command of Slurm."""
    env = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "SLURM_TIME_FORMAT": "%s", "LC_ALL": "C"}
    return subprocess.run(argv, capture_output=True, text=True, timeout=COMMAND_S, check=False, env=env)


def say(**fields: object) -> None:
    """Prints one event."""
    sys.stdout.write(json.dumps(fields) + "\n")
    sys.stdout.flush()


def replay(plan_json: str) -> None:
    """Carries out a plan: {"name", "jobs": [{"at", "user", "argv", "sleep"}], "patience"}. `patience`: seconds that jobs may
    wait after the last submission; then those that are left are cancelled."""
    plan = json.loads(plan_json)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(1))
    try:
        _carry_out(plan)
    finally:
        run("scancel", f"--name={plan['name']}")


def _carry_out(plan: dict) -> None:
    began, sampled = time.monotonic(), 0.0
    numbers: dict[str, int] = {}
    for number, job in enumerate(plan["jobs"]):
        while (left := began + job["at"] - time.monotonic()) > 0:
            time.sleep(min(left, SAMPLE_S))
            sampled = _sample(plan["name"], numbers, sampled)
        done = run(
            "runuser", "-u", job["user"], "--", "sbatch", "--parsable", *job["argv"], f"--wrap=sleep {job['sleep']}"
        )
        if done.returncode == 0:
            numbers[done.stdout.strip().split(";")[0]] = number
            say(kind="submitted", job=number)
        else:
            say(kind="refused", job=number, why=(done.stderr or done.stdout).strip()[:1000])
        sampled = _sample(plan["name"], numbers, sampled)
    ends = time.monotonic() + plan["patience"]
    while time.monotonic() < ends and run("squeue", "-h", f"--name={plan['name']}", "-o", "%i").stdout.strip():
        time.sleep(SAMPLE_S)
        sampled = _sample(plan["name"], numbers, sampled)
    run("scancel", f"--name={plan['name']}")
    _report(numbers)


def _sample(name: str, numbers: dict[str, int], sampled: float) -> float:
    """Prints why jobs wait, at most every SAMPLE_S seconds; returns when it last did."""
    now = time.monotonic()
    if now - sampled < SAMPLE_S:
        return sampled
    for line in run("squeue", "-h", "-t", "PENDING", f"--name={name}", "-o", "%i|%r").stdout.splitlines():
        job, _, reason = line.partition("|")
        if job in numbers:
            say(kind="waits", job=numbers[job], why=reason)
    return now


def _report(numbers: dict[str, int]) -> None:
    """Prints when each job was submitted and started, once accounting knows that all have ended."""
    rows: list[list[str]] = []
    for _ in range(12):
        columns = "JobIDRaw,State,Submit,Start"
        out = (
            run("sacct", "-X", "-n", "-P", "-S", "now-1days", "-o", columns, "-j", ",".join(numbers)).stdout
            if numbers
            else ""
        )
        rows = [line.split("|") for line in out.splitlines()]
        open_ones = [row for row in rows if row[1] in ("PENDING", "RUNNING")]
        if len(rows) >= len(numbers) and not open_ones:
            break
        time.sleep(SAMPLE_S)
    for job, state, submit, start in rows:
        if job in numbers:
            started = start.isdigit() and int(start) > 0
            say(
                kind="ended",
                job=numbers[job],
                state=state.split()[0],
                wait=int(start) - int(submit) if started else None,
            )
