"""Machines that were made for free slots come into service, or somebody hears of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headway.cluster import ready
from headway.cluster.env import Env
from headway.domain.slots import NO_MACHINE
from headway.errors import Unreachable
from headway.machines.run import Ran
from tests import builders

HEAD = builders.machine("lab-head")


class Controller:
    """Has lab-1-2 down for want of a machine; whether it hears from that is `states`."""

    def __init__(self, states: str) -> None:
        self.states = states
        self.did: list[str] = []

    async def remote(self, _: Any, argv: Sequence[str], **__: Any) -> Ran:
        out = ""
        if "show" in argv:
            out = f"NodeName=lab-1-2 State={self.states} Reason={NO_MACHINE} [root@2026-01-01T00:00:00]\n"
        else:
            self.did.append(" ".join(argv[2:]))
        return Ran(tuple(argv), 0, out, "", 0.0)


def env(controller: Controller) -> Env:
    return Env(None, None, controller, Path())  # type: ignore[arg-type]


async def test_a_machine_that_slurm_has_heard_from_takes_work() -> None:
    controller = Controller("DOWN")
    await ready.serve(env(controller), HEAD, "lab-1-2")
    assert controller.did == ["NodeName=lab-1-2 State=RESUME"]


async def test_one_that_slurm_never_hears_from_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else whoever made it would say that it is ready."""
    monkeypatch.setattr(ready, "REGISTER_S", 0.01)
    monkeypatch.setattr(ready, "POLL_S", 0.001)
    controller = Controller("DOWN+NOT_RESPONDING")
    with pytest.raises(Unreachable, match="lab-1-2: slurmd did not register") as caught:
        await ready.serve(env(controller), HEAD, "lab-1-2")
    assert "journalctl -u slurmd" in caught.value.hint
    assert controller.did == []


async def test_a_slurmrestd_that_has_just_been_started_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its unit counts as started before it listens: the first question of all would end the apply."""
    answers = [False, False, True]

    @asynccontextmanager
    async def reader(*_: Any) -> AsyncIterator[Any]:
        yield SimpleNamespace(ping=ping)

    async def ping() -> bool:
        return answers.pop(0)

    monkeypatch.setattr(ready, "reader_of", reader)
    monkeypatch.setattr(ready, "POLL_S", 0.001)
    await ready.wait_for_rest(builders.cluster(), env(Controller("")), HEAD)
    assert answers == []
