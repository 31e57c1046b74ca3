"""Training steps a second under `headway run` beside bare torchrun, on the same two nodes, turn by turn."""

from __future__ import annotations

import json
import re
import statistics
import time
from pathlib import Path

from place import Place, place

EXAMPLES = Path(__file__).parents[1] / "examples"
ROUNDS = 3
STEPS = 120
PORT = 29400
BARE = f"""#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=1 --gpus-per-node=8 --output=/home/%u/bare-%j.out
export OMP_NUM_THREADS=1
srun torchrun --nnodes=2 --nproc-per-node=1 --rdzv-id=$SLURM_JOB_ID --rdzv-backend=c10d \\
  --rdzv-endpoint=$(scontrol show hostnames | head -n 1):{PORT} train_ddp.py --steps {STEPS}
"""


def bare(at: Place) -> int:
    script = at.folder / "bare.sbatch"
    script.write_text(BARE)
    return int(at.headway("submit", "bench", "--parsable", "--chdir", "examples", str(script)))


def under(at: Place) -> int:
    words = ["--nodes", "2", "--gpus", "8", "--env", "OMP_NUM_THREADS=1", "--folder", str(EXAMPLES), "-o", "json"]
    done = at.headway("run", "bench", *words, "--", "torchrun", "train_ddp.py", "--steps", str(STEPS))
    return int(json.loads(done)["job_id"])


def rate(at: Place, job: int) -> float:
    """Median of the steps a second that the training says, without the first line: that one has the start in it."""
    while json.loads(at.headway("job", "bench", str(job), "-o", "json"))["state"] in (
        "PENDING",
        "RUNNING",
        "COMPLETING",
    ):
        time.sleep(1)
    said = re.findall(r"steps_per_s (\d+\.?\d*)", at.headway("logs", "bench", str(job)))
    return statistics.median(float(figure) for figure in said[1:])


def main() -> None:
    with place() as at:
        at.headway("image", "build", "debian13", timeout_s=3600)
        at.headway("apply", str(at.spec), "--yes")
        at.headway("cp", "-q", "-r", str(EXAMPLES), "bench:")
        found: dict[str, list[float]] = {"bare": [], "under": []}
        for _ in range(ROUNDS):
            found["bare"].append(rate(at, bare(at)))
            found["under"].append(rate(at, under(at)))
    middle = {name: statistics.median(rates) for name, rates in found.items()}
    print(f"bare torchrun: {middle['bare']:.2f} steps/s (median of {ROUNDS} trainings of {STEPS} steps)")
    print(f"headway run:   {middle['under']:.2f} steps/s")
    print(f"ratio: {middle['under'] / middle['bare']:.3f}")


if __name__ == "__main__":
    main()
