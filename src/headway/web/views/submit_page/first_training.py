"""The script of a training of a minute, for a person who has none yet. It needs nothing but Python."""

from __future__ import annotations


def first_training(gpus: int) -> str:
    """Returns a batch script that trains a line through points and prints its loss; on one GPU if nodes have some."""
    gpu = "#SBATCH --gpus-per-node=1\n" if gpus else ""
    return f"""#!/bin/bash
#SBATCH --job-name=first-training
#SBATCH --nodes=1
{gpu}#SBATCH --time=00:05:00

srun python3 -u - <<'PYTHON'
# Finds the line y = 3x + 2 through noisy points by gradient descent.
import random
import time

random.seed(1)
points = [(x / 50, 3 * x / 50 + 2 + random.gauss(0, 0.1)) for x in range(50)]
slope = offset = 0.0
for step in range(1, 61):
    errors = [(slope * x + offset - y, x) for x, y in points]
    loss = sum(error * error for error, _ in errors) / len(errors)
    slope -= 0.3 * sum(error * x for error, x in errors) / len(errors)
    offset -= 0.3 * sum(error for error, _ in errors) / len(errors)
    print(f"step {{step}} loss {{loss:.4f}}")
    time.sleep(1)
print(f"y = {{slope:.2f}}x + {{offset:.2f}}")
PYTHON
"""
