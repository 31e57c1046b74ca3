"""down deletes the other machines when one cannot be deleted."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headway.cluster.context import ClusterContext
from headway.cluster.teardown import take_down
from headway.domain.machines.machine import Machine
from headway.errors import CommandFailed
from tests.support import builders

LAB = builders.cluster(2, 0)


async def test_down_deletes_all_other_machines_before_it_fails() -> None:
    there = {name: builders.machine(name) for name in LAB.machine_names}

    async def listed(_: str) -> tuple[Machine, ...]:
        return tuple(there.values())

    async def delete(machine: Machine) -> None:
        if machine.name == "lab-1-1":
            raise CommandFailed(["podman", "rm"], 125, "device busy")
        for _ in range(9):
            await asyncio.sleep(0)
        del there[machine.name]

    async def report(*_: Any, **__: Any) -> None: ...

    async def release(*_: Any, **__: Any) -> Any:
        raise AssertionError("a machine is still there")

    provider: Any = SimpleNamespace(list=listed, delete=delete, release=release)
    nothing: Any = None
    with pytest.raises(CommandFailed, match="device busy"):
        await take_down(LAB, ClusterContext(provider, nothing, nothing, Path()), report, delete_data=True)
    assert list(there) == ["lab-1-1"]
