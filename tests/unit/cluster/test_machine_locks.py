"""An apply does not set up a machine while a repair restarts it, and a repair does not restart a machine that is being
set up."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from headway.changes.cluster_changes import DesiredState
from headway.changes.desired_accounts import desired_accounts
from headway.cluster.changeset_execution import ChangeSetExecution
from headway.cluster.context import ClusterContext
from headway.domain.changeset import Change, ChangeSet
from headway.domain.machines.machine import Machine
from headway.domain.machines.observed_state import NOT_OBSERVED, Observed
from headway.health.context import HealthContext
from headway.health.incidents.repair import restart_machine
from tests.support.clusters import builders

LAB = builders.cluster(1, 0)
NODE = LAB.slot_names[0]


class OneMachine:
    """The provider and the connections of a cluster with one node, whose switching off lasts until `off` is set."""

    def __init__(self) -> None:
        self.did: list[str] = []
        self.machine = builders.machine(NODE)
        self.off, self.goes_off, self.set_up = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.traits = SimpleNamespace(powers_off_machines=True)
        self.context = ClusterContext(self, None, self, Path("/nowhere"))  # type: ignore[arg-type]

    async def list(self, _: str) -> tuple[Machine, ...]:
        return (self.machine,)

    async def stop(self, _: Machine) -> None:
        self.did.append("stop")
        self.goes_off.set()
        await self.off.wait()

    async def start(self, _: Machine) -> None:
        if self.did.count("stop") > self.did.count("start"):
            self.machine = replace(self.machine, started_at=self.machine.started_at + 1)
            self.did.append("start")

    async def drop(self, _: str) -> None: ...

    async def wait_ready(self, _: Machine, *, timeout_s: float) -> None: ...

    async def repair(self) -> None:
        health = HealthContext(LAB, self.context)
        await restart_machine(health, NODE, 0.0)

    async def apply(self, kind: str = "file.write") -> None:
        async def report(_: str, words: str, **__: Any) -> None:
            if "waits" in words:
                self.did.append("apply waits")

        changes = (Change(kind, NODE, "a", "b"),)
        goal = DesiredState(LAB, {}, desired_accounts(LAB), LAB.slot_names)
        seen = Observed({NODE: self.machine}, {NODE: NOT_OBSERVED})
        run = ChangeSetExecution(goal, self.context, report, None, {}, seen, ChangeSet("lab", changes))  # type: ignore[arg-type]

        async def observe(_: str) -> Any:
            self.did.append("observe")
            return NOT_OBSERVED

        async def set_up(_: str, __: Any, *, fresh: bool) -> None:
            assert not fresh
            self.did.append("set up")
            self.set_up.set()
            await self.off.wait()
            self.did.append("set up ends")

        run._observe, run._set_up = observe, set_up  # type: ignore[assignment,method-assign]
        run.machines.update(seen.machines)
        await run.bring(NODE, list(changes))


async def test_apply_waits_for_the_restart_and_looks_at_the_machine_again() -> None:
    node = OneMachine()
    async with asyncio.TaskGroup() as group:
        group.create_task(node.repair())
        await node.goes_off.wait()
        group.create_task(node.apply())
        await asyncio.sleep(0)
        node.off.set()
    assert node.did == ["stop", "apply waits", "start", "observe", "set up", "set up ends"]


async def test_repair_waits_until_the_machine_is_set_up() -> None:
    node = OneMachine()
    async with asyncio.TaskGroup() as group:
        group.create_task(node.apply())
        await node.set_up.wait()
        group.create_task(node.repair())
        await asyncio.sleep(0)
        assert node.did == ["set up"]
        node.off.set()
    assert node.did == ["set up", "set up ends", "stop", "start"]


async def test_apply_does_not_restart_a_machine_that_a_repair_has_just_restarted() -> None:
    node = OneMachine()
    async with asyncio.TaskGroup() as group:
        group.create_task(node.repair())
        await node.goes_off.wait()
        group.create_task(node.apply("machine.restart"))
        await asyncio.sleep(0)
        node.off.set()
    assert node.did == ["stop", "apply waits", "start", "observe", "observe", "set up", "set up ends"]
