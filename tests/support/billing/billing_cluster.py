"""A server with one cluster, whose ledger the API reports, and a stand-in for Slurm's accounting. Times are seconds
since the start of October."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import pytest

from headway.billing import periods
from headway.domain.billing.ledger import JobRun, NodeSpan
from headway.domain.cluster import Cluster
from headway.domain.teams import Team, User
from headway.errors import Unreachable
from tests.support.clusters import builders
from tests.support.servers import server_fakes
from tests.support.servers.server_fakes import Server

UTC = periods.time_zone("UTC")
OCTOBER = periods.month_period("2026-10", UTC)
NOVEMBER = periods.month_period("2026-11", UTC)
H = 3600
V1 = "/api/v1/clusters/lab"
TEAMS = (Team("vision", ("alice", "vera"), 3, leads=("vera",)), Team("speech", ("sam",), 1))
CHEAP = replace(builders.H100, price_usd_per_node_hour=Decimal(8))
USERS = tuple(User(name, (), (team.name,)) for team in TEAMS for name in team.users)


def run(job: int, start: int, end: int, **others: Any) -> JobRun:
    """Returns a run of a job; `start` and `end` are seconds since the start of October, and an end of 0 means
    running."""
    at = OCTOBER.start
    fields: dict[str, Any] = {
        "submit": at + start - 90, "eligible": at + start - 60, "team": "vision", "user": "alice", "partition": "train",
        "qos": "vision", "state": "COMPLETED" if end else "RUNNING", "nodes": ("lab-1-1",), "gpus": 8, "cpus": 64,
        "memory_mib": 1000, "time_limit_s": 3600, "used_cpu_s": 5, "used_memory_mib": 10,
    }  # fmt: skip
    return JobRun(job=job, start=at + start, end=end and at + end, **{**fields, **others})


class Accounting:
    """Stands in for Slurm's accounting, with sacct's rule for which runs belong to a period."""

    def __init__(self) -> None:
        self.runs: list[JobRun] = []
        self.events: list[NodeSpan] = []
        self.away = False
        self.asked: list[tuple[int, int]] = []

    def __call__(self, _: Cluster, since: int, until: int) -> tuple[JobRun, ...]:
        if self.away:
            raise Unreachable("slurmdbd does not answer")
        self.asked.append((since, until))
        return tuple(one for one in self.runs if one.start <= until and (not one.end or one.end >= since))

    def by_number(self, _: Cluster, jobs: Sequence[int]) -> tuple[JobRun, ...]:
        return tuple(one for one in self.runs if one.job in jobs)


@asynccontextmanager
async def lab(folder: Path, accounting: Accounting, **of_cluster: Any) -> AsyncIterator[Server]:
    """Yields a server with one cluster at the beginning of October; `of_cluster` as in `builders.cluster`."""
    clock = builders.Clock()
    clock.now = float(OCTOBER.start)
    made = await server_fakes.start(folder, clock)
    made.backend.answers |= {
        "usage_runs": accounting, "runs_of_jobs": accounting.by_number,
        "node_events": lambda *_: tuple(accounting.events),
        "restart_losses": {}, "checkpoint_stats": {}, "query_metrics": (), "hold_team_jobs": None, "send_alerts": None,
        "read": server_fakes.reading(), "machines": (), "shares": (),
    }  # fmt: skip
    made.backend.clusters["lab"] = {"teams": TEAMS, "users": USERS, "plan": CHEAP, **of_cluster}
    await made.apply("lab")
    try:
        yield made
    finally:
        await made.close()


def at(server: Server, moment: int) -> None:
    """Sets the server's clock to `moment` seconds after the start of October."""
    server.state.clock.now = float(OCTOBER.start + moment)  # type: ignore[attr-defined]
    server.state.live._now = server.state.clock


async def machines(server: Server, count: int, began: int = 0, ended: int = 0) -> None:
    """Records `count` machines that began, and if `ended` is set ended, at these seconds of October."""
    names = [(f"lab-1-{i + 1}", "main") for i in range(count)]
    await server.store.machine_lifetimes.record("lab", names, [], [], OCTOBER.start + began)
    if ended:
        await server.store.machine_lifetimes.end_all("lab", OCTOBER.start + ended)


async def got(client: httpx.AsyncClient, path: str) -> Any:
    """Returns the JSON answer of a GET request; asserts that its code is 200."""
    answer = await client.get(f"{V1}/{path}")
    assert answer.status_code == 200, answer.text
    return answer.json()


def summed(paid: Any) -> Decimal:
    """Returns the sum of what all teams pay and of the unassigned amounts, in USD."""
    parts = [one["total_usd"] for one in paid["teams"]] + [one["usd"] for one in paid["unassigned"]]
    return sum((Decimal(str(part)) for part in parts), Decimal(0))


@pytest.fixture
def accounting() -> Accounting:
    return Accounting()


@pytest.fixture
async def server(tmp_path: Path, accounting: Accounting) -> AsyncIterator[Server]:
    async with lab(tmp_path, accounting) as made:
        yield made
