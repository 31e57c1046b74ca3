"""A person sees their own limits in teams and partitions, and what they use of them, in the API and on the page."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest

from headway.domain.slurm.accounts import AccountShare
from headway.domain.teams import Team, UserLimits
from tests.support.clusters import builders
from tests.support.servers.server_fakes import Server, reading

TEAM = Team("vision", ("eve", "bob"), 1, per_user=UserLimits(gpus=16, submitted_jobs=20, recent_gpu_hours=Decimal(50)))


@pytest.fixture
async def limited(server: Server) -> Server:
    debug = replace(builders.cluster().partitions[0], name="debug", per_user=UserLimits(running_jobs=1, cpus=64))
    server.backend.clusters["lab"] = {"teams": (TEAM,), "partitions": (*builders.cluster().partitions, debug)}
    jobs = (
        builders.job(1, user="eve", account="vision", gpus=8),
        builders.job(2, user="eve", account="vision", partition="debug", gpus=0, cpus=32),
        builders.job(3, "PENDING", user="eve", account="vision", gpus=8),
        builders.job(4, user="bob", account="vision", gpus=8),
        builders.job(5, "COMPLETED", user="eve", account="vision", gpus=8),
    )
    share = AccountShare("vision", 1.0, 1.0, None, 30.0, {"eve": 12.34})
    server.backend.answers |= {"read": reading(*jobs), "machines": (), "shares": (share,)}
    await server.apply("lab")
    await server.state.readings.snapshot(builders.cluster())
    return server


async def test_own_limits_count_own_jobs_only(limited: Server) -> None:
    eve = await limited.client("eve", "member")
    found = (await eve.get("/api/v1/clusters/lab/limits")).json()
    rows = [(row["where"], row["what"], row["used"], row["limit"]) for row in found["limits"]]
    assert (found["user"], found["stale"]) == ("eve", "")
    assert rows == [
        ("team vision", "queued jobs", 3, 20),
        ("team vision", "GPUs", 8, 16),
        ("team vision", "recent GPU-hours", 12.3, 50),
        ("partition debug", "running jobs", 1, 1),
        ("partition debug", "CPUs", 32, 64),
    ]
    outsider = (await (await limited.client("zoe", "member")).get("/api/v1/clusters/lab/limits")).json()
    assert {row["where"] for row in outsider["limits"]} == {"partition debug"}


async def test_page_of_teams_shows_the_viewers_own_limits(limited: Server) -> None:
    page = (await (await limited.client("eve", "member")).get("/clusters/lab/teams")).text
    assert "Your limits" in page
    assert "partition debug" in page
    assert "12.3" in page
