"""The active one of two heads is addressed, and the first head is brought back at the right time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headway.catalog.providers import LOCAL
from headway.cluster.active_head import active_head, active_or_stopped_head, require_active_head, second_head_leads
from headway.cluster.context import ClusterContext
from headway.domain.machines.machine import Machine, MachineState
from headway.errors import CommandFailed, Unreachable
from headway.health.head_recovery import MAX_STARTS, RETRY_S, TAKEOVER_LIMIT_S, HeadRecovery
from headway.transport.process import CommandResult
from tests.support.clusters import builders
from tests.support.clusters.builders import Clock

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


def of(cluster_heads: Sequence[str], place: Place) -> dict[str, Machine]:
    return {name: place.machines[name] for name in cluster_heads}


async def test_single_head_is_active_without_a_probe() -> None:
    place = Place()
    place.silent = {FIRST}
    found = await active_head(ONE, place.context, of(ONE.heads, place))
    assert found is not None
    assert found.name == FIRST
    place.stop(FIRST)
    assert await active_head(ONE, place.context, of(ONE.heads, place)) is None


@pytest.mark.parametrize(
    ("silent", "without", "who"),
    [
        ((), (), FIRST),
        ((FIRST,), (), SECOND),
        ((), (FIRST,), SECOND),  # it has only begun to start
        ((SECOND,), (), FIRST),
        ((SECOND,), (FIRST,), FIRST),
        ((FIRST, SECOND), (), FIRST),
    ],
)
async def test_active_head_is_the_first_with_answering_daemons(
    silent: Sequence[str], without: Sequence[str], who: str
) -> None:
    place = Place()
    place.silent, place.without = set(silent), set(without)
    assert (await require_active_head(TWO, place.context, of(TWO.heads, place))).name == who


async def test_require_active_head_fails_if_no_head_runs() -> None:
    place = Place()
    place.stop(FIRST)
    assert (await require_active_head(TWO, place.context, of(TWO.heads, place))).name == SECOND
    place.stop(SECOND)
    with pytest.raises(Unreachable, match="is not running"):
        await require_active_head(TWO, place.context, of(TWO.heads, place))


async def test_second_head_leads_only_if_it_reports_the_first_down() -> None:
    place = Place()
    assert await second_head_leads(TWO, place.context, place.machines) is None
    place.primary = "DOWN"
    assert (await second_head_leads(TWO, place.context, place.machines)) == place.machines[SECOND]
    assert await second_head_leads(ONE, place.context, of(ONE.heads, place)) is None
    place.stop(SECOND)
    assert await second_head_leads(TWO, place.context, place.machines) is None


async def test_stopped_first_head_is_started_without_immediate_repeat() -> None:
    place, clock = Place(), Clock()
    heads = HeadRecovery(clock)
    assert await heads.recover_first_head(TWO, place.context, place.machines) == []
    place.stop(FIRST)
    place.primary = "DOWN"
    assert await heads.recover_first_head(TWO, place.context, place.machines) == [
        (FIRST, f"started again; {SECOND} is the active head until it is back")
    ]
    assert await heads.recover_first_head(TWO, place.context, place.machines) == []
    assert place.done == [f"start {FIRST}"]


async def test_recovery_waits_for_a_takeover_in_progress() -> None:
    place, clock = Place(), Clock()
    heads = HeadRecovery(clock)
    place.stop(FIRST)
    place.primary, place.leads = "DOWN", FIRST
    assert await heads.recover_first_head(TWO, place.context, place.machines) == []
    place.leads = SECOND
    assert len(await heads.recover_first_head(TWO, place.context, place.machines)) == 1
    again = HeadRecovery(clock)
    place.leads = FIRST
    assert await again.recover_first_head(TWO, place.context, place.machines) == []
    clock.now += TAKEOVER_LIMIT_S
    assert len(await again.recover_first_head(TWO, place.context, place.machines)) == 1, (
        "one that can't lead is no reason to leave both off"
    )


async def test_recovery_waits_for_the_takeover_at_each_fault() -> None:
    place, clock = Place(), Clock()
    heads = HeadRecovery(clock)
    place.stop(FIRST)
    place.primary, place.leads = "DOWN", FIRST
    assert await heads.recover_first_head(TWO, place.context, place.machines) == []
    place.machines[FIRST] = builders.machine(FIRST)
    assert await heads.recover_first_head(TWO, place.context, place.machines) == []  # it came back by itself
    clock.now += TAKEOVER_LIMIT_S
    place.stop(FIRST)
    assert await heads.recover_first_head(TWO, place.context, place.machines) == []
    assert place.done == []


async def test_silent_first_head_is_fenced_before_it_is_started() -> None:
    place = Place()
    heads = HeadRecovery(Clock())
    place.silent, place.primary = {FIRST}, "DOWN"
    assert await heads.recover_first_head(TWO, place.context, place.machines) == []  # one look may be a slow answer
    await heads.recover_first_head(TWO, place.context, place.machines)
    assert place.done == [f"fence {FIRST}", f"start {FIRST}"]


async def test_first_head_reachable_from_the_second_is_left_alone() -> None:
    place = Place()
    heads = HeadRecovery(Clock())
    place.silent = {FIRST}  # to the server only
    for _ in range(3):
        assert await heads.recover_first_head(TWO, place.context, place.machines) == []
    assert place.done == []


async def test_recovery_gives_up_after_the_maximum_number_of_starts() -> None:
    place, clock = Place(), Clock()
    heads = HeadRecovery(clock)
    place.stop(FIRST)
    place.primary, place.fails = "DOWN", True
    for _ in range(MAX_STARTS + 2):
        await heads.recover_first_head(TWO, place.context, place.machines)
        clock.now += RETRY_S
    assert place.done == [f"start {FIRST}"] * MAX_STARTS


async def test_active_or_stopped_head_returns_a_stopped_head() -> None:
    """Who takes machines away asks it what runs there, or does not take them."""
    place = Place()
    del place.machines[FIRST]
    assert await active_or_stopped_head(TWO, place.context, place.machines) == place.machines[SECOND]
    place.stop(SECOND)
    assert await active_or_stopped_head(TWO, place.context, place.machines) == place.machines[SECOND]
    assert await active_or_stopped_head(TWO, place.context, {}) is None
