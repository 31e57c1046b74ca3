"""A machine is restarted only after repeated failed observations, and not if it answers with an error."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from headway.catalog.providers import LOCAL
from headway.changes.cluster_changes import changeset
from headway.cluster import observe as observing
from headway.cluster.context import ClusterContext
from headway.cluster.desired_state import build_desired_state
from headway.domain.machines.observed_state import ObservedFile, ObservedMachine, ObservedUnit
from headway.errors import CommandFailed, HeadwayError, Unreachable
from tests.support.clusters import builders

LAB = builders.cluster(2, spares=0)
GOAL = build_desired_state(LAB, builders.site(LAB), {})
GONE = Unreachable("lab-1-1 does not answer")
BUSY = CommandFailed(["python3"], None, "", where="lab-1-1")  # past its time: it hangs, or works hard
BROKEN = CommandFailed(["python3"], 1, "no space left on device", where="lab-1-1")


class Provider:
    traits = LOCAL

    async def list(self, _: str) -> tuple[Any, ...]:
        return tuple(builders.machine(name) for name in LAB.machine_names)

    async def attached(self, _: str) -> set[str]:
        return set()


def as_wanted(role: str) -> ObservedMachine:
    wanted = GOAL.roles[role]
    return ObservedMachine(
        files={
            path: ObservedFile(wanted.digests[path], file.mode, file.owner, file.group, 1.0)
            for path, file in wanted.files.items()
        },
        units={unit.name: ObservedUnit(True, True, 2.0, 7, wanted.loaded[unit.name]) for unit in wanted.units},
        managed=tuple(wanted.files),
        dirs=frozenset(path for path, _, _ in wanted.dirs) | frozenset(path for path, _, _ in wanted.homes),
    )


async def seen(monkeypatch: pytest.MonkeyPatch, *errors: HeadwayError) -> dict[str, str]:
    """What is restarted, and why, where the first looks at lab-1-1 end with these."""
    left = list(errors)

    async def look_at(_: Any, machine: Any, *__: Any, **___: Any) -> tuple[ObservedMachine, dict[str, str]]:
        if machine.name == "lab-1-1" and left:
            raise left.pop(0)
        return as_wanted(LAB.role_of(machine.name)), {}

    async def nothing(*_: Any, **__: Any) -> Any:
        return ()

    async def no_accounts(*_: Any) -> None:
        return None

    monkeypatch.setattr(observing, "RETRY_S", 0.0)
    monkeypatch.setattr(observing, "observe_machine", look_at)
    monkeypatch.setattr(observing, "read_accounts", no_accounts)
    monkeypatch.setattr(observing, "read_reservations", no_accounts)
    monkeypatch.setattr(observing, "_of_earlier_image", nothing)
    monkeypatch.setattr(observing.local_images, "list_images", nothing)
    context = ClusterContext(cast(Any, Provider()), cast(Any, None), cast(Any, None), Path("/nowhere"))
    found = changeset(GOAL, await observing.observe_cluster(GOAL, context))
    return {change.where: change.why for change in found.changes if change.kind == "machine.restart"}


@pytest.mark.parametrize("error", [GONE, BUSY, BROKEN])
async def test_single_failed_observation_restarts_nothing(monkeypatch: pytest.MonkeyPatch, error: HeadwayError) -> None:
    assert await seen(monkeypatch, error) == {}


@pytest.mark.parametrize("error", [GONE, BUSY])
async def test_unresponsive_machine_is_restarted(monkeypatch: pytest.MonkeyPatch, error: HeadwayError) -> None:
    assert await seen(monkeypatch, error, error) == {"lab-1-1": error.message}


async def test_machine_that_answers_with_an_error_is_not_restarted(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CommandFailed, match="no space left") as caught:
        await seen(monkeypatch, BROKEN, BROKEN)
    assert "headway node reboot lab-1-1" in caught.value.hint
