"""GPU-hour caps are reset once per period, also after the server was down."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

from headway.cluster.accounts.gpu_hour_cap_resets import reset_due_usage
from headway.cluster.context import ClusterContext
from headway.domain.machines.machine import Machine
from headway.domain.teams import GpuHourCap, Team
from headway.transport.process import CommandResult
from tests.support.clusters import builders
from tests.support.clusters.builders import cluster, machine

LAB = cluster(
    teams=(
        Team("vision", ("alice",), 1, gpu_hours=GpuHourCap(Decimal(720), "month")),
        Team("speech", ("sam",), 1),
    )
)


class Head:
    """Takes sacctmgr and nothing else."""

    def __init__(self) -> None:
        self.heard: list[list[str]] = []

    async def remote(self, at: Machine, argv: Sequence[str], *, timeout_s: float, **_: Any) -> CommandResult:
        assert (at.name, argv[0]) == ("lab-head", "sacctmgr"), f"unexpected: {argv}"
        self.heard.append(list(argv))
        return CommandResult(tuple(argv), 0, "", "", 0.0)


async def test_gpu_hour_usage_resets_once_per_period(tmp_path: Path) -> None:
    store, head = await builders.store(tmp_path), Head()
    context = ClusterContext(cast(Any, None), store, cast(Any, head), tmp_path)

    async def at(month: int, day: int) -> list[tuple[str, str]]:
        return await reset_due_usage(LAB, context, machine("lab-head"), datetime(2026, month, day, tzinfo=UTC))

    try:
        assert await at(1, 20) == []  # seen for the first time: its usage begins with it
        assert await at(1, 31) == []
        assert [team for team, _ in await at(3, 2)] == ["vision"]  # away over February's start too: once
        assert await at(3, 3) == []
        assert len(head.heard) == 1
        assert head.heard[0][-2:] == ["set", "RawUsage=0"]
        assert "name=vision" in head.heard[0]
    finally:
        await store.close()


async def test_refill_recorded_in_future_does_not_block_resets(tmp_path: Path) -> None:
    store, head = await builders.store(tmp_path), Head()
    context = ClusterContext(cast(Any, None), store, cast(Any, head), tmp_path)
    try:
        await store.gpu_hour_cap_resets.record("lab", "vision", datetime(2031, 1, 1, tzinfo=UTC).timestamp())
        for day in (10, 20):
            assert await reset_due_usage(LAB, context, machine("lab-head"), datetime(2026, 1, day, tzinfo=UTC)) == []
        for _ in range(2):
            await reset_due_usage(LAB, context, machine("lab-head"), datetime(2026, 2, 1, tzinfo=UTC))
        assert len(head.heard) == 1
    finally:
        await store.close()
