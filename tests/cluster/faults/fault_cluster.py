"""The cluster that the fault tests break, and helpers to read it."""

from __future__ import annotations

from typing import Any

from tests.cluster.jobs.training_run import HOME
from tests.cluster.lab import Lab

STEPS = ("--steps", "20", "--log-every", "1", "--checkpoint-every", "4", "--step-seconds", "0.5")
NODES = tuple(f"flt-1-{n}" for n in range(1, 6))


def spec(lab: Lab, flaky_score: int = 30) -> str:
    """Writes the cluster file and returns its text. The repairs of these tests do not reach the score of a flaky node unless a
    test lowers it."""
    file = lab.state / "flt.yaml"
    file.write_text(f"""\
name: flt
plan: h100-8
nodes: 4
spares: 1
teams: {{vision: {{users: [ann]}}}}
health: {{flaky_nodes: {{score: {flaky_score}}}}}
""")
    return str(file)


def nodes(lab: Lab) -> list[dict[str, Any]]:
    return [node.model_dump() for node in lab.client.clusters.status("flt").nodes]


def train(lab: Lab) -> int:
    """Submits the example training on all four nodes and returns the job id."""
    argv = ["env", "-C", HOME, "sbatch", "--parsable", "--nodes=4", "--gpus-per-node=8", "train_ddp.sbatch", *STEPS]
    return int(lab.head(*argv, user="admin").out)
