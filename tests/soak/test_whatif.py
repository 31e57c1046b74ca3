"""`headway whatif` against real slurmd: the same jobs on a real cluster in real time, and in a replay of its accounting."""

from __future__ import annotations

import random
import statistics
from collections.abc import Iterator
from itertools import combinations

import pytest

from tests.cluster.lab import Lab

pytestmark = pytest.mark.soak
JOBS = 60
CYCLE_S = 10  # bf_interval of the rendered slurm.conf
SPEC = """\
name: lab
plan: h100-8
nodes: 4
teams:
  vision: {users: [alice]}
"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    made = Lab(tmp_path_factory.mktemp("whatif"))
    with made.applied(SPEC):
        yield made


def _submissions() -> str:
    """Returns a shell script that submits jobs of several sizes, which together keep the cluster busy for five minutes."""
    rng = random.Random(7)
    lines = []
    for _ in range(JOBS):
        size = f"-N{rng.choice((1, 1, 1, 2, 3))} --ntasks-per-node=1 --gpus-per-node={rng.choice((1, 2, 4, 8))}"
        sleep = rng.randint(10, 40)
        lines.append(f"sbatch --chdir=/ --output=/dev/null {size} --time={rng.randint(1, 3)} --wrap='sleep {sleep}'")
    return "\n".join(f"runuser -u alice -- {line}" for line in lines)


def test_jobs_start_as_on_real_nodes(lab: Lab) -> None:
    lab.head("bash", "-s", stdin=_submissions())
    lab.wait(lambda: not lab.head("squeue", "-h").out.strip(), "all jobs to end", patience_s=1800)
    told = lab.cli("whatif", "lab", "--since", "now-2hours", "-o", "json", timeout_s=900).json()
    real, replayed = told["starts"]["real"], told["starts"]["present"]
    assert len(real) == JOBS
    assert real.keys() == replayed.keys()
    # Epilogs take no time in the replay, and one job that fits a second later changes where others fit: most starts agree.
    assert statistics.median(abs(real[job] - replayed[job]) for job in real) <= CYCLE_S
    turned = sum((real[a] - real[b]) * (replayed[a] - replayed[b]) < 0 for a, b in combinations(real, 2))
    assert turned / (JOBS * (JOBS - 1) / 2) < 0.1
    assert told["never_started"] == {"present": {}}
    assert told["refused"] == {"present": {}}


def test_replays_of_one_trace_agree_and_more_nodes_shorten_the_queue(lab: Lab) -> None:
    argv = ("whatif", "lab", "--since", "now-2hours", "--nodes", "+2", "-o", "json")
    first, second = (lab.cli(*argv, timeout_s=900).json() for _ in range(2))
    starts = [told["starts"]["present"] for told in (first, second)]
    # Seconds at which the scheduler looks depend on how long slurmctld took to start.
    assert statistics.median(abs(starts[0][job] - starts[1][job]) for job in starts[0]) <= 1
    waits = {name: figures["waits"][-1]["median_s"] for name, figures in first["figures"].items()}
    assert waits["changed"] < waits["present"]
