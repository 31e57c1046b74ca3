"""A cluster's ChangeSet: what is said of what no apply changes."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from headway.changes.accounts import desired
from headway.changes.cluster import Goal, changeset
from headway.cluster.observe import _of_earlier_image
from headway.domain.observed import Observed
from headway.errors import CommandFailed
from headway.machines import image
from tests import builders

LAB = builders.cluster(2)
MADE = tuple(replace(builders.machine(name), image="old") for name in (LAB.head, *LAB.slot_names))


def test_a_newer_node_image_is_no_change_and_is_told_with_what_to_do() -> None:
    goal = Goal(LAB, {}, desired(LAB))
    machines = {machine.name: machine for machine in MADE}
    found = changeset(goal, Observed(machines, of_earlier_image=tuple(machines)))
    (note,) = found.notes
    assert "lab-head" in note
    assert f"another node image than {LAB.image}" in note
    assert "rebuild" in note
    assert "headway roll lab --head" in note
    assert changeset(goal, Observed(machines)).notes == ()
    assert not [one for one in found.changes if one.kind.startswith("machine")]


async def test_machines_are_of_an_earlier_image_until_one_of_the_present_inputs_made_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    present: Any = None

    async def find(name: str) -> Any:
        if isinstance(present, Exception):
            raise present
        return present

    monkeypatch.setattr(image, "find", find)
    head = replace(MADE[0], image="new")
    assert await _of_earlier_image("debian13", [head, *MADE[1:]]) == tuple(sorted(one.name for one in MADE))
    present = SimpleNamespace(id="new")
    assert await _of_earlier_image("debian13", [head, *MADE[1:]]) == tuple(sorted(one.name for one in MADE[1:]))
    assert await _of_earlier_image("debian13", [replace(one, image="") for one in MADE]) == ()  # of somebody's own
    present = CommandFailed(["podman"], 125, "no")
    assert await _of_earlier_image("debian13", MADE) == ()
