"""An apply selects slots for machines, and skips machines that are being reclaimed or removed by another operation."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from headway.cluster.context import ClusterContext
from headway.cluster.scaling.slot_selection import leaving_with_jobs, select_slots
from headway.providers.base import ReclaimNotice
from tests.support.clusters import builders
from tests.support.clusters.slurm_cluster import FakeProvider, FakeSlurm

WHOLE = builders.cluster(4, 0)
SPOT = replace(WHOLE, groups=(replace(WHOLE.groups[0], nodes=2, most=4, spot=True),))


class Provider:
    """Takes lab-1-1 back."""

    async def notices(self, cluster: str) -> tuple[ReclaimNotice, ...]:
        return (ReclaimNotice(f"{cluster}-1-1", 5000.0), ReclaimNotice(f"{cluster}-1-4", 5000.0))


async def chosen(*places: int) -> tuple[str, ...]:
    names = [SPOT.head, *(f"lab-1-{place}" for place in places)]
    context: Any = ClusterContext(Provider(), None, None, Path())  # type: ignore[arg-type]
    return await select_slots(SPOT, context, {name: builders.machine(name) for name in names})


async def test_reclaimed_machine_is_not_counted_and_not_removed() -> None:
    assert await chosen(1, 2) == ("lab-1-1", "lab-1-2")  # its slot is the first free one, as soon as it is gone
    assert await chosen(1, 2, 3) == ("lab-1-1", "lab-1-2", "lab-1-3")


def slurm() -> FakeSlurm:
    """Returns a Slurm with jobs on nodes 2 and 3, both drained; one of them by a person."""
    made = FakeSlurm(WHOLE.slot_names, lab_1_2=(7,), lab_1_3=(8,))
    made.reasons = {"lab-1-2": "headway: leaves", "lab-1-3": "ann: a fan", "lab-1-4": "headway: leaves"}
    return made


async def test_leaving_nodes_with_jobs_are_left_to_the_other_operation() -> None:
    context: Any = ClusterContext(FakeProvider(()), None, slurm(), Path())  # type: ignore[arg-type]
    there = {name: builders.machine(name) for name in WHOLE.machine_names}
    assert await leaving_with_jobs(WHOLE, context, there, ["lab-1-1"]) == {"lab-1-2"}
    assert await leaving_with_jobs(WHOLE, context, there, WHOLE.slot_names) == frozenset(), "they stay after all"


async def test_second_head_is_asked_for_jobs_if_the_first_is_missing() -> None:
    two = replace(WHOLE, controllers=2, groups=(replace(WHOLE.groups[0], nodes=2, most=4),))
    context: Any = ClusterContext(FakeProvider(()), None, slurm(), Path())  # type: ignore[arg-type]
    there = {name: builders.machine(name) for name in two.machine_names if name != two.head}
    assert two.heads[1] in there
    assert await leaving_with_jobs(two, context, there, ["lab-1-1"]) == {"lab-1-2"}
    assert await select_slots(two, context, there) == ("lab-1-2", "lab-1-3"), "those with jobs stay"


async def test_reclaim_notice_of_a_missing_machine_is_ignored() -> None:
    assert await chosen(2, 3) == ("lab-1-2", "lab-1-3")
