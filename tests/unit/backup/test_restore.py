"""A restore stops, disables or fences Slurm's daemons in the right order before it replaces their data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headway.backup import restore as module
from headway.backup.restore import STAMP, restore_cluster
from headway.cluster.context import ClusterContext
from headway.domain.cluster import Cluster
from headway.domain.machines.machine import Machine, MachineState
from headway.errors import CommandFailed, Refused, Unreachable
from headway.transport.process import CommandResult
from tests.support.clusters import builders

ONE = builders.cluster(2, 0)
TWO = replace(builders.cluster(), controllers=2)
FIRST, SECOND = TWO.heads
GONE = (f"fence {SECOND}", f"delete {SECOND}")
REST = f"{FIRST}: stop slurmctld slurmrestd slurmdbd"


class Heads:
    """As a provider and as Connections; an apply that finds slurmdbd running ends the restore."""

    def __init__(self) -> None:
        self.machines = {name: builders.machine(name) for name in TWO.heads}
        self.silent: set[str] = set()
        self.slow: set[str] = set()  # their daemons do not end in time
        self.stubborn: set[str] = set()  # they refuse to end
        self.stamp = ""
        self.did: list[str] = []

    async def list(self, _: str) -> tuple[Machine, ...]:
        return tuple(self.machines.values())

    async def remote(self, machine: Machine, argv: Sequence[str], *, timeout_s: float, check: bool) -> CommandResult:
        if machine.name in self.silent:
            raise Unreachable(f"{machine.name} does not answer")
        if list(argv) == ["cat", STAMP]:
            return CommandResult(tuple(argv), 0, self.stamp, "", 0.0)
        verb, units = (argv[1], argv[2:]) if argv[1] != "disable" else ("disable --now", argv[3:])
        assert argv[0] == "systemctl", argv
        assert verb in ("stop", "disable --now"), argv
        self.did.append(f"{machine.name}: {verb} {' '.join(unit.removesuffix('.service') for unit in units)}")
        if machine.name in self.slow:
            raise CommandFailed(argv, None, "")
        if machine.name in self.stubborn:
            return CommandResult(tuple(argv), 1, "", "Job for slurmctld.service failed", 0.0)
        return CommandResult(tuple(argv), 0, "", "", 0.0)

    async def fence(self, machine: Machine) -> None:
        self.did.append(f"fence {machine.name}")

    async def delete(self, machine: Machine) -> None:
        self.did.append(f"delete {machine.name}")
        del self.machines[machine.name]

    async def drop(self, name: str) -> None:
        assert name not in self.machines

    async def apply(self, cluster: Cluster, *_: Any, rests: bool, **__: Any) -> None:
        assert rests
        self.applied = cluster
        self.did.append("apply")

    async def report(self, *_: Any, **__: Any) -> None: ...

    async def restore(self, monkeypatch: pytest.MonkeyPatch, cluster: Cluster = TWO) -> list[str]:
        both: Any = self
        monkeypatch.setattr(module, "apply_cluster", self.apply)
        with pytest.raises(Refused, match="slurmdbd did not stop"):
            await restore_cluster(
                cluster, ClusterContext(both, both, both, Path()), self.report, Path("/nowhere"), b"", "ref"
            )
        return self.did


async def test_restore_stops_second_controller_before_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would take over within seconds, and schedule from a state that is being replaced."""
    assert await Heads().restore(monkeypatch) == [f"{SECOND}: stop slurmctld", REST, "apply"]


async def test_restore_fences_and_deletes_unresponsive_second_head(monkeypatch: pytest.MonkeyPatch) -> None:
    heads = Heads()
    heads.silent = {SECOND}
    assert await heads.restore(monkeypatch) == [*GONE, REST, "apply"]
    heads = Heads()
    heads.slow = {SECOND}
    assert await heads.restore(monkeypatch) == [f"{SECOND}: stop slurmctld", *GONE, REST, "apply"]


async def test_restore_fences_and_deletes_stopped_second_head(monkeypatch: pytest.MonkeyPatch) -> None:
    heads = Heads()
    heads.machines[SECOND] = replace(heads.machines[SECOND], state=MachineState.STOPPED)
    assert await heads.restore(monkeypatch) == [*GONE, REST, "apply"]


async def test_restore_stops_second_controller_when_first_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    heads = Heads()
    heads.silent = {FIRST}
    assert await heads.restore(monkeypatch) == [f"{SECOND}: stop slurmctld", "apply"]


class OwnHeads(Heads):
    """Machines one owns; the second head's place is another machine's by the inventory."""

    server_id = "s1"

    async def replaced(self, _: str) -> frozenset[str]:
        return frozenset([SECOND])

    async def candidate(self, *_: Any) -> Machine:
        raise AssertionError

    note = exports = inventory = candidate


async def test_restore_ignores_silent_second_head_awaiting_replacement(monkeypatch: pytest.MonkeyPatch) -> None:
    assert await OwnHeads().restore(monkeypatch) == [f"{SECOND}: stop slurmctld", REST, "apply"]
    heads = OwnHeads()
    heads.silent = {SECOND}
    assert await heads.restore(monkeypatch) == [REST, "apply"]


async def test_restore_disables_second_controller_absent_from_backup(monkeypatch: pytest.MonkeyPatch) -> None:
    """It stays, as every machine does; after a start of its own it must not take over with a file that is no longer true."""
    heads = Heads()
    assert await heads.restore(monkeypatch, ONE) == [f"{SECOND}: disable --now slurmctld", REST, "apply"]


async def test_restore_keeps_machines_added_after_backup(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs of the backup may run on any slot that has one; which of them may go Slurm says, once it is back."""
    (group,) = ONE.groups
    four = builders.cluster(4, 0)
    small = replace(four, groups=(replace(group, most=4, slots=four.slot_names),))
    heads = Heads()
    del heads.machines[SECOND]
    heads.machines |= {name: builders.machine(name) for name in (*four.slot_names[:3], "lab-9-9")}
    await heads.restore(monkeypatch, small)
    assert heads.applied == replace(small, groups=(replace(small.groups[0], nodes=3),))


async def test_restore_does_not_raise_minimum_of_autoscaled_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its machines stay anyway; as many wanted, Slurm's configuration would keep them awake."""
    (group,) = ONE.groups
    four = builders.cluster(4, 0)
    elastic = replace(four, groups=(replace(group, nodes=0, most=4, slots=four.slot_names, idle_s=600),))
    heads = Heads()
    del heads.machines[SECOND]
    heads.machines |= {name: builders.machine(name) for name in four.slot_names[:3]}
    await heads.restore(monkeypatch, elastic)
    assert heads.applied == elastic


@pytest.mark.parametrize("how", ["slow", "stubborn"])
async def test_restore_aborts_when_slurm_daemons_do_not_stop(monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """Nothing is put back beside a controller that writes."""
    heads: Any = Heads()
    setattr(heads, how, {FIRST})
    monkeypatch.setattr(module, "apply_cluster", heads.apply)
    with pytest.raises(Refused, match=f"{FIRST}: Slurm's daemons could not be stopped"):
        await restore_cluster(
            ONE, ClusterContext(heads, heads, heads, Path()), heads.report, Path("/nowhere"), b"", "ref"
        )
    assert "apply" not in heads.did
