"""assign_tiers finds preemption tiers exactly when an exhaustive search finds some."""

from __future__ import annotations

from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from headway.clusterfile.partition_tiers import PreemptionRule, assign_tiers
from tests.support.property_examples import examples

NAMES = ("a", "b", "c", "d")


def granted(wishes: dict[str, PreemptionRule], tiers: dict[str, int]) -> bool:
    """What Slurm does: a job preempts every preemptable partition in a lower tier."""
    preemptable = {name for wish in wishes.values() for name in wish.preempts}
    return all(
        {other for other in preemptable if tiers[other] < tiers[name]} == wish.preempts
        and wish.tier in (None, tiers[name])
        for name, wish in wishes.items()
    )


def wish(name: str) -> st.SearchStrategy[PreemptionRule]:
    others = [other for other in NAMES if other != name]
    return st.builds(
        PreemptionRule,
        st.frozensets(st.sampled_from(others)),
        st.one_of(st.none(), st.integers(min_value=1, max_value=3)),
    )


@given(st.fixed_dictionaries({name: wish(name) for name in NAMES}))
@settings(max_examples=examples(200))
def test_assigns_tiers_exactly_when_a_valid_assignment_exists(wishes: dict[str, PreemptionRule]) -> None:
    tiers, clashes = assign_tiers(wishes)
    possible = any(
        granted(wishes, dict(zip(NAMES, values, strict=True))) for values in product(range(1, 8), repeat=len(NAMES))
    )
    assert bool(clashes) is not possible
    if possible:
        assert granted(wishes, tiers)
    else:
        assert all(clash.partition in wishes and clash.message for clash in clashes)


def test_urgent_partition_gets_higher_tier_than_preempted_ones() -> None:
    tiers, clashes = assign_tiers(
        {
            "train": PreemptionRule(frozenset(), None),
            "debug": PreemptionRule(frozenset(), None),
            "urgent": PreemptionRule(frozenset({"train", "debug"}), None),
        }
    )
    assert clashes == []
    assert tiers == {"train": 1, "debug": 1, "urgent": 2}


def test_preemption_chain_gets_rising_tiers() -> None:
    tiers, _ = assign_tiers(
        {
            "low": PreemptionRule(frozenset(), None),
            "mid": PreemptionRule(frozenset({"low"}), None),
            "high": PreemptionRule(frozenset({"low", "mid"}), None),
        }
    )
    assert tiers == {"low": 1, "mid": 2, "high": 3}
