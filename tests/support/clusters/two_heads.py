"""A cluster of two heads, of which tests stop or silence one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from headway.catalog.providers import LOCAL
from headway.cluster.context import ClusterContext
from headway.domain.machines.machine import Machine, MachineState
from headway.errors import CommandFailed, Unreachable
from headway.transport.process import CommandResult
from tests.support.clusters import builders

ONE = builders.cluster()
TWO = replace(ONE, controllers=2)
FIRST, SECOND = TWO.heads
PING = f"Slurmctld(primary) at {FIRST} is {{}}\nSlurmctld(backup) at {SECOND} is UP\n"


class Place:
    """Two heads, as a provider and as Connections. `silent` ones run and do not answer; `without` have no slurmrestd."""

    traits = LOCAL

    def __init__(self) -> None:
        self.machines = {name: builders.machine(name) for name in TWO.heads}
        self.silent: set[str] = set()
        self.without: set[str] = set()
        self.primary = "UP"
        self.leads = SECOND
        self.done: list[str] = []
        self.fails = False

    @property
    def context(self) -> ClusterContext:
        both: Any = self
        return ClusterContext(both, both, both, Path())

    def stop(self, name: str) -> None:
        self.machines[name] = replace(self.machines[name], state=MachineState.STOPPED)

    async def remote(
        self, machine: Machine, argv: Sequence[str], *, timeout_s: float, check: bool = True
    ) -> CommandResult:
        if machine.name in self.silent or self.machines[machine.name].state is MachineState.STOPPED:
            raise Unreachable(f"no SSH to {machine.name}")
        if argv[0] == "systemctl":
            return CommandResult(tuple(argv), int(machine.name in self.without) * 3, "", "", 0.0)
        if list(argv) == ["scontrol", "ping"]:
            return CommandResult(tuple(argv), 0, PING.format(self.primary), "", 0.0)
        if argv[0] == "cat":
            assert argv[1] == f"{TWO.state_folder}/leads"
            return CommandResult(tuple(argv), 0, f"{self.leads} 5e7c\n", "", 0.0)
        assert list(argv) == ["true"], argv
        return CommandResult(tuple(argv), 0, "", "", 0.0)

    async def drop(self, name: str) -> None:
        pass

    async def fence(self, machine: Machine) -> None:
        self.done.append(f"fence {machine.name}")
        self.stop(machine.name)

    async def start(self, machine: Machine) -> None:
        self.done.append(f"start {machine.name}")
        if self.fails:
            raise CommandFailed(("podman",), 1, "no space left")
