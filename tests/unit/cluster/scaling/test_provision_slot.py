"""One machine is created for a slot of a running cluster, whichever of its heads is active."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headway.cluster import changeset_execution, remote_steps
from headway.cluster.changeset_execution import ChangeSetExecution
from headway.cluster.context import ClusterContext
from headway.cluster.desired_state import build_desired_state
from headway.cluster.keys import secrets
from headway.cluster.scaling.provision_slot import provision_machine
from headway.domain.cluster import Cluster
from headway.domain.machines.machine import Machine, MachineState
from headway.domain.slurm.node_reasons import NO_MACHINE_REASON
from headway.errors import Unreachable
from headway.transport.process import CommandResult
from tests.support.clusters import builders

TWO = replace(builders.cluster(2, 0), controllers=2)
IDLE = replace(TWO, groups=(replace(TWO.groups[0], nodes=0, idle_s=600),))
FIRST, SECOND = TWO.heads
NODE = TWO.slot_names[0]


class World:
    """Two heads, of which those in `away` are stopped and those in `silent` run and do not answer."""

    def __init__(self, cluster: Cluster, away: Sequence[str] = (), silent: Sequence[str] = ()) -> None:
        site = builders.site(cluster)
        self.site = replace(site, addresses={**site.addresses, SECOND: "10.9.0.8"})
        self.cluster, self.silent = cluster, {*away, *silent}
        self.machines = {name: builders.machine(name) for name in cluster.heads}
        self.machines |= {name: builders.machine(name, MachineState.STOPPED) for name in away}
        self.told: list[tuple[str, str]] = []
        self.made: list[str] = []

    async def list(self, _: str) -> tuple[Machine, ...]:
        return tuple(self.machines.values())

    async def find(self, _: Cluster) -> Any:
        return SimpleNamespace(addresses=self.site.addresses)

    async def remote(self, machine: Machine, argv: Sequence[str], **_: Any) -> CommandResult:
        if machine.name in self.silent:
            raise Unreachable(f"{machine.name} does not answer")
        self.told.append((machine.name, " ".join(argv)))
        out = (
            f"NodeName={NODE} State=DOWN Reason={NO_MACHINE_REASON}\n"
            if argv[:2] == ["scontrol", "--oneliner"]
            else "down~ \n"
        )
        return CommandResult(tuple(argv), 0, out, "", 0.0)

    async def bring(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async def goal(*_: Any) -> Any:
            return build_desired_state(self.cluster, self.site, {})

        async def make(run: ChangeSetExecution, name: str, _: set[str]) -> bool:
            self.made.append(name)
            run.machines[name] = builders.machine(name)
            return True

        async def none(*_: Any, **__: Any) -> Any:
            return {}

        monkeypatch.setattr("headway.cluster.scaling.provision_slot._goal", goal)
        monkeypatch.setattr(secrets, "ensure_secrets", none)
        monkeypatch.setattr(ChangeSetExecution, "_make", make)
        monkeypatch.setattr(remote_steps, "run_steps", none)
        monkeypatch.setattr(changeset_execution, "steps_by_stage", lambda *_, **__: {"node": []})
        both: Any = self
        await provision_machine(self.cluster, ClusterContext(both, both, both, Path()), NODE, none)


@pytest.mark.parametrize(("away", "silent"), [((FIRST,), ()), ((), (FIRST,))])
@pytest.mark.parametrize(("cluster", "word"), [(TWO, "State=RESUME"), (IDLE, "State=POWER_UP")])
async def test_machine_is_created_while_the_second_head_leads(
    monkeypatch: pytest.MonkeyPatch, cluster: Cluster, word: str, away: Sequence[str], silent: Sequence[str]
) -> None:
    world = World(cluster, away, silent)
    await world.bring(monkeypatch)
    assert world.made == [NODE]
    assert {who for who, _ in world.told} == {SECOND}
    assert [words for _, words in world.told if word in words]


async def test_machine_is_created_while_the_first_head_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(TWO)
    del world.machines[FIRST]
    await world.bring(monkeypatch)
    assert world.made == [NODE]


async def test_no_machine_is_created_while_no_head_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody could take it in, and somebody would pay for it."""
    world = World(TWO, away=TWO.heads)
    with pytest.raises(Unreachable, match="is not running"):
        await world.bring(monkeypatch)
    assert world.made == []
