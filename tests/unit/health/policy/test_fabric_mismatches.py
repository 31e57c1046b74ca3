"""Figures of a fabric test that differ from the declared leaf switches are named with the remedy, and nothing else is."""

from __future__ import annotations

import random
from collections.abc import Mapping

import pytest

from headway.domain.fabric.fabric_results import FabricGroup, FabricMeasurement
from headway.health.policy.fabric_evidence import REAL, SIMULATED, Bands
from headway.health.policy.fabric_mismatches import switch_mismatches
from headway.health.policy.fabric_plan import FabricPlan


def layout(*sizes: int) -> dict[str, str]:
    return {f"lab-{leaf}-{place}": f"leaf{leaf}" for leaf, size in enumerate(sizes, 1) for place in range(1, size + 1)}


def measured(
    declared: Mapping[str, str],
    cabled: Mapping[str, str],
    across: float = 40.0,
    *,
    slow: str = "",
    bands: Bands = REAL,
    noise: float = 0.0,
    share: float = 0.2,
    expected_gb_s: float = 0.0,
) -> list[tuple[str, str]]:
    """Runs a fabric test of nodes whose cables lead to the leaf switches `cabled`, and returns the mismatches. Pairs below one
    switch reach 100 GB/s, others `across`, and those with nodes of `slow` a share of that."""
    dice = random.Random(7)

    def figure(group: FabricGroup) -> float:
        best = 100.0 if len({cabled[node] for node in group.nodes}) == 1 else across
        return best * (share if set(slow.split()) & set(group.nodes) else 1.0) * (1 - noise * dice.random())

    plan = FabricPlan(declared, bands, expected_gb_s=expected_gb_s)
    while (planned := plan.next_round()) is not None:
        plan.record(FabricMeasurement(group, figure(group), again=planned.again) for group in planned.groups)
    return [(one.what, one.remedy) for one in switch_mismatches(plan.evidence, simulated=bands is SIMULATED)]


@pytest.mark.parametrize("sizes", [(2, 2), (4, 4, 4), (3, 1), (1, 1, 1), (8,) * 12, (5, 2, 7), (4,)])
@pytest.mark.parametrize("noise", [0.0, 0.15])
@pytest.mark.parametrize("bands", [REAL, SIMULATED])
def test_nothing_differs_where_cables_are_as_declared(sizes: tuple[int, ...], noise: float, bands: Bands) -> None:
    assert measured(layout(*sizes), layout(*sizes), 20.0, bands=bands, noise=noise) == []


def test_slow_node_is_no_mismatch() -> None:
    assert measured(layout(4, 4), layout(4, 4), slow="lab-1-3") == []


@pytest.mark.parametrize("sizes", [(4, 4), (5, 3), (3, 5), (8, 8, 8)])
@pytest.mark.parametrize("slow", ["lab-2-3", "lab-1-1", "lab-1-1 lab-2-2"])
@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_slow_node_that_the_plan_lets_pass_is_named_and_no_cable_of_its_leaf(
    sizes: tuple[int, ...], slow: str, noise: float
) -> None:
    """The plan's figure is so low that the fabric test names nothing."""
    found = measured(layout(*sizes), layout(*sizes), 100.0, slow=slow, share=0.5, expected_gb_s=20.0, noise=noise)
    told = [(what, remedy) for what, remedy in found if not what.startswith("pairs across leaf switches are as fast")]
    assert [what.split(" reaches ")[0] for what, _ in told] == slow.split()
    assert {remedy for _, remedy in told} == {"look at its RDMA ports and cables"}
    if not noise:
        assert told[0][0] == f"{slow.split()[0]} reaches at most 50 GB/s in its pairs, others at least 100 GB/s"


@pytest.mark.parametrize("sizes", [(4, 4), (5, 3), (8, 8, 8)])
@pytest.mark.parametrize("across", [40.0, 60.0])
def test_slow_node_is_named_where_leaf_switches_differ(sizes: tuple[int, ...], across: float) -> None:
    """Its pairs are slower than those across leaf switches, so it is not connected to another one."""
    found = measured(layout(*sizes), layout(*sizes), across, slow="lab-2-3", share=0.2, expected_gb_s=5.0)
    assert [what for what, _ in found] == [
        f"lab-2-3 reaches at most 20 GB/s in its pairs, others at least {across:.3g} GB/s"
    ]


