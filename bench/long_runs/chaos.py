"""Makes random faults under a running mix of jobs, and counts what became of the jobs: `python bench long_runs/chaos --faults 100
--seed 1`.

The bench plays the cluster's users, the faults, and the technician: it submits jobs all the time, breaks something
chosen by the seed, repairs the machine of an incident that is out of service, and runs `headway incident return`.
Everything else is Headway's work. It ends with 1 when a job was lost, a node was drained without a reason, returned
without its tests or left out of service without an incident, an old run wrote after the new run's
first write, the ledger and Slurm's accounting differ in a run's seconds or GPUs, or fewer than nine in ten restarted
jobs finished.

Jobs write a checkpoint each second, as a training would, and note the step and the restart on scratch. ETTR is the
share of a job's time, from its first start to its end, that made steps which counted. The formula next to it is the
expected ETTR of Meta's "Revisiting Reliability in Large-Scale Machine Learning Research Clusters" (2024), with this
run's own failure rate, restart time and checkpoint interval."""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from bench_cluster import bench_cluster
from long_runs.chaos_cluster import BREAKS, PATIENCE_S, SPEC, STEP, Kind, Row, Run, command, print_evidence

TWO_AT_ONCE = 0.15  # share of faults that a second one follows at once


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    words.add_argument("--faults", type=int, default=20)
    words.add_argument("--seed", type=int, default=1)
    words.add_argument("--jobs", type=int, default=6, help="in the queue at any time")
    words.add_argument("--minutes", type=float, default=1e6, help="no further fault is made after so long")
    words.add_argument("--only", action="append", choices=[one.name for one in BREAKS], help="a kind of fault to make")
    arguments = words.parse_args()
    kinds = tuple(one for one in BREAKS if not arguments.only or one.name in arguments.only)
    with bench_cluster(SPEC) as at:
        at.headway("image", "build", "debian13", timeout_s=3600)
        at.headway("apply", str(at.spec), "--yes")
        put = ["python3", "-c", "import sys; open('step.py', 'w').write(sys.argv[1])", STEP]
        at.headway("exec", "bench", "-u", "bench", "--", *put)
        run = Run(at, random.Random(arguments.seed), kinds)
        sys.exit(play(run, arguments.faults, arguments.jobs, arguments.minutes))


def play(run: Run, faults: int, most: int, minutes: float) -> int:
    """Makes the faults, waits for the end of all jobs, and returns the exit status."""
    stops = time.monotonic() + minutes * 60
    while len(run.made) < faults:
        if time.monotonic() > stops:
            print(f"no more faults after {minutes:g} minutes")
            break
        run.fill(most)
        run.break_one()
        if run.chance.random() < TWO_AT_ONCE and len(run.whole()) > 3:
            run.break_one()
        ends = time.monotonic() + run.chance.uniform(1, 8)
        # At most two of five nodes are away, and three intact ones are left.
        while run.tend() > 2 or len(run.whole()) < 3 or time.monotonic() < ends:
            if time.monotonic() > ends + PATIENCE_S:
                sys.exit(
                    f"bench: after {PATIENCE_S:.0f} s fewer than three nodes are whole:\n" + run.slurm("sinfo", "-N")
                )
            time.sleep(1)
    ends = time.monotonic() + PATIENCE_S
    while run.tend() or run.slurm("squeue", "-h").strip() or not run.written_down():
        if time.monotonic() > ends:
            print("gave up waiting:\n" + run.slurm("squeue"), file=sys.stderr)
            break
        time.sleep(2)
    return report(run)


