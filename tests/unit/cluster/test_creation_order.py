"""The head's machine is created before those of the nodes, and a node alone waits for no head."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from headway.catalog.providers import LOCAL
from headway.changes.cluster_changes import DesiredState
from headway.changes.desired_accounts import desired_accounts
from headway.cluster.changeset_execution import ChangeSetExecution
from headway.cluster.context import ClusterContext
from headway.domain.changeset import Change, ChangeSet
from headway.domain.machines.machine import Machine
from headway.domain.machines.observed_state import Observed
from tests.support.clusters import builders

LAB = builders.cluster(2, 0)


class Provider:
    """Records the machines that it creates."""

    traits = LOCAL

    def __init__(self) -> None:
        self.created: list[str] = []

    async def create(self, name: str) -> Machine:
        self.created.append(name)
        return builders.machine(name)


async def created(monkeypatch: pytest.MonkeyPatch, names: list[str], changes: ChangeSet) -> list[str]:
    """The machines in the order of their creation, when these are brought up together."""

    async def nothing(*_: Any, **__: Any) -> None: ...

    async def request(_: Any, name: str) -> str:
        return name

    async def observe(*_: Any) -> str:
        return "seen"

    for name, work in {"_request": request, "_wait": nothing, "_set_up": nothing, "_observe": observe}.items():
        monkeypatch.setattr(ChangeSetExecution, name, work)
    provider: Any = Provider()
    context: Any = ClusterContext(provider, None, None, Path())  # type: ignore[arg-type]
    goal = DesiredState(LAB, {}, desired_accounts(LAB))
    run = ChangeSetExecution(goal, context, nothing, None, {}, Observed({}), changes)  # type: ignore[arg-type]
    new = [Change("machine.create", name, name, "new") for name in names]
    async with asyncio.timeout(30):
        await asyncio.gather(*(run.bring(change.where, [change]) for change in new))
    made: list[str] = provider.created
    return made


async def test_head_is_created_first(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [*LAB.slot_names, LAB.head]
    changes = ChangeSet("lab", tuple(Change("machine.create", name, name, "new") for name in names))
    assert (await created(monkeypatch, names, changes))[0] == LAB.head


async def test_node_of_a_running_cluster_waits_for_no_head(monkeypatch: pytest.MonkeyPatch) -> None:
    assert await created(monkeypatch, ["lab-1-2"], ChangeSet("lab", ())) == ["lab-1-2"]
