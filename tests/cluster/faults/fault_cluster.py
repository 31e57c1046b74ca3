"""The cluster that the fault tests break, and helpers to read it."""

from __future__ import annotations

import re
from typing import Any

from tests.cluster.jobs.training_run import HOME
from tests.cluster.lab import Lab

from headway.domain.slurm.nodes_and_jobs import SPARES

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


def spare(lab: Lab) -> str:
    """Returns the node that is the spare, once there is one. After a fault of an earlier test any node may be it."""

    def reserved() -> str:
        shown = re.search(
            rf"ReservationName={SPARES} .* Nodes=(\S+)", lab.head("scontrol", "-o", "show", "reservation").out
        )
        return shown[1] if shown else ""

    return lab.wait(reserved, "a spare to stand by")


def in_service(lab: Lab) -> list[str]:
    """Returns the nodes that jobs may use: all but the spare. sinfo marks that one only at Slurm's next pass."""
    held = spare(lab)
    return [name for name in NODES if name != held]


def train(lab: Lab) -> int:
    """Submits the example training on all four nodes and returns the job id."""
    argv = ["env", "-C", HOME, "sbatch", "--parsable", "--nodes=4", "--gpus-per-node=8", "train_ddp.sbatch", *STEPS]
    return int(lab.head(*argv, user="admin").out)
