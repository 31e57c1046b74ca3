"""`make demo`: sets up this machine, creates a real Slurm cluster, and runs a training over four nodes of it."""

from __future__ import annotations

import subprocess
import sys

import setup
from demo_steps import CLUSTER, STEP, StageError, Steps, ask, follow, headway, how_to_call, submit
from podman import podman

MACHINES = 6  # one head, four nodes, one spare
MACHINES_MIB = 400 + 220 * MACHINES
MACHINES_DISK_MIB = 1024 + 300 * MACHINES
IMAGE_DISK_MIB = 6000
TRAINING_S = 900


def room() -> tuple[int, int]:
    """Returns (memory, disk) in MiB that is still needed; what exists already needs none."""

    up = podman("ps", "--quiet", "--filter", f"label=headway.cluster={CLUSTER}")
    image = podman("images", "--quiet", "--filter", "label=headway.image=debian13")
    return (0 if up else MACHINES_MIB), (0 if up else MACHINES_DISK_MIB) + (0 if image else IMAGE_DISK_MIB)


def train() -> list[tuple[int, float]]:
    """Submits the training, follows its log to the end, and returns the curve as (step, loss). Raises StageError."""
    job = submit()
    curve: list[tuple[int, float]] = []

    def on_line(line: str) -> None:
        print(f"  {line}", end="", flush=True)
        if found := STEP.match(line):
            curve.append((int(found[1]), float(found[2])))

    print(f"$ headway logs -f {CLUSTER} {job}", flush=True)
    follow(["logs", "-f", CLUSTER, str(job)], on_line, timeout_s=TRAINING_S)
    ended = ask("job", CLUSTER, str(job))
    if ended["state"] not in ("COMPLETED", "COMPLETING") or len(curve) < 2:
        raise StageError(f"the training ended as {ended['state']}; see: headway job {job} · headway logs {job}")
    (_, first), (steps, last) = curve[0], curve[-1]
    if last >= first:
        raise StageError(f"the loss did not fall: {first} at the first step, {last} at step {steps}")
    gpus = ended["gpus"]
    print(f"\nloss fell from {first:.3f} to {last:.3f} in {steps} steps")
    print(f"ran on {', '.join(ended['nodes'])}: {gpus} GPUs, SIMULATED; the training itself ran on the CPU")
    return curve


def main() -> int:
    steps = Steps()
    try:
        with steps.step("setup"):
            setup.setup("demo", room=room())
        with steps.step("image"):
            headway("image", "build", "debian13", timeout_s=3600)
        with steps.step("server"):
            headway("server", "start")
        with steps.step("cluster"):
            headway("apply", "examples/quickstart.yaml", "--yes", timeout_s=1800)
        with steps.step("training"):
            train()
        page = ask("token", "link")["url"]
    except (StageError, setup.SetupError, subprocess.TimeoutExpired) as error:
        print(f"demo: {error}", file=sys.stderr)
        print(f"  what is there stays: `make demo` goes on, `headway down {CLUSTER}` removes it", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"\ndemo: stopped; `make demo` goes on, `headway down {CLUSTER}` removes it", file=sys.stderr)
        return 130
    print(steps.line())
    print()
    for line in (
        f"page: {page}",
        "watch: headway queue",
        f"log in: headway ssh {CLUSTER}, then srun --gpus 1 nvidia-smi",
        "break it: make demo-fault",
        "your own: headway init",
        f"remove: headway down {CLUSTER}",
        how_to_call(),
    ):
        if line:
            print(line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
