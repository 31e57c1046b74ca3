"""`make demo-fault`: a node is killed during a training, and the training continues. Each event is printed with its
time.

The machine is killed from outside, as by a power cut: podman kill. Nothing informs Headway or Slurm about it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from demo_steps import CLUSTER, STEP, StageError, ask, bold, dim, follow, headway, submit

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))

from headway.paths import instance_label, state_dir

TRAINING = ("--steps", "300", "--step-seconds", "0.15")
KILL_AT_STEP = 45  # two checkpoints exist by then
PATIENCE_S = 300.0
LOOK_S = 1.0
RESUMED = re.compile(r"^resumed from \S+ at step (\d+)")
# the lines to show; the others are long tracebacks of the ranks
TELLING = re.compile(r"^(step|resumed|training|done:|job|---)")


@dataclass
class Log:
    """The job's log, followed in the background. After a requeue has ended the stream, it is followed again."""

    job: int
    began: float
    lines: list[str] = field(default_factory=list)
    over: bool = False
    news: threading.Condition = field(default_factory=threading.Condition)

    def start(self) -> None:
        """Starts the background thread."""
        threading.Thread(target=self._follow, daemon=True).start()

    def _follow(self) -> None:
        while not self.over:
            seen = 0

            def on_line(line: str) -> None:
                nonlocal seen
                seen += 1
                if seen <= len(self.lines):
                    return  # each stream begins at the log's first line
                with self.news:
                    self.lines.append(line.rstrip("\n"))
                    self.news.notify_all()
                if TELLING.match(line):
                    print(dim(f"{time.monotonic() - self.began:7.1f}s  log: {line.rstrip()}"), flush=True)

            try:
                follow(["logs", "-f", CLUSTER, str(self.job)], on_line, timeout_s=2 * PATIENCE_S)
            except StageError as error:
                print(dim(f"{'':8}  log: {error}; following it again"), flush=True)
            time.sleep(LOOK_S)

    def wait(self, wanted: Callable[[list[str]], Any], what: str) -> Any:
        """Waits until `wanted` finds something in the lines, and returns it. Raises StageError after PATIENCE_S."""
        deadline = time.monotonic() + PATIENCE_S
        with self.news:
            while not (found := wanted(self.lines)):
                if not self.news.wait(timeout=deadline - time.monotonic()):
                    raise StageError(f"{what} did not come within {PATIENCE_S:.0f} s; see: headway job {self.job}")
            return found


@dataclass
class Clock:
    """Prints events with the seconds since the demo began, and keeps those for the summary."""

    began: float = field(default_factory=time.monotonic)
    marks: list[tuple[str, float]] = field(default_factory=list)

    def tell(self, text: str, *, mark: bool = False) -> None:
        """Prints an event. `mark`: keep it for the summary."""
        now = time.monotonic() - self.began
        if mark:
            self.marks.append((text, now))
        print(bold(f"{now:7.1f}s  {text}"), flush=True)

    def until(self, wanted: Callable[[], Any], text: str) -> Any:
        """Calls `wanted` until it returns something true, prints `text` and returns the value. Raises StageError after
        PATIENCE_S."""
        deadline = time.monotonic() + PATIENCE_S
        while not (found := wanted()):
            if time.monotonic() > deadline:
                raise StageError(f"not within {PATIENCE_S:.0f} s: {text}; see: headway status {CLUSTER}")
            time.sleep(LOOK_S)
        self.tell(text.format(found), mark=True)
        return found

    def table(self, zero: str) -> list[str]:
        """Returns the kept events as lines, with seconds after the event `zero`."""
        start = next(at for text, at in self.marks if text == zero)
        return [f"  {at - start:7.1f} s  {text}" for text, at in self.marks if at >= start]


def podman(*argv: str) -> str:
    """Returns podman's output. Raises StageError when it fails."""
    ran = subprocess.run(["podman", *argv], capture_output=True, text=True, timeout=120, check=False)
    if ran.returncode:
        raise StageError(f"podman {' '.join(argv)}: {ran.stderr.strip()}")
    return ran.stdout.strip()


