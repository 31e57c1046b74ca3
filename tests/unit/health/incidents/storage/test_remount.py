"""Lost volumes are remounted with growing pauses for up to a week, and a limited number at once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from headway.cluster.context import ClusterContext
from headway.domain.machines.machine import Machine
from headway.domain.storage.folders import StorageFolders, Volume
from headway.errors import Unreachable
from headway.health.context import MOUNTS_AT_ONCE, HealthContext
from headway.health.incidents.storage.remount import FIRST_PAUSE_S, LONGEST_PAUSE_S, MOUNT_S, remount_volumes
from headway.transport.process import CommandResult
from tests.support.clusters import builders
from tests.support.waiting import eventually

LAB = replace(
    builders.cluster(40), storage=StorageFolders(volumes=(Volume("models", "/models", "nfs4", "filer:/models"),))
)


class Nodes:
    """Their file server is `away` for so many looks. As provider and as Connections."""

    def __init__(self, away: int = 0) -> None:
        self.away, self.looks, self.now = away, 0, 0.0
        self.at_once = self.most = 0
        self.pauses: list[float] = []
        self.gone = False

    async def list(self, _: str) -> tuple[Machine, ...]:
        return tuple(builders.machine(name) for name in LAB.slot_names)

    async def remote(self, at: Machine, argv: Sequence[str], **_: Any) -> CommandResult:
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        await asyncio.sleep(0)
        self.at_once -= 1
        if self.gone:
            raise Unreachable(f"{at.name} does not answer")
        if argv[0] == "systemctl":
            assert list(argv) == ["systemctl", "start", "--no-block", "models.mount"]
            return CommandResult(tuple(argv), 0, "", "", 0.0)
        assert json.loads(argv[-1])["paths"] == ["/models"]
        self.looks += 1
        row = {"path": "/models", "error": "no answer for 5 s"} if self.looks <= self.away else {"path": "/models"}
        return CommandResult(tuple(argv), 0, json.dumps(row), "", 0.0)

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)

    @property
    def context(self) -> HealthContext:
        cluster_context = ClusterContext(cast(Any, self), cast(Any, None), cast(Any, self), Path("/nowhere"))
        return HealthContext(LAB, cluster_context, lambda: self.now, self.sleep)


async def test_volume_that_leaves_the_cluster_file_is_no_longer_waited_for() -> None:
    nodes = Nodes(away=1_000_000)
    context = nodes.context

    async def apply_without_volumes(_: float) -> None:
        assert nodes.looks == 1, "the volume is still looked for"
        context.cluster = replace(LAB, storage=StorageFolders())

    context.sleep = apply_without_volumes
    assert await remount_volumes(context, "lab-1-1") == ""


async def test_remount_retries_with_growing_pauses_for_a_week() -> None:
    nodes = Nodes(away=10)
    assert await remount_volumes(nodes.context, "lab-1-1") == ""
    assert nodes.pauses[0] == FIRST_PAUSE_S
    assert nodes.pauses == sorted(nodes.pauses)
    nodes = Nodes(away=1_000_000)
    assert await remount_volumes(nodes.context, "lab-1-1") == "/models: no answer for 5 s"
    assert MOUNT_S <= nodes.now < MOUNT_S + LONGEST_PAUSE_S + 1
    assert len(nodes.pauses) < MOUNT_S / LONGEST_PAUSE_S + 20


async def test_remount_includes_head_exports_first() -> None:
    class Owned(Nodes):
        server_id = "s1"

        async def exports(self, cluster: str) -> tuple[str, ...]:
            assert cluster == LAB.name
            return ("/home", "/scratch")

        async def candidate(self, *_: Any) -> Machine:
            raise AssertionError

        note = replaced = inventory = candidate

        async def remote(self, at: Machine, argv: Sequence[str], **_: Any) -> CommandResult:
            if argv[0] == "systemctl":
                assert list(argv[3:]) == ["home.mount", "scratch.mount", "models.mount"]
                return CommandResult(tuple(argv), 0, "", "", 0.0)
            assert json.loads(argv[-1])["paths"] == ["/home", "/scratch", "/models"]
            self.looks += 1
            row = {"path": "/home", "error": "no answer for 5 s"} if self.looks <= self.away else {"path": "/home"}
            return CommandResult(tuple(argv), 0, json.dumps(row), "", 0.0)

    nodes = Owned(away=2)
    assert await remount_volumes(nodes.context, "lab-1-1") == ""
    assert len(nodes.pauses) == 2


async def test_remount_limits_concurrent_checks() -> None:
    nodes = Nodes(away=200)
    context = nodes.context
    ends = await asyncio.gather(*(remount_volumes(context, name) for name in LAB.slot_names[:40]))
    assert set(ends) == {""}
    assert nodes.most == MOUNTS_AT_ONCE


async def test_remount_retries_unreachable_node() -> None:
    nodes = Nodes()
    nodes.gone = True
    task = asyncio.create_task(remount_volumes(nodes.context, "lab-1-1"))
    await eventually(lambda: len(nodes.pauses) >= 2)
    nodes.gone = False
    assert await task == ""
