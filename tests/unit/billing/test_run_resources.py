"""What a run holds is counted in the units of its group: GPUs, compute slices of MIG, shards, per cent, or CPUs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from headway.billing.run_resources import allocations_by_group
from headway.catalog.mig_profiles import lay_out
from headway.domain.cluster import Group
from headway.domain.machines.gpu_parts import WHOLE, GpuParts
from headway.slurm.accounting.sacct_usage import parse_runs
from tests.support.billing.billing_cluster import run
from tests.support.clusters import builders

HALVES = GpuParts(mig=lay_out(builders.H100, {"3g.40gb": 2}))


def allocated(parts: GpuParts, **of_run: Any) -> tuple[float, int, int]:
    """Returns (GPUs, units, units per node) of a run on nodes that are divided so."""
    cluster = builders.cluster(2, 0, parts=parts)
    [found] = allocations_by_group(run(1, 0, 10, **of_run), cluster.group_of)
    return found.gpus, found.units, found.per_node


@pytest.mark.parametrize(
    ("parts", "of_run", "expected"),
    [
        (WHOLE, {"gpus": 2}, (2, 2, 8)),
        (HALVES, {"gpus": 3 / 7}, (pytest.approx(3 / 7), 3, 56)),
        (HALVES, {"gpus": 16 * 3 / 7}, (pytest.approx(48 / 7), 48, 56)),
        (HALVES, {"gpus": 0, "cpus": 4}, (0, 0, 56)),
        (HALVES, {"gpus": 8}, (8, 56, 56)),  # whole GPUs of a node that is not rolled yet
        (GpuParts(shards=8), {"gpus": 0, "shards": 2}, (0.25, 2, 64)),
        (GpuParts(shards=8), {"gpus": 1}, (1, 8, 64)),
        (GpuParts(mps=True), {"gpus": 0, "mps": 30}, (0.3, 30, 800)),
    ],
)
def test_parts_count_as_their_share_of_a_gpu(parts: GpuParts, of_run: dict[str, Any], expected: Any) -> None:
    assert allocated(parts, **of_run) == expected


def test_a_run_in_two_groups_is_divided_in_the_units_of_each() -> None:
    cluster = builders.cluster(2, 0, parts=HALVES)
    whole = Group("whole", builders.H100, 1, 1, slots=("lab-9-9",))
    groups = {**cluster.group_of, "lab-9-9": whole}
    first, second = allocations_by_group(run(1, 0, 10, gpus=2, cpus=10, nodes=("lab-1-1", "lab-9-9")), groups)
    assert (first.group, first.gpus, first.units, first.cpus) == ("main", 1, 7, 5)
    assert (second.group, second.gpus, second.units, second.cpus) == ("whole", 1, 1, 5)


def test_accounting_names_the_parts() -> None:
    """AllocTRES as slurmdbd of 24.11 writes them."""
    tres = {
        1: "billing=857,cpu=12,gres/gpu:3g.71gb=2,gres/gpu=2,mem=128G,node=1",
        2: "billing=428,cpu=6,gres/gpu:1g.18gb=1,gres/gpu:2g.35gb=1,gres/gpu=2,mem=64G,node=1",
        3: "billing=375,cpu=1,gres/shard=3,mem=2G,node=1",
        4: "billing=300,cpu=1,gres/mps=30,mem=2G,node=1",
        5: "billing=2000,cpu=1,gres/gpu:h200=2,gres/gpu=2,mem=2G,node=1",
    }
    line = "{0}|{0}|ann|vision|train|vision|COMPLETED|n1|{1}|1|1|1|9|60|\n"
    found = parse_runs("".join(line.format(job, text) for job, text in tres.items()))
    assert [(one.gpus, one.gpu_type, one.shards, one.mps) for one in found] == [
        (pytest.approx(6 / 7), "3g.71gb", 0, 0),
        (pytest.approx(3 / 7), "1g.18gb", 0, 0),
        (0, "", 3, 0),
        (0, "", 0, 30),
        (2, "h200", 0, 0),
    ]
    assert replace(found[4], gpus=2) == found[4]
    assert isinstance(found[4].gpus, int)
