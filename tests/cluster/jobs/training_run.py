"""The example training on a cluster: its folder, and parsers of its logs."""

from __future__ import annotations

import re
from pathlib import Path

from tests.cluster.lab import Lab

EXAMPLES = Path(__file__).parents[3] / "examples"
HOME = "/home/admin/training"


def log(lab: Lab, job: int) -> str:
    return lab.head("bash", "-c", f"cat {HOME}/logs/*-{job}.out", check=False).out


def losses(text: str) -> dict[int, set[str]]:
    """Returns step -> the losses printed for it, over all runs of the job."""
    found: dict[int, set[str]] = {}
    for step, loss in re.findall(r"^step (\d+) loss (\S+)", text, re.MULTILINE):
        found.setdefault(int(step), set()).add(loss)
    return found
