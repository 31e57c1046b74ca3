"""Spare replicas get requests when another one is lost; the number of replicas follows times and windows, and says why."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from headway.domain.serving.service_proxy import ServerState
from tests.support.servers.service_lab import SERVICES, Lab, answered, open_lab, serving, start, states


@pytest.fixture
async def lab(tmp_path: Path) -> AsyncIterator[Lab]:
    async for made in open_lab(tmp_path):
        yield made


async def shown(eve: httpx.AsyncClient) -> Any:
    return (await eve.get(f"{SERVICES}/chat")).json()


async def test_spare_replica_gets_requests_when_another_one_is_lost(lab: Lab) -> None:
    eve = await start(lab, replicas={"min": 1, "max": 1, "standby": 1})
    await lab.round()
    for job in (41, 42):
        lab.run(job)
    lab.healthy |= {"r1", "r2"}
    for _ in range(3):
        await lab.round()
    assert lab.servers == {"r1": ServerState.READY, "r2": ServerState.NEW}
    assert await states(eve) == {1: "serving", 2: "standby"}
    lab.run(41, state="FAILED", end_time=int(lab.clock()), exit_code=1)
    await lab.round()
    assert lab.servers == {"r2": ServerState.READY}
    await lab.round(3)
    assert await states(eve) == {1: "ended", 2: "serving", 3: "pending"}
    lab.run(43)
    lab.healthy.add("r3")
    for _ in range(3):
        await lab.round()
    assert lab.servers == {"r2": ServerState.READY, "r3": ServerState.NEW}


async def test_number_follows_times_and_windows_and_says_why(lab: Lab) -> None:
    lab.clock.now = 1_000_000 // 86400 * 86400 + 3600.0  # 01:00 UTC
    window = {"cron": "0 8 * * *", "hours": 1, "min": 4}
    eve = await serving(lab, replicas={"min": 2, "max": 5, "p95_ms": 500, "schedule": [window]})
    await lab.round(121)
    await lab.count({"r1": answered(50, 2.0)})
    await lab.round()
    found = await shown(eve)
    assert found["wanted"] == 3
    assert any(one["text"].startswith("2 to 3 replicas: 95 % of the answers took up to") for one in found["events"]), (
        found["events"]
    )
    await lab.round(7 * 3600)
    found = await shown(eve)
    assert found["wanted"] == 4
    assert "3 to 4 replicas: the window 0 8 * * * of 1 hours is open" in [one["text"] for one in found["events"]]
