"""A failed, repeated or interrupted pipeline request submits no step twice and cancels the steps that it cannot
record."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from headway.errors import Unreachable
from headway.schemas.submission.exec_commands import ExecOut
from headway.schemas.submission.submit_request import SubmitOut
from headway.services.pipelines import step_results
from headway.store import StoreUnavailable
from tests.support.clusters import builders
from tests.support.servers import server_fakes
from tests.support.servers.interrupted_request import KEY, cut_off
from tests.support.servers.server_fakes import Server, reading

PIPELINES = "/api/v1/clusters/lab/pipelines"
CHAIN = {"name": "chain", "steps": {"a": {"run": "true"}, "b": {"run": "x", "needs": ["a"]}}}


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    """Its head knows what it was asked for under a tag."""
    made = await server_fakes.start(tmp_path, builders.Clock())
    await made.apply()
    numbers, known = iter(range(41, 100)), dict[str, int]()

    def submit(_: Any, request: Any, user: str, *__: Any) -> SubmitOut:
        tag = made.backend.tags[-1] if made.backend.tags else f"none {len(made.backend.calls)}"
        number = known[tag] if tag in known else known.setdefault(tag, next(numbers))
        return SubmitOut(job_id=number, cluster="lab", user=user, workdir=request.chdir)

    made.backend.answers |= {
        "submit": submit,
        "read": reading(),
        "machines": (),
        "job": builders.job(41),
        "cancel": None,
    }
    yield made
    await made.close()


def fail(server: Server, monkeypatch: pytest.MonkeyPatch, call: str, after: int = 0) -> None:
    """The database goes away when this is asked of it for the last time of so many and one."""
    part, method = call.split(".")
    owner = getattr(server.store, part)
    works, times = getattr(owner, method), iter(range(after))

    async def away(*args: Any, **words: Any) -> Any:
        if next(times, None) is None:
            raise StoreUnavailable("the database does not answer")
        return await works(*args, **words)

    monkeypatch.setattr(owner, method, away)


@pytest.mark.parametrize("key", [{}, KEY])
async def test_pipeline_steps_are_cancelled_when_a_record_cannot_be_stored(
    server: Server, monkeypatch: pytest.MonkeyPatch, key: dict[str, str]
) -> None:
    eve = await server.client("eve", "member")
    fail(server, monkeypatch, "jobs.record", after=1)
    assert (await eve.post(PIPELINES, json={"document": CHAIN}, headers=key)).status_code == 503
    assert [call[1] for call in server.backend.named("cancel")] == ["41", "42"]


async def test_repeated_request_of_a_failed_pipeline_replays_its_error(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    eve, good = await server.client("eve", "member"), server.backend.answers["submit"]
    server.backend.answers["submit"] = lambda *args: good(*args) if args[1].script_name == "a" else _away()
    first = await eve.post(PIPELINES, json={"document": CHAIN}, headers=KEY)
    server.backend.answers["submit"] = good
    again = await eve.post(PIPELINES, json={"document": CHAIN}, headers=KEY)
    assert (first.status_code, again.status_code) == (503, 503)
    assert again.json() == first.json()
    assert len(server.backend.named("submit")) == 2
    new = await eve.post(PIPELINES, json={"document": CHAIN}, headers={"idempotency-key": "other"})
    assert [step["job_id"] for step in new.json()["steps"]] == [42, 43]


def _away() -> SubmitOut:
    raise Unreachable("the head is away")


async def test_key_of_a_pipeline_that_never_started_can_be_reused(server: Server) -> None:
    eve, good = await server.client("eve", "member"), server.backend.answers["submit"]
    server.backend.answers["submit"] = Unreachable("the head is away")
    assert (await eve.post(PIPELINES, json={"document": CHAIN}, headers=KEY)).status_code == 503
    server.backend.answers["submit"] = good
    other = {"document": {"name": "other", "steps": {"c": {"run": "true"}}}, "bundle": "b" * 64}
    made = (await eve.post(PIPELINES, json=other, headers=KEY)).json()
    row = await server.store.pipelines.get("lab", made["id"])
    assert (row.name, row.document["bundle"], row.workdir) == ("other", "b" * 64, made["workdir"])
    assert [(step["name"], step["job_id"]) for step in made["steps"]] == [("c", 41)]


async def test_submitted_pipeline_is_returned_when_the_database_fails_afterwards(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    eve = await server.client("eve", "member")
    fail(server, monkeypatch, "jobs.of_pipeline")
    made = await eve.post(PIPELINES, json={"document": CHAIN}, headers=KEY)
    assert (made.status_code, [step["job_id"] for step in made.json()["steps"]]) == (201, [41, 42])


async def test_interrupted_pipeline_resumes_without_submitting_steps_twice(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    eve, keep, times = await server.client("eve", "member"), server.store.jobs.record, iter(range(1))

    async def killed(*args: Any, **words: Any) -> None:
        if next(times, None) is None:
            raise asyncio.CancelledError
        await keep(*args, **words)

    monkeypatch.setattr(server.store.jobs, "record", killed)
    server.state.clock.now += 0.3  # type: ignore[attr-defined]
    await cut_off(server, eve, PIPELINES, document=CHAIN)
    server.state.clock.now += 60  # type: ignore[attr-defined]
    monkeypatch.setattr(server.store.jobs, "record", keep)
    again = await eve.post(PIPELINES, json={"document": CHAIN}, headers=KEY)
    assert [(step["job_id"], step["runs"]) for step in again.json()["steps"]] == [(41, 1), (42, 1)]
    (row,) = await server.store.pipelines.recent("lab")
    assert [one.job_id for one in await server.store.jobs.of_pipeline(row.id)] == [41, 42]


async def test_interrupted_pipeline_retry_resumes_without_submitting_twice(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    eve = await server.client("eve", "member")
    await eve.post(PIPELINES, json={"document": CHAIN})
    server.state.clock.now += 100  # type: ignore[attr-defined]
    server.backend.answers["read"] = reading(builders.job(41, "FAILED"), builders.job(42, "FAILED"))
    server.state.live.forget_cluster("lab")
    retry, keep, times = f"{PIPELINES}/chain/retry", server.store.jobs.record, iter(range(1))

    async def killed(*args: Any, **words: Any) -> None:
        if next(times, None) is None:
            raise asyncio.CancelledError
        await keep(*args, **words)

    monkeypatch.setattr(server.store.jobs, "record", killed)
    await cut_off(server, eve, retry)
    server.state.clock.now += 60  # type: ignore[attr-defined]
    monkeypatch.setattr(server.store.jobs, "record", keep)
    again = await eve.post(retry, json={}, headers=KEY)
    assert [(step["job_id"], step["runs"]) for step in again.json()["steps"]] == [(43, 2), (44, 2)]


async def test_pipeline_list_queries_accounting_once_for_forgotten_jobs(server: Server) -> None:
    eve = await server.client("eve", "member")
    for _ in range(3):
        await eve.post(PIPELINES, json={"document": CHAIN})
    server.backend.answers["history"] = tuple(builders.job(n, "COMPLETED") for n in range(41, 47))
    del server.backend.answers["job"]
    shown = (await eve.get(PIPELINES)).json()
    assert [one["state"] for one in shown] == ["done"] * 3
    assert len(server.backend.named("history")) == 1


async def test_pipeline_that_is_named_like_the_id_of_another_does_not_hide_it(tmp_path: Path) -> None:
    clock = builders.Clock()
    server = await server_fakes.start(tmp_path, clock)
    store = server.store.pipelines
    first = await store.save("lab", "chain", person="eve", user="eve", workdir="/w", document={})
    clock.now += 10
    await store.save("lab", first.id, person="mallory", user="mallory", workdir="/w", document={})
    assert (await store.get("lab", first.id)).person == "eve"
    await server.close()


BRANCHES = {
    "name": "branches",
    "steps": {
        "train": {"run": "x", "outputs": {"loss": {"metric": "loss"}, "model": {"file": "m"}}, "inputs": []},
        "publish": {"run": "y {train.model}", "needs": ["train"], "when": "train.loss < 1"},
    },
}
RESULTS = {
    "train": {
        "job": 41,
        "state": "cached",
        "why": "its content is that of job 7",
        "source": 7,
        "outputs": {
            "loss": {"kind": "metric", "value": "2.5"},
            "model": {"kind": "file", "value": "/w/m", "path": "m", "bytes": 3, "sha256": "a" * 64},
        },
    },
    "publish": {"job": 42, "state": "skipped", "why": "train.loss is 2.5, not < 1", "outputs": {}},
}


def recorded(results: dict[str, Any]) -> Any:
    """Returns what answers for files with these results."""

    def read(_cluster: Any, _user: str, paths: list[str]) -> dict[str, bytes]:
        steps = {path: path.rpartition("/")[2].removesuffix(".json") for path in paths}
        return {path: json.dumps(results[step]).encode() for path, step in steps.items() if step in results}

    return read


async def start_branches(server: Server, read: Any) -> Any:
    """Starts a pipeline whose first job has ended and whose second was cancelled; `read` answers who reads their results."""
    eve = await server.client("eve", "member")
    states = {41: "COMPLETED", 42: "CANCELLED"}
    server.backend.answers["job"] = lambda _, number: builders.job(number, state=states.get(number, "PENDING"))
    server.backend.answers["step_result_files"] = read
    server.backend.answers["run_command"] = ExecOut(code=0)
    made = await eve.post(PIPELINES, json={"document": BRANCHES})
    assert made.status_code == 201, made.text
    return eve, made.json()["id"]


async def test_results_of_steps_are_read_once_and_kept(server: Server) -> None:
    eve, pipeline = await start_branches(server, recorded(RESULTS))
    first = (await eve.get(f"{PIPELINES}/{pipeline}")).json()
    assert (first["state"], [step["state"] for step in first["steps"]]) == ("done", ["CACHED", "SKIPPED"])
    assert first["steps"][0]["source"] == 7
    assert first["steps"][0]["outputs"]["loss"]["value"] == "2.5"
    assert (first["steps"][1]["when"], first["steps"][1]["why"]) == ("train.loss < 1", "train.loss is 2.5, not < 1")
    assert (await eve.get(f"{PIPELINES}/{pipeline}")).json() == first
    server.backend.answers["history"] = ()
    assert (await eve.get(PIPELINES)).json() == [first]
    folder = f"{first['workdir']}/.headway/steps"
    ((user, paths),) = [call[1:] for call in server.backend.named("step_result_files")]
    assert (user, sorted(paths)) == ("eve", [f"{folder}/publish.json", f"{folder}/train.json"])
    assert not server.backend.named("run_command")


async def test_states_are_those_of_slurm_while_the_cluster_does_not_answer(server: Server) -> None:
    eve, pipeline = await start_branches(server, Unreachable("the head is away"))
    for _ in range(2):
        found = (await eve.get(f"{PIPELINES}/{pipeline}")).json()
        assert [step["state"] for step in found["steps"]] == ["COMPLETED", "CANCELLED"]
    assert len(server.backend.named("step_result_files")) == 1
    server.backend.answers["step_result_files"] = recorded(RESULTS)
    server.state.clock.now += 61  # type: ignore[attr-defined]
    found = (await eve.get(f"{PIPELINES}/{pipeline}")).json()
    assert [step["state"] for step in found["steps"]] == ["CACHED", "SKIPPED"]


async def test_list_reads_the_results_of_each_owner_with_one_call(server: Server) -> None:
    eve, _ = await start_branches(server, lambda *_: {})
    zoe = await server.client("zoe", "member")
    for who in (eve, zoe):
        assert (await who.post(PIPELINES, json={"document": BRANCHES})).status_code == 201
    server.backend.calls.clear()
    server.backend.answers["history"] = tuple(builders.job(n, "COMPLETED") for n in range(41, 47))

    def read(_cluster: Any, user: str, paths: list[str]) -> dict[str, bytes]:
        if user == "zoe":
            raise Unreachable("the head is away")
        return dict.fromkeys(paths, b"[" * 100_000)

    server.backend.answers["step_result_files"] = read
    shown = await eve.get(PIPELINES)
    assert [one["state"] for one in shown.json()] == ["done"] * 3, shown.text
    asked = {user: len(paths) for *_, user, paths in server.backend.named("step_result_files")}
    assert (asked, len(server.backend.named("step_result_files"))) == ({"eve": 4, "zoe": 2}, 2)


async def test_result_of_an_earlier_run_of_a_step_does_not_count(server: Server) -> None:
    eve, pipeline = await start_branches(server, recorded({"train": {**RESULTS["train"], "job": 40}, "publish": "odd"}))
    found = (await eve.get(f"{PIPELINES}/{pipeline}")).json()
    assert [step["state"] for step in found["steps"]] == ["COMPLETED", "CANCELLED"]


async def test_stored_pipeline_is_shown_though_a_newer_rule_refuses_its_file(server: Server) -> None:
    eve = await server.client("eve", "member")
    steps = {"train": {"run": ["x"]}, "test": {"run": ["echo", "{train.loss}"]}}
    refused = await eve.post(PIPELINES, json={"document": {"name": "old", "steps": steps}})
    assert (refused.status_code, "train.loss is of a step" in refused.text) == (422, True), refused.text
    document = {"document": {"name": "old", "steps": steps}, "bundle": "", "git": None}
    await server.store.pipelines.save("lab", "old", person="eve", user="eve", workdir="/w", document=document)
    server.backend.answers["history"] = ()
    assert [one["name"] for one in (await eve.get(PIPELINES)).json()] == ["old"]


async def test_retry_goes_on_if_the_login_files_of_its_owner_keep_it_waiting(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    eve, pipeline = await start_branches(server, recorded(RESULTS))
    monkeypatch.setattr(step_results, "_FORGET_S", 0.01)
    server.backend.answers["run_command"] = lambda *_: asyncio.Event().wait()
    again = await eve.post(f"{PIPELINES}/{pipeline}/retry", json={"steps": ["train"]})
    assert [step["job_id"] for step in again.json()["steps"]] == [43, 44], again.text
    plan = next(text for path, text in server.backend.named("submit")[-1][3].files.items() if path.endswith(".json"))
    assert [step["earlier"] for step in json.loads(plan)["steps"].values()] == [[41], [42]]


async def test_retry_reads_all_results_and_trusts_no_failed_look(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step_results, "_MOST_FILES", 1)
    eve, pipeline = await start_branches(server, Unreachable("the head is away"))
    assert (await eve.get(f"{PIPELINES}/{pipeline}")).json()["steps"][1]["state"] == "CANCELLED"
    away = await eve.post(f"{PIPELINES}/{pipeline}/retry", json={})
    assert (away.status_code, "the head is away" in away.text) == (503, True), away.text
    server.backend.answers["step_result_files"] = recorded(RESULTS)
    refused = await eve.post(f"{PIPELINES}/{pipeline}/retry", json={})
    assert (refused.status_code, "no step of branches has failed" in refused.text) == (400, True), refused.text


async def test_step_is_not_retried_without_the_failed_step_whose_outputs_it_reads(server: Server) -> None:
    eve, pipeline = await start_branches(server, recorded({}))
    server.backend.answers["job"] = lambda _, number: builders.job(number, state="FAILED")
    server.state.clock.now += 61  # type: ignore[attr-defined]
    refused = await eve.post(f"{PIPELINES}/{pipeline}/retry", json={"steps": ["publish"]})
    assert (refused.status_code, "step publish needs train, which has failed" in refused.text) == (400, True), (
        refused.text
    )
    assert len(server.backend.named("submit")) == 2


async def test_skipped_step_is_not_retried_and_a_named_one_ignores_its_cache(server: Server) -> None:
    eve, pipeline = await start_branches(server, recorded(RESULTS))
    refused = await eve.post(f"{PIPELINES}/{pipeline}/retry", json={})
    assert (refused.status_code, "no step of branches has failed" in refused.text) == (400, True), refused.text
    again = await eve.post(f"{PIPELINES}/{pipeline}/retry", json={"steps": ["train"]})
    assert [step["job_id"] for step in again.json()["steps"]] == [43, 44], again.text
    forget = server.backend.named("run_command")[-1][1].argv[-4:]
    assert forget == ["forget", again.json()["workdir"], "train=41", "publish=42"]
    plan = next(text for path, text in server.backend.named("submit")[-1][3].files.items() if path.endswith(".json"))
    steps = json.loads(plan)["steps"]
    assert [(step["fresh"], step["earlier"]) for step in steps.values()] == [(True, [41]), (False, [42])]
