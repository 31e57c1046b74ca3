"""Requests and tokens of a service are counted once, by version, and priced by the ledger."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from time import perf_counter

import pytest

from headway.domain.serving.service_figures import ReplicaCounters
from headway.errors import Unreachable
from headway.store.jobs.service_figures import ServiceMinute
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


async def test_week_of_figures_has_few_steps(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    eve = await serving(lab)
    lab.clock.now += 7 * 86400
    now = int(lab.clock() // 60)
    rows = [ServiceMinute(minute, 1, answered(60, 0.1)) for minute in range(now - 10_000, now)]

    async def since(*_: object) -> Sequence[ServiceMinute]:
        return rows

    monkeypatch.setattr(lab.server.state.store.service_figures, "since", since)
    began = perf_counter()
    found = (await eve.get(f"{SERVICES}/chat/metrics", params={"minutes": 10_080})).json()
    assert perf_counter() - began < 10
    course = found["by_minute"]
    assert len(course) <= 501
    assert {step["minutes"] for step in course} == {21}
    assert sum(step["rates"]["requests"] for step in course) == found["all"]["requests"] == 10_000 * 60


async def test_rates_are_those_of_the_time_that_was_covered(lab: Lab) -> None:
    eve = await serving(lab)
    lab.clock.now = (lab.clock.now + 3600) // 60 * 60 + 30
    await lab.count({"r1": answered(90)})
    found = (await eve.get(f"{SERVICES}/chat/metrics", params={"minutes": 1})).json()
    assert (found["seconds"], found["all"]["requests_per_s"]) == (90.0, 1.0), "the minute before counts as a whole"
    assert [step["rates"]["requests_per_s"] for step in found["by_minute"]] == [3.0], "the minute that runs has 30 s"


async def test_cost_counts_all_replicas_of_the_time(lab: Lab) -> None:
    await serving(lab)
    store = lab.server.state.store.services
    row = await store.get("lab", "chat")
    first = (await store.replicas(row.id))[0]
    now = lab.clock()
    await store.add_replicas(
        [replace(first, number=n, job_id=100 + n, state="ended", ended_at=now - 60 * (80 - n)) for n in range(3, 80)]
    )
    assert len(await store.jobs_of_replicas(row.id, now - 60 * 77)) == 79
    assert len(await store.jobs_of_replicas(row.id, now - 60 * 10)) == 12


async def test_figures_of_an_ended_service_are_those_until_its_end(lab: Lab) -> None:
    eve = await serving(lab)
    lab.clock.now += 3600
    await lab.count({"r1": answered(60)})
    state = lab.server.state
    row = await state.store.services.get("lab", "chat")
    await state.store.services.close(row.id)
    lab.clock.now += 86400
    found = (await eve.get(f"{SERVICES}/chat/metrics", params={"minutes": 60})).json()
    assert found["all"]["requests"] == 60
    assert found["seconds"] <= 3660


async def test_old_figures_and_events_are_deleted_also_of_ended_services(lab: Lab) -> None:
    await serving(lab)
    await lab.count({"r1": answered(60)})
    store = lab.server.state.store
    row = await store.services.get("lab", "chat")
    for number in range(1005):
        await store.services.log_event("lab", row.id, str(number))
    kept = await store.services.events(row.id, 5000)
    assert (len(kept), kept[0].text, kept[-1].text) == (1000, "1004", "5")
    await store.services.close(row.id)
    assert await store.service_figures.since(row.id, 0)
    lab.clock.now += 31 * 86400
    await lab.count()
    assert await store.service_figures.since(row.id, 0) == ()
    assert await store.services.events(row.id, 5000) == ()
