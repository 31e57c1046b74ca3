"""A rollout recreates both heads, the second one first, and never while the other one is missing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from headway.changes.cluster_changes import earlier_image_note
from headway.domain.machines.machine import Machine
from headway.errors import Refused
from headway.rollout import image_rollout as module
from headway.rollout.image_rollout import roll_heads
from headway.rollout.rollout_changes import RolloutState, rollout_changes
from headway.store.store import Store
from tests.support.clusters import builders
from tests.support.clusters.rollout_cluster import LAB, NEW, Fleet, context, fleet, store

__all__ = ["fleet", "store"]


TWO = replace(LAB, controllers=2)
FIRST, SECOND = TWO.heads


def test_rollout_plan_recreates_the_second_head_first() -> None:
    machines = {name: replace(builders.machine(name), image="id-old") for name in TWO.heads}
    found = rollout_changes(TWO, RolloutState(machines), "id-new", NEW, head=True, deadline=False)
    assert [change.where for change in found.changes] == [SECOND, FIRST]
    assert "slurmctld is down meanwhile" not in found.changes[0].why
    assert f"{SECOND} is the active head meanwhile" in found.changes[1].why
    note = rollout_changes(TWO, RolloutState(machines), "id-new", NEW, head=False, deadline=False).notes[-1]
    assert note.startswith("lab-head,lab-head2 run another node image and stay unchanged; --head")
    machines[FIRST] = replace(machines[FIRST], image="id-new")
    assert [
        change.where
        for change in rollout_changes(TWO, RolloutState(machines), "id-new", NEW, head=True, deadline=False).changes
    ] == [SECOND]


def test_plan_suggests_the_head_flag_for_heads_with_an_old_image() -> None:
    for head in TWO.heads:
        assert earlier_image_note(TWO, (head, "lab-1-1")).endswith("headway roll lab --head")
    assert earlier_image_note(TWO, ("lab-1-1",)).endswith("headway roll lab")


class Heads(Fleet):
    """The heads alone, and what an apply makes of those that are missing."""

    def __init__(self, *there: str) -> None:
        super().__init__()
        self.machines = {name: replace(builders.machine(name), image="id-old") for name in there}
        self.fails = False

    async def stop(self, machine: Machine) -> None:
        self.note(f"stop {machine.name}")

    async def delete(self, machine: Machine) -> None:
        self.note(f"delete {machine.name}")
        del self.machines[machine.name]

    async def apply(self, *_: Any) -> None:
        self.note("apply")
        if self.fails:
            raise Refused("it did not get there")
        for name in TWO.heads:
            self.machines.setdefault(name, replace(builders.machine(name), image="id-new"))

    async def wait(self, _: Any, __: Any, ___: Any, names: frozenset[str]) -> None:
        self.note(f"wait for {len(names)}")

    async def roll(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "apply_cluster", self.apply)
        monkeypatch.setattr(module, "wait_for_nodes", self.wait)
        await roll_heads(replace(context(self, store), cluster=TWO), self.report, back=False)


RECREATED = {name: [f"stop {name}", f"delete {name}", "apply", "wait for 0"] for name in TWO.heads}


async def test_rollout_recreates_both_heads_second_one_first(
    fleet: Fleet, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    heads = Heads(FIRST, SECOND)
    await heads.roll(store, monkeypatch)
    assert heads.did == RECREATED[SECOND] + RECREATED[FIRST]
    heads.did.clear()
    await heads.roll(store, monkeypatch)
    assert heads.did == ["apply", "wait for 0"]


async def test_rollout_keeps_one_head_while_the_other_is_missing(
    fleet: Fleet, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a killed roll may leave it."""
    heads = Heads(FIRST)
    await heads.roll(store, monkeypatch)
    assert heads.did == ["apply", "wait for 0", *RECREATED[FIRST]]
    heads = Heads(FIRST, SECOND)
    heads.fails = True
    with pytest.raises(Refused):
        await heads.roll(store, monkeypatch)
    assert heads.did == RECREATED[SECOND][:3]
    assert FIRST in heads.machines
