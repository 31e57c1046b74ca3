"""Machines created for free slots enter service, or their failure is reported."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headway.changes.cluster_changes import DesiredState
from headway.changes.desired_accounts import desired_accounts
from headway.cluster import readiness
from headway.cluster.context import ClusterContext
from headway.domain.slurm.node_reasons import HELD_FOR_QUEUE_TIME, NO_MACHINE_REASON
from headway.errors import Unreachable
from tests.support.clusters import builders
from tests.support.clusters.slurm_cluster import FakeProvider, FakeSlurm

HEAD = builders.machine("lab-head")


def slurm(state: str = "down") -> FakeSlurm:
    """Returns a Slurm that has lab-1-2 in this state for want of a machine."""
    made = FakeSlurm(["lab-1-1", "lab-1-2"])
    made.states["lab-1-2"], made.reasons["lab-1-2"] = state, NO_MACHINE_REASON
    return made


def context(controller: FakeSlurm) -> ClusterContext:
    return ClusterContext(None, None, controller, Path())  # type: ignore[arg-type]


async def test_registered_node_is_resumed() -> None:
    controller = slurm()
    await readiness.return_new_node(context(controller), HEAD, "lab-1-2")
    assert controller.did == ["scontrol update NodeName=lab-1-2 State=RESUME"]


async def test_node_that_never_registers_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else whoever made it would say that it is ready."""
    monkeypatch.setattr(readiness, "REGISTER_S", 0.01)
    monkeypatch.setattr(readiness, "POLL_S", 0.001)
    controller = slurm("down*")
    with pytest.raises(Unreachable, match="lab-1-2: slurmd did not register") as caught:
        await readiness.return_new_node(context(controller), HEAD, "lab-1-2")
    assert "journalctl -u slurmd" in caught.value.hint
    assert controller.did == []


async def test_starting_slurmrestd_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its unit counts as started before it listens: the first question of all would end the apply."""
    answers = [False, False, True]

    @asynccontextmanager
    async def reader(*_: Any) -> AsyncIterator[Any]:
        yield SimpleNamespace(ping=ping)

    async def ping() -> bool:
        return answers.pop(0)

    monkeypatch.setattr(readiness, "open_slurm_reader", reader)
    monkeypatch.setattr(readiness, "POLL_S", 0.001)
    await readiness.wait_for_slurmrestd(builders.cluster(), context(slurm()), HEAD)
    assert answers == []


@pytest.mark.parametrize("most", [4, 5])
async def test_node_that_stays_gets_its_previous_state_back(most: int) -> None:
    lab = builders.cluster(4, 0)
    lab = replace(lab, groups=(replace(lab.groups[0], most=most),))
    controller = FakeSlurm(lab.slot_names)
    reasons = ("headway: leaves", "headway: leaves: ann: a fan", "headway: leaves")
    controller.reasons = dict(zip(lab.slot_names[1:], reasons, strict=True))
    goal = DesiredState(lab, {}, desired_accounts(lab), lab.slot_names)
    assert (
        await readiness.mark_empty_slots(goal, context(controller), builders.machine(lab.head), {"lab-1-4"})
        == frozenset()
    )
    assert controller.did == [
        "scontrol update NodeName=lab-1-2 State=RESUME",
        "scontrol update NodeName=lab-1-3 State=DRAIN Reason=ann: a fan",
    ]


async def test_machine_left_down_by_a_killed_apply_is_returned_to_service(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """lab-1-3 was made and marked as before when that apply was killed; lab-1-4 could not be made."""
    lab = builders.cluster(4, 0)
    controller = FakeSlurm(lab.slot_names)
    controller.states = dict.fromkeys(lab.slot_names, "down")
    controller.reasons = dict.fromkeys(lab.slot_names[2:], readiness.NO_MACHINE_REASON)
    provider = FakeProvider(builders.machine(name) for name in (lab.head, *lab.slot_names[:3]))
    waited: list[frozenset[str]] = []
    returned: list[frozenset[str]] = []

    async def wait(_: Any, __: Any, ___: Any, names: frozenset[str]) -> None:
        waited.append(names)

    async def give(_: Any, __: Any, ___: Any, names: frozenset[str]) -> tuple[str, ...]:
        returned.append(names)
        return ()

    async def spares(*_: Any) -> None: ...

    async def report(*_: Any, **__: Any) -> None: ...

    monkeypatch.setattr(readiness, "wait_for_nodes", wait)
    monkeypatch.setattr(readiness, "return_nodes", give)
    monkeypatch.setattr(readiness, "hold_spares", spares)
    monkeypatch.setattr(readiness, "update_reservations", spares)
    context: Any = ClusterContext(provider, None, controller, Path())  # type: ignore[arg-type]
    await readiness.finish_bring_up(
        DesiredState(lab, {}, desired_accounts(lab), lab.slot_names), context, report, frozenset(), failed=("lab-1-4",)
    )
    assert waited == returned == [frozenset({"lab-1-3"})]


async def test_held_slots_that_have_a_machine_are_released() -> None:
    """The group had `idle` until this apply."""
    lab = builders.cluster(4, 0)
    controller = FakeSlurm(lab.slot_names)
    controller.states = dict.fromkeys(lab.slot_names, "idle") | {"lab-1-2": "drained", "lab-1-3": "drained~"}
    controller.reasons = dict.fromkeys(lab.slot_names[1:3], f"{HELD_FOR_QUEUE_TIME} 15 min for it")
    goal = DesiredState(lab, {}, desired_accounts(lab), lab.slot_names[:2])
    await readiness.mark_empty_slots(goal, context(controller), HEAD)
    assert controller.did[-1] == "scontrol update NodeName=lab-1-2 State=UNDRAIN"


async def test_machine_of_a_held_slot_is_resumed() -> None:
    controller = slurm("idle")
    controller.reasons["lab-1-2"] = f"{HELD_FOR_QUEUE_TIME} 15 min for it"
    await readiness.return_new_node(context(controller), HEAD, "lab-1-2")
    assert controller.did == ["scontrol update NodeName=lab-1-2 State=RESUME"]