@pytest.mark.parametrize("sizes", [(4, 4), (5, 3), (6, 6, 6)])
def test_node_at_another_switch_is_not_blamed_for_its_speed(sizes: tuple[int, ...]) -> None:
    declared = layout(*sizes)
    found = measured(declared, {**declared, "lab-2-3": "elsewhere"}, 40.0, expected_gb_s=20.0)
    assert [what.partition(":")[0] for what, _ in found] == [
        "lab-2-3 is declared below leaf2 and measures like a node of another leaf switch"
    ]


@pytest.mark.parametrize("bands", [REAL, SIMULATED])
def test_node_below_another_leaf_switch_is_named_with_both_figures(bands: Bands) -> None:
    declared = layout(3, 3)
    ((what, remedy),) = measured(declared, {**declared, "lab-1-3": "leaf2"}, 20.0, bands=bands)
    assert what == (
        "lab-1-3 is declared below leaf1 and measures like the nodes of leaf2: 20 GB/s with nodes of leaf1, 100 GB/s with "
        "those of leaf2"
    )
    assert remedy == (
        "connect it to leaf1, or declare it below leaf2 (fabric.switches; with owned machines, the order of hosts)"
    )


@pytest.mark.parametrize("sizes", [(8, 8), (8, 8, 8), (6,) * 10])
def test_two_exchanged_nodes_are_both_named(sizes: tuple[int, ...]) -> None:
    declared = layout(*sizes)
    found = measured(declared, {**declared, "lab-1-2": "leaf2", "lab-2-5": "leaf1"})
    assert sorted(what.partition(" and measures")[0] for what, _ in found) == [
        "lab-1-2 is declared below leaf1",
        "lab-2-5 is declared below leaf2",
    ]


def test_exchange_in_pairs_of_nodes_shows_both_layouts() -> None:
    declared = layout(2, 2)
    ((what, _),) = measured(declared, {**declared, "lab-1-2": "leaf2", "lab-2-2": "leaf1"})
    assert what == (
        "fast pairs join lab-1-1,lab-2-2 and lab-1-2,lab-2-1, and declared are lab-1-[1-2] below leaf1 and lab-2-[1-2] below "
        "leaf2"
    )


def test_two_declared_switches_that_are_one_are_named() -> None:
    declared = layout(3, 3, 3)
    ((what, remedy),) = measured(declared, {**declared, **dict.fromkeys(layout(3), "leaf2")})
    assert what == (
        "leaf1 and leaf2 measure as one leaf switch: pairs across them reach 100 GB/s, those within 100 GB/s"
    )
    assert "lab-1-[1-3],lab-2-[1-3]" in remedy


def test_one_declared_switch_that_is_two_is_named() -> None:
    declared = layout(8)
    cabled = {node: f"rack{1 + place % 2}" for place, node in enumerate(declared)}
    found = measured(declared, cabled)
    assert found, "the nodes fall into two groups"
    assert found[0][0].startswith("the nodes below leaf1 fall into ")
    assert "pairs of one group reach 100 GB/s, of two 40 GB/s" in found[0][0]


def test_fabric_without_difference_between_leaf_switches_is_said_unless_gpus_are_simulated() -> None:
    found = measured(layout(4, 4), layout(4, 4), 97.0)
    assert found == [
        (
            "pairs across leaf switches are as fast as those within (97 and 100 GB/s)",
            "jobs gain no bandwidth from nodes of one leaf switch: leave out --switches, which makes them wait",
        )
    ]
    assert measured(layout(4, 4), layout(4, 4), 97.0, bands=SIMULATED) == []


def test_leaf_switches_that_keep_apart_what_is_near_are_named() -> None:
    declared = layout(4, 4)
    cabled = {node: f"rack{place % 4}" for place, node in enumerate(declared)}  # every pair within a leaf is far
    found = measured(declared, cabled)
    assert found
    assert found[0][0].startswith(("fast pairs join", "pairs within leaf switches are slower"))


def test_little_is_said_of_figures_that_contradict_each_other() -> None:
    dice = random.Random(3)
    plan = FabricPlan(layout(6, 6), REAL)
    while (planned := plan.next_round()) is not None:
        plan.record(
            FabricMeasurement(group, dice.choice((20.0, 100.0)), again=planned.again) for group in planned.groups
        )
    assert switch_mismatches(plan.evidence) == ()
