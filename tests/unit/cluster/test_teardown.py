"""down deletes the other machines when one cannot be deleted, and says what it keeps."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headway.catalog.providers import SSH
from headway.cluster.context import ClusterContext
from headway.cluster.teardown import take_down
from headway.domain.machines.machine import Machine
from headway.errors import CommandFailed
from tests.support.clusters import builders

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


@pytest.mark.parametrize("delete_data", [False, True])
async def test_down_names_the_environments_that_it_keeps_on_owned_machines(delete_data: bool) -> None:
    async def listed(_: str) -> tuple[Machine, ...]:
        return ()

    async def report(*_: Any, **__: Any) -> None: ...

    async def release(_: str, *, delete_data: bool) -> tuple[str, ...]:
        return () if delete_data else ("10.0.0.1:/srv/headway-state",)

    cluster = builders.cluster(2, 0, provider=SSH)
    context = ClusterContext(SimpleNamespace(list=listed, release=release), *(None, None), Path())  # type: ignore[arg-type]
    kept = await take_down(cluster, context, report, delete_data=delete_data)
    assert kept == (() if delete_data else ("10.0.0.1:/srv/headway-state", "/scratch/.headway/lab/environments"))