def report(run: Run) -> int:
    """Prints the results and returns the exit status."""
    rows, steps = run.ended(), scratch_steps(run)
    done, restarted, retried = 0, 0, 0
    lost: list[str] = []
    forbade: list[str] = []
    own: list[str] = []
    for key, kind in tasks(run):
        found = rows.get(key, [])
        last = found[-1] if found else Row("-", "never seen", "0", 0, 0, "")
        good = last.state == "COMPLETED" and steps.get(key) == kind.steps
        done += good
        by_itself = not good and bool(found) and run.by_itself(last)
        if len(found) > 1 and not by_itself:
            restarted += 1
            retried += good
        if not good:
            (own if by_itself else lost if kind.requeue else forbade).append(f"{last.job} {last.state}")
            if kind.requeue and not by_itself:
                print(f"\nlost: {key}\n  " + "\n  ".join(map(str, found)))
                print_evidence(run, sorted({row.raw for row in found}))
    untested = [story["number"] for story in stories(run) if returned_untested(story)]
    writes, shares, expected = scratch(run)
    success = retried / restarted if restarted else 1.0
    wrong, compared, left = run.wrong_drains(), run.compare_ledger(), run.left_out()
    unequal = compared.unequal
    kinds = ", ".join(f"{name} {count}" for name, count in Counter(one.what.name for one in run.made).most_common())
    print(f"\nfaults: {len(run.made)} ({kinds})")
    print(
        f"jobs: {len(run.jobs)} accepted, {sum(1 for _ in tasks(run))} with array tasks; "
        f"{resubmitted(run)} forgotten by a killed controller and submitted again"
    )
    print(f"finished: {done}, lost: {len(lost)} {lost or ''}")
    print(f"forbade requeue and ended by a fault: {len(forbade)}; ended by an error of their own: {len(own)}")
    print(f"wrong drains: {len(wrong)} {wrong or ''}")
    print(f"untested returns: {len(untested)} {untested or ''}")
    print(f"nodes left out of service without an incident: {len(left)} {left or ''}")
    print(f"runs that the ledger and Slurm's accounting know differently: {len(unequal)} {unequal[:10] or ''}")
    print(f"runs of the ledger that Slurm wrote over after a power cut of the head: {compared.overwritten or 0}")
    print(f"writes of an old run after the new run's first: {writes}")
    print(f"restarted: {restarted}, of them finished: {retried} ({success:.0%})")
    print(f"ETTR: {shares:.3f}, by the formula: {expected:.3f}")
    return int(bool(lost or wrong or untested or left or writes or unequal) or success < 0.9)


def tasks(run: Run) -> Iterator[tuple[str, Kind]]:
    """Yields (name-task, kind) of every job and array task."""
    for name, kind in run.jobs.items():
        for task in range(1, kind.tasks + 1) if kind.tasks > 1 else (0,):
            yield f"{name}-{task}", kind


def resubmitted(run: Run) -> int:
    """Returns the number of jobs that the head submitted again, from its file (node/agent/jobs/queue_recovery.py)."""
    return len(
        run.once(command("sh", "-c", "cat /var/lib/headway/resubmitted.jsonl 2>/dev/null", user="root"))[1].splitlines()
    )


def scratch_steps(run: Run) -> dict[str, int]:
    """Returns name-task -> the step that all of its ranks have saved."""
    output = run.slurm("sh", "-c", 'cd /scratch/bench && for file in */at-*; do echo "$file $(cat "$file")"; done')
    found: dict[str, int] = {}
    for line in output.splitlines():
        path, _, kept = line.partition(" ")
        key = path.partition("/")[0]
        if kept.isdigit():
            found[key] = min(found.get(key, int(kept)), int(kept))
    return found


def stories(run: Run) -> list[dict[str, Any]]:
    """Returns all incidents with their steps."""
    return [
        run.ask(lambda api, number=incident["number"]: api.incidents.get("bench", number)).model_dump(mode="json")  # type: ignore[misc]
        for incident in run.incidents()
    ]


def returned_untested(incident: dict[str, Any]) -> bool:
    """Returns whether the incident's node was returned to service without tests."""
    states = [step["state"] for step in incident["steps"]]
    return incident["drained"] and "returned" in states and "testing" not in states[: states.index("returned")]


def scratch(run: Run) -> tuple[int, float, float]:
    """Returns (late writes of old runs, mean ETTR of the jobs, expected ETTR by the formula)."""
    output = run.slurm("sh", "-c", 'cd /scratch/bench && for file in */said-*; do echo "= $file"; cat "$file"; done')
    late, shares, gaps, alive_s, failures = 0, [], [], 0.0, 0
    for part in output.split("= ")[1:]:
        name, *lines = part.splitlines()
        steps = [(int(a), int(b), float(c)) for a, b, c in (line.split() for line in lines)]
        late += sum(one[0] > two[0] for one, two in pairwise(steps))
        if not steps or not name.endswith("said-0"):  # one rank represents its job
            continue
        began, ended = steps[0][2] - 1, steps[-1][2]
        shares.append(len({number for _, number, _ in steps}) / max(1.0, ended - began))
        alive_s += ended - began
        for one, two in pairwise(steps):
            if one[0] != two[0]:
                failures += 1
                gaps.append(two[2] - one[2] - 1)
    restart_s = statistics.mean(gaps) if gaps else 0.0
    rate, interval_s, write_s = failures / alive_s if alive_s else 0.0, 1.0, 0.0
    expected = (1 - rate * (restart_s + interval_s / 2)) / (1 + write_s / interval_s)
    return late, statistics.mean(shares) if shares else 0.0, expected


if __name__ == "__main__":
    main()
