"""Lists of jobs have the right pages, filters and rows, and viewers cost Slurm no more than documented."""

from __future__ import annotations

import asyncio
import gzip
import json

import httpx
import pytest

from headway.domain.slurm.nodes_and_jobs import JobState
from headway.schemas.job_list import JobsPage
from headway.services.cluster_backend import SlurmReading
from headway.services.read_model.readings import SNAPSHOT_WAIT_S
from tests.support.clusters import builders
from tests.support.servers.server_fakes import Server, reading
from tests.support.waiting import eventually

JOBS = "/api/v1/clusters/lab/jobs"


async def full(server: Server, *jobs: JobState) -> httpx.AsyncClient:
    await server.apply()
    server.backend.answers |= {"read": reading(*jobs), "machines": (), "history": ()}
    return await server.client("eve", "member")


async def page(client: httpx.AsyncClient, **asked: object) -> JobsPage:
    answer = await client.get(JOBS, params={key: str(value) for key, value in asked.items()})
    assert answer.status_code == 200, answer.text
    return JobsPage.model_validate(answer.json())


async def test_job_pages_list_each_job_once_while_the_queue_changes(server: Server) -> None:
    client = await full(server, *(builders.job(number) for number in range(1, 8)))
    first = await page(client, limit=3, sort="jobid")
    assert ([job.id for job in first.jobs], first.total, first.before) == ([1, 2, 3], 7, 0)
    server.backend.answers["read"] = reading(*(builders.job(number) for number in (2, 3, 4, 5, 6, 7, 8)))
    server.state.clock.now += 5  # type: ignore[attr-defined]
    second = await page(client, limit=3, sort="jobid", cursor=first.next)
    third = await page(client, limit=3, sort="jobid", cursor=second.next)
    assert [job.id for job in (*second.jobs, *third.jobs)] == [4, 5, 6, 7, 8]
    assert (second.before, third.next) == (2, "")


@pytest.mark.parametrize("wrong", [{"cursor": "x"}, {"sort": "beauty"}, {"limit": 0}, {"limit": 1001}, {"colour": 1}])
async def test_job_list_refuses_invalid_parameters(server: Server, wrong: dict[str, object]) -> None:
    client = await full(server, builders.job(1))
    answer = await client.get(JOBS, params={key: str(value) for key, value in wrong.items()})
    assert answer.status_code in (400, 422), answer.text


async def test_job_filters_combine_and_repeated_values_are_alternatives(server: Server) -> None:
    client = await full(
        server,
        builders.job(1, user="eve", account="vision", partition="train"),
        builders.job(2, "PENDING", user="bob", account="speech", partition="debug", name="fine-tune"),
        builders.job(3, "PENDING", user="ann", account="vision", partition="train,debug", nodes=("lab-1-1",)),
    )

    async def ids(query: str) -> list[int]:
        answer = JobsPage.model_validate((await client.get(f"{JOBS}?{query}")).json())
        assert answer.total == len(answer.jobs)
        return sorted(job.id for job in answer.jobs)

    assert await ids("user=eve&user=bob") == [1, 2]
    assert await ids("team=vision&state=pend") == [3]
    assert await ids("partition=debug") == [2, 3]
    assert await ids("node=lab-1-1") == [3]
    assert await ids("q=FINE") == [2]
    refused = await client.get("/api/v1/clusters/lab/jobs?state=nonsense")
    assert (refused.status_code, "PENDING" in refused.json()["hint"]) == (400, True), refused.text


async def test_job_row_matches_job_details_without_empty_fields(server: Server) -> None:
    running = builders.job(1, start_time=100, priority=7, dependency="afterok:3", more={"nice": 5})
    client = await full(server, running, builders.job(2, "PENDING", start_time=0))
    server.state.clock.now = 160  # type: ignore[attr-defined]
    row, waiting = (await client.get(JOBS)).json()["jobs"]
    assert (row["elapsed_s"], row["priority"], row["dependency"], row["more"]) == (60, 7, "afterok:3", {"nice": 5})
    assert "dependency" not in waiting
    whole = (await client.get(f"{JOBS}/1")).json()
    assert {key: whole[key] for key in row} == row
    server.state.clock.now += 1  # type: ignore[attr-defined]
    assert (await client.get(JOBS)).json()["jobs"][0]["elapsed_s"] == 61


async def test_job_list_is_compressed_if_the_client_accepts_gzip(server: Server) -> None:
    client = await full(server, *(builders.job(number) for number in range(200)))
    async with client.stream("GET", JOBS, headers={"accept-encoding": "br, gzip"}) as answer:
        raw = b"".join([piece async for piece in answer.aiter_raw()])
    assert answer.headers["content-encoding"] == "gzip"
    plain = await client.get(JOBS, headers={"accept-encoding": "identity, gzip;q=0"})
    assert "content-encoding" not in plain.headers
    assert json.loads(gzip.decompress(raw)) == plain.json()
    assert len(raw) < len(plain.content) / 8


async def test_viewers_share_slurm_readings(server: Server) -> None:
    client = await full(server, builders.job(1))

    def readings() -> int:
        return sum(name in ("read", "job", "history") for name, _ in server.backend.calls)

    await client.get(JOBS)
    before = readings()
    for _ in range(3):
        await asyncio.gather(*(client.get(path) for path in (JOBS, f"{JOBS}/1", f"{JOBS}?all=1") for _ in range(20)))
    assert readings() - before == 1  # accounting, once for all who ask for what has ended


async def test_job_list_serves_the_previous_snapshot_during_a_slow_reading(server: Server) -> None:
    client = await full(server, builders.job(1))
    await page(client)
    begun, go = asyncio.Event(), asyncio.Event()

    async def slow(*_: object) -> SlurmReading:
        begun.set()
        await go.wait()
        return reading(builders.job(2))

    server.backend.answers["read"] = slow
    server.state.clock.now += 60  # type: ignore[attr-defined]
    old = await page(client)
    await asyncio.wait_for(begun.wait(), 60)  # it is read all the same
    assert ([job.id for job in old.jobs], old.as_of) == ([1], 1000.0)
    go.set()

    async def is_newer() -> bool:
        return (await page(client)).as_of != old.as_of

    await eventually(is_newer)
    assert [job.id for job in (await page(client)).jobs] == [2]


async def test_first_view_of_an_idle_cluster_waits_for_a_new_reading(server: Server) -> None:
    client = await full(server)
    assert (await page(client)).total == 0

    async def slow(*_: object) -> SlurmReading:
        await asyncio.sleep(SNAPSHOT_WAIT_S * 5)
        return reading(builders.job(2))

    server.backend.answers["read"] = slow
    server.state.clock.now += 60  # type: ignore[attr-defined]
    assert [job.id for job in (await page(client)).jobs] == [2]


async def test_large_array_is_listed_in_pages(server: Server) -> None:
    tasks = (builders.job(n, "PENDING", array_job_id=1, array_task=str(n), start_time=0) for n in range(1, 10_001))
    client = await full(server, *tasks)
    first = await page(client)
    assert (len(first.jobs), first.total, first.counts["waiting"]) == (100, 10_000, 10_000)
    last = await page(client, sort="-jobid", limit=1)
    assert [job.id for job in last.jobs] == [10_000]
