"""Measures training steps a second under `headway run` compared with plain torchrun, on the same two nodes,
alternately.

Both run examples/train_ddp.py with the same number of ranks and threads, without checkpoints on the way, from a copy of
the same files. Nothing queries the job while it runs; one reader follows its log. The figure is the training's own over
all its steps. The two sides take turns at going first, and the result is the median of the rounds' ratios: other load
on this machine changes slowly, so it affects both sides of a round."""

from __future__ import annotations

import json
import re
import statistics
from pathlib import Path

from bench_cluster import BenchCluster, bench_cluster

EXAMPLES = Path(__file__).parents[2] / "examples"
ROUNDS = 6
TRAINING = ["train_ddp.py", "--steps", "600", "--log-every", "100", "--checkpoint-every", "1000000"]
PORT = 29400
BARE = f"""#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=1 --gpus-per-node=8 --output=/home/%u/bare-%j.out
export OMP_NUM_THREADS=1 HEADWAY_CHECKPOINT_DIR=/scratch/$USER/bare-$SLURM_JOB_ID
srun torchrun --nnodes=2 --nproc-per-node=1 --rdzv-id=$SLURM_JOB_ID --rdzv-backend=c10d \\
  --rdzv-endpoint=$(scontrol show hostnames | head -n 1):{PORT} {" ".join(TRAINING)}
"""


def bare(at: BenchCluster) -> int:
    """Submits the training with plain torchrun, and returns the job's number."""
    script = at.folder / "bare.sbatch"
    script.write_text(BARE)
    return int(at.headway("submit", "bench", "--parsable", "--chdir", "examples", str(script)))


def under(at: BenchCluster) -> int:
    """Submits the training with `headway run`, and returns the job's number."""
    words = ["--nodes", "2", "--gpus", "8", "--env", "OMP_NUM_THREADS=1", "--folder", str(EXAMPLES), "-o", "json"]
    done = at.headway("run", "bench", *words, "--", "torchrun", *TRAINING)
    return int(json.loads(done)["job_id"])


def rate(at: BenchCluster, job: int) -> float:
    """Returns the steps a second over the whole training."""
    log = at.headway("logs", "bench", "-f", str(job))
    said = re.findall(r"step 600 .*steps_per_s (\d+\.?\d*)", log)
    if " 2 ranks on " not in log or len(said) != 1:
        raise SystemExit(f"bench: job {job} was not the training that was meant\n{log}")
    return float(said[0])


def main() -> None:
    found: dict[str, list[float]] = {"bare": [], "under": []}
    with bench_cluster() as at:
        at.headway("image", "build", "debian13", timeout_s=3600)
        at.headway("apply", str(at.spec), "--yes")
        at.headway("cp", "-q", "-r", str(EXAMPLES), "bench:")
        sides = [("bare", bare), ("under", under)]
        for _, start in sides:  # warms the cache with torch's files on each node
            rate(at, start(at))
        for _ in range(ROUNDS):
            for name, start in sides:
                found[name].append(rate(at, start(at)))
            sides.reverse()
    ratios = [one / other for one, other in zip(found["under"], found["bare"], strict=True)]
    print(f"bare torchrun: {statistics.median(found['bare']):.1f} steps/s (median of {ROUNDS} trainings of 600 steps)")
    print(f"headway run:   {statistics.median(found['under']):.1f} steps/s")
    print(f"ratio: {statistics.median(ratios):.3f} (median of the rounds; {min(ratios):.3f} to {max(ratios):.3f})")


if __name__ == "__main__":
    main()
