"""Requests and tokens of a service are counted once, by version, and priced by the ledger."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from headway.domain.service_figures import ReplicaCounters
from headway.errors import Unreachable
from tests.support.servers.service_lab import SERVICES, Lab, answered, open_lab, serving, start


@pytest.fixture
async def lab(tmp_path: Path) -> AsyncIterator[Lab]:
    async for made in open_lab(tmp_path):
        yield made


async def test_requests_and_tokens_are_counted_once(lab: Lab) -> None:
    eve = await serving(lab)
    await lab.count({"r1": answered(90, 0.1), "r2": answered(8, 2.0), "": answered(0, errors=2)})
    await lab.count(r1=ReplicaCounters(1000, 400, {"0.1": 5, "+Inf": 5}))
    await lab.count(r1=ReplicaCounters(1500, 600, {"0.1": 9, "+Inf": 9}))
    await lab.count(r1=ReplicaCounters(1500, 600, {"0.1": 9, "+Inf": 9}))
    assert lab.marks == ["", "7 1", "7 2", "7 3"], "each reading begins where the last one ended"
    found = (await eve.get(f"{SERVICES}/chat/metrics")).json()
    whole = found["all"]
    assert (whole["requests"], whole["errors"], whole["error_rate"]) == (100, 2, 0.02)
    assert (whole["prompt_tokens"], whole["generated_tokens"]) == (1500, 600)
    assert whole["latency_ms"]["p50"] == pytest.approx(100, rel=0.06)
    assert whole["latency_ms"]["p95"] == pytest.approx(2000, rel=0.06)
    assert whole["first_token_ms"]["p99"] == pytest.approx(100, rel=0.06)
    assert list(found["versions"]) == ["1"]
    assert [one["rates"]["requests"] for one in found["by_minute"]] == [100]


async def test_period_has_only_its_minutes(lab: Lab) -> None:
    eve = await serving(lab)
    await lab.count({"r1": answered(5)})
    lab.clock.now += 3600
    await lab.count({"r1": answered(7)})

    async def requests(minutes: int) -> int:
        found = (await eve.get(f"{SERVICES}/chat/metrics", params={"minutes": minutes})).json()
        return int(found["all"]["requests"])

    assert (await requests(10), await requests(120)) == (7, 12)
    assert (await eve.get(f"{SERVICES}/chat/metrics", params={"minutes": 10**6})).status_code == 422


async def test_requests_belong_to_the_version_of_their_replica(lab: Lab) -> None:
    eve = await serving(lab)
    await start(lab, run="serve --new {port}")
    await lab.round()
    await lab.count({"r1": answered(5), "r3": answered(2)})
    found = (await eve.get(f"{SERVICES}/chat/metrics")).json()
    assert {version: one["requests"] for version, one in found["versions"].items()} == {"1": 5, "2": 2}


async def test_service_of_a_cluster_that_does_not_answer_keeps_its_figures(lab: Lab) -> None:
    eve = await serving(lab)
    await lab.count({"r1": answered(5)})
    lab.server.backend.answers["read_service_metrics"] = Unreachable("gone")
    await lab.count({"r1": answered(9)})
    found = (await eve.get(f"{SERVICES}/chat/metrics")).json()
    assert found["all"]["requests"] == 5
    assert found["usd"] is None, "the ledger has no job of the service"
