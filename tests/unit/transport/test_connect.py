"""A dead jump host is tried once for all waiting connections and does not delay connections to other machines."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from headway.domain.machines.machine import Jump, Machine
from headway.errors import Unreachable
from headway.transport import connect
from tests.support.clusters import builders

DOOR, OTHER = (Jump(address, "guest", host_key="ssh-ed25519 AAAA") for address in ("10.0.0.1", "10.0.0.2"))


class Link:
    def is_closed(self) -> bool:
        return False


class Doors(connect.Dialer):
    """Jump hosts answer, or do not, when the test says so; what is behind them always does."""

    def __init__(self) -> None:
        super().__init__("", 5.0, 5.0)
        self.tried: list[str] = []
        self.dead = {DOOR.address}
        self.waited = asyncio.Event()

    async def _open(self, name: str, machine: Machine, tunnel: Any) -> Any:
        if tunnel is None:
            self.tried.append(machine.address)
            if machine.address in self.dead:
                await self.waited.wait()
                raise Unreachable(f"{name} does not answer SSH on port 22")
        return Link()


def behind(jump: Jump, number: int) -> Machine:
    return replace(builders.machine(f"lab-1-{number}"), jump=jump)


async def test_dead_jump_host_is_tried_once_and_delays_only_its_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(connect, "monotonic", lambda: now)
    doors = Doors()
    eight = [asyncio.create_task(doors.connect(behind(DOOR, n))) for n in range(8)]
    await asyncio.sleep(0)
    await doors.connect(behind(OTHER, 9))
    assert not any(task.done() for task in eight)
    doors.waited.set()
    for number, error in enumerate(await asyncio.gather(*eight, return_exceptions=True)):
        assert isinstance(error, Unreachable)
        assert error.message == f"the jump host 10.0.0.1 does not answer SSH on port 22 (on the way to lab-1-{number})"
    assert doors.tried == [DOOR.address, OTHER.address]
    doors.dead.clear()
    with pytest.raises(Unreachable):
        await doors.connect(behind(DOOR, 1))
    now += connect._FAILED_S
    await doors.connect(behind(DOOR, 1))
    await doors.connect(behind(DOOR, 2))
    assert doors.tried == [DOOR.address, OTHER.address, DOOR.address]


async def test_cancelled_connect_does_not_cancel_other_waiters() -> None:
    doors = Doors()
    first = asyncio.create_task(doors.connect(behind(DOOR, 1)))
    second = asyncio.create_task(doors.connect(behind(DOOR, 2)))
    await asyncio.sleep(0)
    first.cancel()
    doors.dead.clear()
    assert isinstance(await second, Link)
