"""A fabric test measures few groups, and names exactly the node or link that is slow."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterable
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.domain.fabric.fabric_results import (
    FabricGroup,
    FabricMeasurement,
    FabricVerdict,
    GroupKind,
    Suspect,
    SuspectKind,
    link_name,
)
from headway.health.policy.fabric_evidence import REAL, SIMULATED, Bands
from headway.health.policy.fabric_plan import FabricPlan
from headway.health.policy.fabric_rounds import all_together, first_rounds, halves, tournament

Figure = Callable[[FabricGroup, bool], float]


def layout(*sizes: int) -> dict[str, str]:
    return {f"lab-{leaf}-{place}": f"leaf{leaf}" for leaf, size in enumerate(sizes, 1) for place in range(1, size + 1)}


def run(plan: FabricPlan, figure: Figure) -> int:
    """Measures every round of the plan with `figure`. Returns the number of rounds."""
    rounds = 0
    while (planned := plan.next_round()) is not None:
        nodes = [node for group in planned.groups for node in group.nodes]
        assert len(nodes) == len(set(nodes)), "a node is in two groups of one round"
        plan.record(
            FabricMeasurement(group, figure(group, planned.again), again=planned.again) for group in planned.groups
        )
        rounds += 1
        assert rounds < 100
    return rounds


def slow(leaf_of: dict[str, str], *parts: str, share: float = 0.3) -> Figure:
    """Returns figures of a fabric in which these nodes and links are slow: a group is as slow as its slowest part."""

    def figure(group: FabricGroup, again: bool) -> float:
        leaves = sorted({leaf_of[node] for node in group.nodes})
        links = {link_name(one, other) for one, other in combinations(leaves, 2)}
        return 100.0 * (share if {*group.nodes, *links} & set(parts) else 1.0)

    return figure


def named(plan: FabricPlan) -> set[str]:
    return {finding.suspect.name for finding in plan.verdict().findings}


def test_tournament_lets_every_two_meet_once() -> None:
    for count in range(9):
        met = [two for row in tournament(count) for two in row]
        assert sorted(met) == list(combinations(range(count), 2))


@pytest.mark.parametrize("sizes", [(2,), (3,), (4,), (2, 2), (4, 4, 4), (3, 1), (1, 1, 1), (16,) * 20, (5, 2, 7)])
def test_first_rounds_cover_every_node_with_few_groups(sizes: tuple[int, ...]) -> None:
    leaf_of = layout(*sizes)
    groups = [group for row in first_rounds(leaf_of) for group in row]
    assert {node for group in groups for node in group.nodes} == set(leaf_of)
    most = 5 + min(8, len(sizes).bit_length() + len(sizes) % 2)
    assert max(sum(node in group.nodes for group in groups) for node in leaf_of) <= most
    assert len(first_rounds(leaf_of)) <= 3 + 8


def test_single_nodes_are_measured_where_their_gpus_have_links() -> None:
    first = first_rounds(layout(2), frozenset({"lab-1-1"}))[0]
    assert first == (FabricGroup(GroupKind.NODE, ("lab-1-1",)),)


@pytest.mark.parametrize("spread", [1, 10])
def test_work_grows_with_the_number_of_nodes(spread: int) -> None:
    """`spread`: leaf switches. One node of eight is slow, and so is one link."""

    def calls(count: int) -> int:
        leaf_of = layout(*(count // spread,) * spread)
        plan, made = FabricPlan(leaf_of, REAL), 0

        def note(_: object, event: str, __: object) -> None:
            nonlocal made
            made += event == "call"

        sys.setprofile(note)
        try:
            run(plan, slow(leaf_of, *list(leaf_of)[::8], link_name("leaf1", "leaf2")))
            plan.verdict()
        finally:
            sys.setprofile(None)
        return made

    assert calls(320) < 2.6 * calls(160)


def test_largest_group_is_a_sample_of_all_leaf_switches() -> None:
    leaf_of = layout(*(16,) * 8)
    (group,) = all_together(leaf_of, tuple(leaf_of))
    assert len(group.nodes) == 32
    assert {leaf_of[node] for node in group.nodes} == set(leaf_of.values())
    assert [len(half.nodes) for half in halves(leaf_of, group)] == [16, 16]


@pytest.mark.parametrize("sizes", [(4,), (2, 2), (3,), (4, 4, 4), (8, 8), (1, 1, 1, 1), (3, 1)])
def test_nothing_is_named_on_a_sound_fabric(sizes: tuple[int, ...]) -> None:
    plan = FabricPlan(layout(*sizes), REAL)
    run(plan, lambda group, again: 100.0)
    assert plan.verdict() == FabricVerdict()


@pytest.mark.parametrize("sizes", [(4,), (2, 2), (3,), (4, 4, 4), (8, 8), (1, 1, 1, 1), (3, 2), (16,) * 20])
def test_slow_node_is_named_and_nothing_else(sizes: tuple[int, ...]) -> None:
    leaf_of = layout(*sizes)
    for node in list(leaf_of)[:: max(1, len(leaf_of) // 8)]:
        plan = FabricPlan(leaf_of, REAL)
        run(plan, slow(leaf_of, node))
        assert named(plan) == {node}, node
        (finding,) = plan.verdict().findings
        assert (finding.expected_gb_s, finding.gb_s) == (100, 30)
        assert all(node in one.group.nodes for one in finding.slow)
        assert any(one.again for one in finding.slow)
        assert plan.verdict().unclear == ()


def test_four_nodes_need_few_rounds() -> None:
    leaf_of = layout(2, 2)
    assert run(FabricPlan(leaf_of, REAL), slow(leaf_of)) == 4
    assert run(FabricPlan(leaf_of, REAL), slow(leaf_of, "lab-2-1")) == 5


@pytest.mark.parametrize("sizes", [(4, 4, 4, 4), (2, 2, 2, 2), (16,) * 6])
def test_slow_link_is_named_and_nothing_else(sizes: tuple[int, ...]) -> None:
    leaf_of = layout(*sizes)
    plan = FabricPlan(leaf_of, REAL)
    run(plan, slow(leaf_of, link_name("leaf1", "leaf3")))
    assert [finding.suspect for finding in plan.verdict().findings] == [
        Suspect(SuspectKind.LINK, link_name("leaf1", "leaf3"))
    ]


def test_only_link_between_two_leaves_is_held_against_pairs_within_them() -> None:
    leaf_of = layout(2, 2)
    plan = FabricPlan(leaf_of, REAL)
    run(plan, slow(leaf_of, link_name("leaf1", "leaf2"), share=0.05))
    assert named(plan) == {link_name("leaf1", "leaf2")}
    (finding,) = plan.verdict().findings
    assert (finding.gb_s, finding.expected_gb_s) == (5, 10)
    assert all(group.kind is not GroupKind.ALL for group in plan.evidence.best), "not all together over the slow link"


def test_slow_link_that_no_pair_used_is_found_by_halving() -> None:
    leaf_of = layout(*(2,) * 20)
    used = {plan_link(leaf_of, group) for row in first_rounds(leaf_of) for group in row}
    every = {link_name(f"leaf{one}", f"leaf{other}") for one, other in combinations(range(1, 21), 2)}
    link = link_name("leaf1", "leaf2") if link_name("leaf1", "leaf2") not in used else sorted(every - used)[0]
    plan = FabricPlan(leaf_of, REAL)
    run(plan, slow(leaf_of, link))
    assert named(plan) <= {link}


def plan_link(leaf_of: dict[str, str], group: FabricGroup) -> str:
    return link_name(*(leaf_of[node] for node in group.nodes))


def test_two_slow_nodes_are_both_named() -> None:
    leaf_of = layout(4, 4)
    for two in (("lab-1-1", "lab-1-2"), ("lab-1-1", "lab-2-1"), ("lab-1-3", "lab-2-4")):
        plan = FabricPlan(leaf_of, REAL)
        run(plan, slow(leaf_of, *two))
        assert named(plan) == set(two)


def test_two_nodes_that_fit_equally_are_not_blamed() -> None:
    leaf_of = layout(2)
    plan = FabricPlan(leaf_of, REAL, expected_gb_s=100)
    rounds = run(plan, slow(leaf_of, "lab-1-2"))
    assert rounds == 2, "the pair is measured once more"
    assert named(plan) == set()
    (words,) = plan.verdict().unclear
    assert "lab-1-1 and lab-1-2 equally" in words


def test_two_nodes_without_an_expected_figure_have_nothing_to_be_compared_with() -> None:
    plan = FabricPlan(layout(2), REAL)
    run(plan, lambda group, again: 1.0)
    assert plan.verdict() == FabricVerdict()


def test_plan_below_which_every_group_is_names_no_node() -> None:
    plan = FabricPlan(layout(2, 2), REAL, expected_gb_s=400)
    run(plan, lambda group, again: 100.0)
    assert named(plan) == set()
    assert plan.verdict().unclear


def test_plans_figure_is_the_least_of_a_pair() -> None:
    leaf_of = layout(4)
    for reached, names in ((99.0, {"lab-1-2"}), (101.0, set[str]())):
        plan = FabricPlan(leaf_of, REAL, expected_gb_s=100)
        run(plan, slowed_to(reached, "lab-1-2"))
        assert named(plan) == names


def slowed_to(gb_s: float, node: str) -> Figure:
    """Returns figures of 120 GB/s, and `gb_s` for every group with the node."""
    return lambda group, again: gb_s if node in group.nodes else 120.0


def test_slow_gpus_of_one_node_are_named() -> None:
    leaf_of = layout(4)
    plan = FabricPlan(leaf_of, REAL, frozenset(leaf_of))
    run(plan, lambda group, again: 50.0 if group.nodes == ("lab-1-3",) else 400.0)
    (finding,) = plan.verdict().findings
    assert finding.suspect == Suspect(SuspectKind.GPUS, "lab-1-3")


def test_figure_that_was_low_only_once_is_measured_again_and_blames_no_node() -> None:
    leaf_of = layout(2, 2)
    plan = FabricPlan(leaf_of, REAL)
    run(plan, lambda group, again: 10.0 if "lab-1-1" in group.nodes and not again else 100.0)
    assert plan.verdict().findings == ()


def test_group_that_fails_is_as_bad_as_a_slow_one() -> None:
    leaf_of = layout(2, 2)
    plan = FabricPlan(leaf_of, REAL)
    while (planned := plan.next_round()) is not None:
        for group in planned.groups:
            bad = "lab-2-2" in group.nodes
            plan.record([FabricMeasurement(group, 0 if bad else 90, "timed out" if bad else "", planned.again)])
    assert named(plan) == {"lab-2-2"}


def test_dropped_node_is_in_no_further_round() -> None:
    leaf_of = layout(4, 4)
    plan = FabricPlan(leaf_of, REAL)
    first = plan.next_round()
    assert first is not None
    plan.drop("lab-1-1")
    while (planned := plan.next_round()) is not None:
        assert all("lab-1-1" not in group.nodes for group in planned.groups)
        plan.record(FabricMeasurement(group, 100.0) for group in planned.groups)
    assert named(plan) == set()


def noisy(figure: Figure, seed: int, bands: Bands) -> Figure:
    """Returns the figures with noise: some are several times too low, as on a machine with other load."""
    dice = random.Random(seed)
    lowest = 1 - bands.within_leaf

    def noise(group: FabricGroup, again: bool) -> float:
        return figure(group, again) * dice.uniform(lowest if dice.random() < 0.9 else 0.1, 1.0)

    return noise


@settings(deadline=None, derandomize=True)
@given(st.integers(0, 10_000), st.lists(st.integers(1, 4), min_size=1, max_size=4))
def test_noise_names_no_node_on_a_loaded_machine(seed: int, sizes: list[int]) -> None:
    leaf_of = layout(*sizes)
    plan = FabricPlan(leaf_of, SIMULATED)
    run(plan, noisy(slow(leaf_of), seed, SIMULATED))
    names: Iterable[str] = named(plan)
    assert len(set(names)) == 0
