"""Which slots of a group cost money."""

from __future__ import annotations

from dataclasses import replace

from headway.domain.machines.rental_price import paid_slots
from tests.support.clusters import builders


class CountedName(str):
    """A name that counts the comparisons of all names."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        CountedName.compared += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


def test_first_slots_of_an_autoscaled_group_and_those_with_a_machine_are_paid() -> None:
    group = replace(builders.cluster(4, 0).groups[0], nodes=1, idle_s=60)
    one, two, three, four = group.slots
    assert paid_slots(group, ()) == (one,)
    assert paid_slots(group, (four, two)) == (one, two, four)
    assert paid_slots(replace(group, idle_s=None, nodes=2), (four,)) == (four, one)
    assert paid_slots(replace(group, idle_s=None, nodes=2), (two, three, four)) == (two, three, four)


def test_each_name_is_compared_a_few_times_however_many_there_are() -> None:
    """A cluster of ten thousand slots is planned every few seconds."""
    slots = tuple(CountedName(f"lab-1-{number}") for number in range(400))
    group = replace(builders.cluster(4, 0).groups[0], nodes=10, idle_s=60, slots=slots)
    there = {CountedName(name) for name in slots[200:]}
    CountedName.compared = 0
    assert len(paid_slots(group, there)) == 210
    assert CountedName.compared < 4 * len(slots)