def container_of(node: str) -> str:
    """Returns the podman container of a node of this state folder's demo, by its labels. Raises StageError."""
    wanted = {
        "headway.instance": instance_label(state_dir()),
        "headway.cluster": CLUSTER,
        "headway.machine": node,
    }
    filters = [part for name, value in wanted.items() for part in ("--filter", f"label={name}={value}")]
    found = json.loads(podman("ps", "--all", *filters, "--format", "json") or "[]")
    if len(found) != 1:
        raise StageError(f"{node} has {len(found)} machines on this host; run `make demo` first")
    return str(found[0]["Id"])


def node(name: str) -> dict[str, Any]:
    """Returns the node as `headway nodes` shows it; {} if there is none."""
    return next((n for n in ask("nodes", CLUSTER) if n["name"] == name), {})


def job_now(job: int) -> dict[str, Any]:
    """Returns the job as `headway job` shows it now."""
    return dict(ask("job", CLUSTER, str(job)))


def incident(number: int) -> dict[str, Any]:
    """Returns the incident as `headway incident show` shows it."""
    return dict(ask("incident", "show", str(number), "--cluster", CLUSTER))


def last_step(lines: list[str]) -> tuple[int, str]:
    """Returns (step, loss) of the last step in the log; (0, "") before the first."""
    found = [match for line in lines if (match := STEP.match(line))]
    return (int(found[-1][1]), found[-1][2]) if found else (0, "")


def fault(clock: Clock) -> None:
    """Runs the demo. Raises StageError."""
    state = next((c["state"] for c in ask("ls") if c["name"] == CLUSTER), "not there")
    if state != "ready":
        raise StageError(f"the cluster {CLUSTER} is {state}; `make demo` brings it up and mends it")
    job = submit(*TRAINING)
    log = Log(job, clock.began)
    log.start()
    try:
        log.wait(lambda lines: last_step(lines)[0] >= KILL_AT_STEP, f"step {KILL_AT_STEP} of the training")
        before = job_now(job)
        victim = before["nodes"][1]
        container = container_of(victim)
        step, loss = last_step(log.lines)
        clock.tell(f"job {job} trains on {', '.join(before['nodes'])}: step {step}, loss {loss}")
        killed = f"podman kill: {victim} is gone"
        podman("kill", container)
        clock.tell(killed, mark=True)

        clock.until(lambda: node(victim).get("machine") != "running", f"headway says: {victim}'s machine is stopped")
        clock.until(lambda: "DOWN" in node(victim).get("states", []), f"Slurm has {victim} down")
        clock.until(lambda: job_now(job)["restarts"] > before["restarts"], f"Slurm has requeued job {job}")

        def elsewhere() -> str:
            now = job_now(job)
            runs = now["state"] == "RUNNING" and now["restarts"] > before["restarts"] and victim not in now["nodes"]
            return ", ".join(now["nodes"]) if runs else ""

        clock.until(elsewhere, f"job {job} runs again on {{}}")
        told = len(log.lines)
        resumed = log.wait(lambda lines: [m for line in lines if (m := RESUMED.match(line))], "the restart")[-1]
        clock.tell(f"the training goes on from its checkpoint at step {resumed[1]}", mark=True)
        log.wait(lambda lines: [x for x in lines[told:] if STEP.match(x)], "the first step after the restart")
        step, loss = last_step(log.lines)
        clock.tell(f"and it learns again: step {step}, loss {loss}", mark=True)

        number = clock.until(
            lambda: next((one["number"] for one in ask("incidents", CLUSTER) if one["node"] == victim), 0),
            f"all of it is incident {{}} of {victim}",
        )
        clock.until(
            lambda: (one := incident(number)["state"]) in ("returned", "out of service") and one,
            f"its machine was started again and tested: {victim} is {{}}",
        )
        log.wait(lambda lines: any(line.startswith("done:") for line in lines), "the training's last line")
        step, loss = last_step(log.lines)
        clock.tell(f"the training has ended: step {step}, loss {loss}", mark=True)
    finally:
        log.over = True
    print(f"\nafter the kill, job {job}:")
    print("\n".join(clock.table(killed)))
    print()
    headway("incident", "show", str(number), "--cluster", CLUSTER)
    print(f"\npage: {ask('token', 'link')['url']}")
    print(f"state now: headway status {CLUSTER} · headway nodes {CLUSTER} · headway job {job}")


def main() -> int:
    try:
        headway("server", "start")
        fault(Clock())
    except (StageError, subprocess.TimeoutExpired) as error:
        print(f"demo-fault: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ndemo-fault: stopped; headway status shows how things are", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
