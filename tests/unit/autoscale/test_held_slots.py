"""plan_held_slots releases as many slots as jobs request that have waited long enough, within the group's price limit."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

from headway.autoscale.held_slots import HoldSlots, ReleaseSlots, plan_held_slots
from headway.domain.cluster import Cluster, Group
from headway.domain.slurm.nodes_and_jobs import JobState
from tests.support.clusters import builders
from tests.support.clusters.explained_jobs import pending

NOW = 1_000_000.0
PRICE = builders.H100.price_usd_per_node_hour
QUEUE = "headway: held: no job has waited 15 min for it"
OVER = "headway: held: over the limit of 40 USD an hour of group more"


def cluster(**more: Any) -> Cluster:
    whole = builders.cluster(4, 0)
    names = whole.slot_names
    groups = (
        Group("own", builders.H100, 1, 1, slots=names[:1], price_usd_per_node_hour=PRICE),
        Group("more", builders.H100, 0, 3, slots=names[1:], idle_s=60, price_usd_per_node_hour=Decimal(20), **more),
    )
    return replace(whole, groups=groups)


def waiting(minutes: float, **more: Any) -> JobState:
    return replace(pending("Resources", **{"gpus": 8, **more}), eligible_time=int(NOW - 60 * minutes), partition="main")


def planned(
    made: Cluster,
    *states: str,
    jobs: tuple[JobState, ...] = (),
    there: tuple[int, ...] = (),
    backing_off: tuple[str, ...] = (),
    partitions: dict[str, tuple[str, ...]] | None = None,
) -> list[HoldSlots | ReleaseSlots]:
    """`states`: of the slots of `more`, "word" or "word|reason"; `there`: places of those with a machine; `partitions`:
    their nodes (default: one partition, main, with all)."""
    names = made.slot_names[1:]
    found = {
        name: (text.partition("|")[0], text.partition("|")[2] or "none")
        for name, text in zip(names, states, strict=True)
    }
    parts = (partitions or {"main": made.slot_names}).items()
    made = replace(made, partitions=tuple(replace(made.partitions[0], name=part, nodes=nodes) for part, nodes in parts))
    return list(plan_held_slots(made, found, {names[place] for place in there}, jobs, NOW, backing_off))


LATER = cluster(queue_time_s=900)
HELD = f"drained~|{QUEUE}"
ONE, TWO, THREE = LATER.slot_names[1:]


def test_slots_are_held_until_a_job_has_waited() -> None:
    assert planned(LATER, "idle~", "idle~", "idle~") == [HoldSlots((ONE, TWO, THREE), QUEUE)]
    assert planned(LATER, HELD, HELD, HELD, jobs=(waiting(14),)) == []
    assert planned(LATER, HELD, HELD, HELD, jobs=(waiting(15),)) == [ReleaseSlots((ONE,))]


def test_no_more_slots_are_released_than_the_jobs_request() -> None:
    pair = waiting(20, node_count=2, gpus=16)
    assert planned(LATER, HELD, HELD, HELD, jobs=(pair, waiting(3))) == [ReleaseSlots((ONE, TWO))]
    assert planned(LATER, HELD, "idle~", HELD, jobs=(pair,)) == [ReleaseSlots((ONE,))]  # the second was released before
    tasks = waiting(20, array_job_id=7, array_task="1-50")
    assert planned(LATER, HELD, HELD, HELD, jobs=(tasks,)) == [ReleaseSlots((ONE, TWO, THREE))]
    assert planned(LATER, "allocated#", "idle~", "idle~", there=(0,)) == [HoldSlots((TWO, THREE), QUEUE)]


def test_jobs_that_could_not_run_there_release_no_slot() -> None:
    for job in (
        waiting(20, gpus=16),
        waiting(20, features="own"),
        replace(waiting(20), partition="other"),
        replace(waiting(20), reason="QOSMaxJobsPerUserLimit"),
        replace(waiting(20), reason="Dependency"),
        replace(waiting(20), required_nodes=(LATER.slot_names[0],)),
        replace(waiting(20), reservation="olga"),
    ):
        assert planned(LATER, HELD, HELD, HELD, jobs=(job,)) == []
    assert planned(LATER, HELD, HELD, HELD, jobs=(waiting(20, features="more"),)) == [ReleaseSlots((ONE,))]


def test_price_limit_holds_what_costs_too_much() -> None:
    capped = cluster(queue_time_s=900, max_usd_per_hour=Decimal(40))
    many = waiting(20, node_count=3, gpus=24)
    assert planned(capped, "idle~", "idle~", "idle~") == [HoldSlots((ONE, TWO), QUEUE), HoldSlots((THREE,), OVER)]
    assert planned(capped, HELD, HELD, f"drained~|{OVER}", jobs=(many,)) == [ReleaseSlots((ONE, TWO))]
    assert planned(capped, "allocated", "mixed#", HELD, jobs=(many,), there=(0, 1)) == [HoldSlots((THREE,), OVER)]
    at_once = cluster(max_usd_per_hour=Decimal(40))
    assert planned(at_once, "idle~", "idle~", "idle~") == [HoldSlots((THREE,), OVER)]


def test_slot_that_slurm_has_powered_up_while_it_was_held_is_released() -> None:
    assert planned(LATER, f"draining|{QUEUE}", HELD, HELD, there=(0,)) == [ReleaseSlots((ONE,))]


def test_slots_of_a_person_or_closed_ones_are_left_alone() -> None:
    closed = "down~|headway: closed until 1000060: no capacity"
    assert planned(LATER, "drained~|olga: noise", closed, HELD, jobs=(waiting(20, node_count=3, gpus=24),)) == [
        ReleaseSlots((THREE,))
    ]


def test_nothing_is_released_after_a_failure_until_the_pause_is_over() -> None:
    assert planned(LATER, HELD, HELD, HELD, jobs=(waiting(20),), backing_off=("more",)) == []


def test_group_that_lost_both_fields_has_all_its_slots_again() -> None:
    assert planned(cluster(), HELD, "idle~", HELD) == [ReleaseSlots((ONE, THREE))]


def test_least_number_of_nodes_is_never_held() -> None:
    least = replace(LATER, groups=(LATER.groups[0], replace(LATER.groups[1], nodes=1)))
    assert planned(least, "idle~", "idle~", "idle~") == [HoldSlots((TWO, THREE), QUEUE)]


def test_tasks_over_the_limit_of_their_array_release_no_slot() -> None:
    tasks = waiting(20, array_job_id=7, array_task="1-50%2")
    assert planned(LATER, HELD, HELD, HELD, jobs=(tasks,)) == [ReleaseSlots((ONE, TWO))]
    runs = builders.job(901, array_job_id=7, array_task="51")
    assert planned(LATER, HELD, HELD, HELD, jobs=(tasks, runs)) == [ReleaseSlots((ONE,))]
    two = replace(tasks, array_task="1-50", array_limit=2)
    assert planned(LATER, HELD, HELD, HELD, jobs=(two,)) == [ReleaseSlots((ONE, TWO))]


def test_jobs_that_share_a_node_release_one_slot() -> None:
    small, half = waiting(20, gpus=1), waiting(20, gpus=5)
    assert planned(LATER, HELD, HELD, HELD, jobs=(small,) * 3) == [ReleaseSlots((ONE,))]
    assert planned(LATER, HELD, HELD, HELD, jobs=(half, half, small)) == [ReleaseSlots((ONE, TWO))]
    alone = replace(small, more={"oversubscribe": "none"})
    assert planned(LATER, HELD, HELD, HELD, jobs=(alone, alone)) == [ReleaseSlots((ONE, TWO))]


def test_excluded_slots_are_not_released() -> None:
    assert planned(LATER, HELD, HELD, HELD, jobs=(waiting(20, excluded_nodes=(ONE,)),)) == [ReleaseSlots((TWO,))]
    assert planned(LATER, HELD, HELD, HELD, jobs=(waiting(20, required_nodes=(THREE,)),)) == [ReleaseSlots((THREE,))]


def test_only_slots_of_the_partitions_of_the_job_are_released() -> None:
    parts = {"main": (THREE,), "other": (ONE, TWO)}
    assert planned(LATER, HELD, HELD, HELD, jobs=(waiting(20),), partitions=parts) == [ReleaseSlots((THREE,))]
    both = replace(waiting(20, node_count=3, gpus=24), partition="other,main")
    assert planned(LATER, HELD, HELD, HELD, jobs=(both,), partitions=parts) == [ReleaseSlots((ONE, TWO, THREE))]


def test_slots_that_the_job_names_come_first() -> None:
    pair = waiting(20, node_count=2, gpus=16, required_nodes=(THREE,))
    assert planned(LATER, HELD, HELD, HELD, jobs=(pair,)) == [ReleaseSlots((ONE, THREE))]
    assert planned(in_two_groups(), HELD, HELD, HELD, jobs=(pair,)) == [ReleaseSlots((ONE,)), ReleaseSlots((THREE,))]


def test_job_with_a_constraint_that_is_not_evaluated_counts_in_each_group() -> None:
    for features in ("[last*1]", "(more|last)&last"):
        job = waiting(20, features=features)
        assert planned(in_two_groups(), HELD, HELD, HELD, jobs=(job,)) == [
            ReleaseSlots((ONE,)),
            ReleaseSlots((THREE,)),
        ]


def in_two_groups() -> Cluster:
    """Returns the cluster with the last slot in a group of its own."""
    own, more = LATER.groups
    last = replace(more, name="last", most=1, slots=more.slots[2:])
    return replace(LATER, groups=(own, replace(more, most=2, slots=more.slots[:2]), last))


def test_job_is_counted_in_one_group() -> None:
    made = in_two_groups()
    pair, triple = waiting(20, node_count=2, gpus=16), waiting(20, node_count=3, gpus=24)
    assert planned(made, HELD, HELD, HELD, jobs=(waiting(20),)) == [ReleaseSlots((ONE,))]
    assert planned(made, HELD, HELD, HELD, jobs=(waiting(20), pair)) == [
        ReleaseSlots((ONE, TWO)),
        ReleaseSlots((THREE,)),
    ]
    assert planned(made, HELD, HELD, HELD, jobs=(triple,)) == [ReleaseSlots((ONE, TWO)), ReleaseSlots((THREE,))]
    assert planned(made, HELD, HELD, HELD, jobs=(waiting(20),), backing_off=("more",)) == [ReleaseSlots((THREE,))]


def test_slot_that_is_no_longer_drained_is_held_again() -> None:
    assert planned(LATER, f"idle~|{QUEUE}", HELD, HELD) == [HoldSlots((ONE,), QUEUE)]


def test_group_that_lost_idle_has_its_nodes_again() -> None:
    fixed = replace(LATER, groups=(LATER.groups[0], replace(LATER.groups[1], idle_s=None, nodes=2)))
    assert planned(fixed, f"drained|{QUEUE}", "idle", HELD, there=(0, 1)) == [ReleaseSlots((ONE,))]
