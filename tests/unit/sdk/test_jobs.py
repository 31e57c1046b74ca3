"""Job.wait reports the final state of jobs and arrays and survives an unreachable server; the async client mirrors
it."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any, cast

import httpx
import pytest

from headway import AsyncClient, Client
from headway.errors import Refused, Unreachable
from headway.schemas.job_list import JobsPage
from headway.schemas.jobs import ArrayOut
from headway.schemas.submission.reruns import ResumeIn
from headway.schemas.submission.run_request import RunIn
from headway.schemas.submission.submit_request import SubmitOut
from headway.sdk.async_client import AsyncJob
from headway.sdk.client import PARTS, part_class
from headway.sdk.resources.jobs import Job, Jobs
from headway.sdk.submission import build_request
from tests.support.cli_fakes import FakeApi, job

# Slurm gives the array's own number to its last task.
LAST = job(40, array_job_id=40, array_task="9", state="COMPLETED")


def handle(api: FakeApi) -> Job:
    return Job(cast(Jobs, api.jobs), "lab", 40)


def in_turn(*answers: Any) -> Any:
    left = list(answers)
    return lambda *_, **__: left.pop(0)


def test_array_with_failed_task_is_failed() -> None:
    api = FakeApi().on("jobs.get", LAST).on("jobs.tasks", ArrayOut(total=10, done=9, failed=1, failed_tasks="3"))
    ended = handle(api).wait()
    assert (ended.state, ended.exit_code) == ("FAILED", 1)
    assert ended.tasks is not None
    assert ended.tasks.failed_tasks == "3"


def test_array_wait_ends_with_slowest_task() -> None:
    api = FakeApi().on("jobs.get", LAST)
    api.on("jobs.tasks", in_turn(ArrayOut(total=10, done=9, running=1), ArrayOut(total=10, done=10)))
    assert handle(api).wait(poll_s=0).state == "COMPLETED"
    assert len(api.named("jobs.tasks")) == 2


def test_wait_for_single_array_task_ignores_other_tasks() -> None:
    api = FakeApi().on("jobs.get", job(41, array_job_id=40, array_task="0", state="COMPLETED"))
    assert Job(cast(Jobs, api.jobs), "lab", 41).wait().state == "COMPLETED"


def test_job_list_reads_all_pages_and_page_reports_staleness() -> None:
    pages = {
        "": JobsPage(jobs=[job(1)], total=2, next="b", stale="no SSH to lab-head"),
        "b": JobsPage(jobs=[job(2)], total=2),
    }

    def answer(request: httpx.Request) -> httpx.Response:
        assert (request.url.path, request.url.params["user"]) == ("/api/v1/clusters/lab/jobs", "ann")
        return httpx.Response(200, content=pages[request.url.params.get("cursor", "")].model_dump_json())

    with Client("http://server", "t", transport=httpx.MockTransport(answer)) as client:
        assert [one.id for one in client.jobs.list("lab", user="ann")] == [1, 2]
        assert client.jobs.page("lab", user="ann").stale == "no SSH to lab-head"


def away(api: FakeApi, *answers: Any) -> list[int]:
    """Answers of `job` in turn, errors among them are raised; how often the server was looked for."""
    looked: list[int] = []
    left = list(answers)

    def answer(*_: Any) -> Any:
        one = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(one, Exception):
            raise one
        return one

    api.on("jobs.get", answer).on("jobs.reconnect", lambda: looked.append(1))
    return looked


BROKEN = Unreachable("the connection broke")
ENDED = job(40, state="COMPLETED")


def test_wait_continues_while_server_is_unreachable() -> None:
    api, told = FakeApi(), list[Unreachable]()
    looked = away(api, BROKEN, BROKEN, job(40), BROKEN, ENDED)
    assert handle(api).wait(poll_s=0, on_lost=told.append).state == "COMPLETED"
    assert (len(looked), told) == (3, [BROKEN, BROKEN])  # told once a loss


async def test_async_wait_continues_while_server_is_unreachable() -> None:
    api = FakeApi()
    looked = away(api, job(40), BROKEN, ENDED)
    assert (await AsyncJob(handle(api)).wait(poll_s=0)).state == "COMPLETED"
    assert len(looked) == 1


def test_wait_for_unreachable_server_ends_at_timeout_or_two_days(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    api = FakeApi()
    away(api, job(40), BROKEN)
    moments = iter((0.0, 0.0, 0.5))  # the begin, the answer, the outage; then it is later
    with monkeypatch.context() as clock:
        clock.setattr("headway.sdk.reconnect.time.monotonic", lambda: next(moments, 1.0))
        with pytest.raises(TimeoutError, match=r"job 40 is RUNNING after 0\.6 s; last answer: the connection broke"):
            handle(api).wait(timeout_s=0.6, poll_s=0)
    hours = iter(range(0, 1000, 20))
    monkeypatch.setattr("headway.sdk.reconnect.time.monotonic", lambda: next(hours) * 3600.0)
    with pytest.raises(Unreachable):
        handle(api).wait(poll_s=0)
    assert next(hours) == 80  # 0, 20, 40: not yet; 60 hours


def test_wait_raises_timeout_error() -> None:
    with pytest.raises(TimeoutError, match="job 40 is RUNNING"):
        handle(FakeApi().on("jobs.get", job(40))).wait(timeout_s=0, poll_s=0)


async def test_async_job_waits_and_reruns_like_job() -> None:
    api = FakeApi().on("jobs.get", LAST).on("jobs.tasks", ArrayOut(total=10, done=8, failed=2, failed_tasks="3,5"))
    assert (await AsyncJob(handle(api)).wait()).state == "FAILED"
    api.on("jobs.rerun", SubmitOut(job_id=41, cluster="lab", user="a", workdir="/w"))
    again = await AsyncJob(handle(api)).rerun(env={"A": "1"})
    assert (type(again), again.id) == (AsyncJob, 41)
    assert inspect.signature(AsyncClient.run) == inspect.signature(Client.run)


def test_run_request_reports_every_invalid_field() -> None:
    with pytest.raises(Refused, match=r"(?s)nodes: .*gpus: "):
        build_request(RunIn, argv=["x"], nodes=0, gpus=-1)


def test_job_resumes_from_a_step() -> None:
    api = FakeApi().on("jobs.resume", SubmitOut(job_id=41, cluster="lab", user="a", workdir="/w"))
    assert handle(api).resume(4000, task=3).id == 41
    assert api.named("jobs.resume") == [(("lab", 40, ResumeIn(task="3", step=4000)), {})]


def test_submit_and_rerun_errors_name_invalid_field(tmp_path: Path) -> None:
    (tmp_path / "a.sh").write_text("#!/bin/sh\n")
    with (
        Client("http://server", "t", transport=httpx.MockTransport(lambda _: httpx.Response(500))) as client,
        pytest.raises(Refused, match="stage_in-0: "),
    ):
        client.submit(tmp_path / "a.sh", cluster="lab", stage_in=["Not A Dataset"])
    with pytest.raises(Refused, match="task: "):
        handle(FakeApi().on("jobs.rerun", None)).rerun(task=-1)


def test_parts_of_client_have_the_declared_classes() -> None:
    declared = {name: kind for name, kind in Client.__annotations__.items() if not name.startswith("_")}
    assert declared == {name: part_class(name).__name__ for name in PARTS}
    with Client("http://server", "t") as client:
        assert client.jobs is client.jobs
        with pytest.raises(AttributeError, match="no attribute 'nodez'"):
            client.nodez  # type: ignore[attr-defined]  # noqa: B018


def test_async_client_mirrors_every_client_method() -> None:
    with Client("http://server", "t") as client:
        blocking = {name: getattr(client, name) for name in PARTS}
    twins = vars(AsyncClient("http://server", "t"))
    assert set(blocking) == set(twins) - {"sync"}
    for name, part in blocking.items():
        calls = {
            call for call, made in vars(type(part)).items() if inspect.isfunction(made) and not call.startswith("_")
        }
        assert calls <= vars(type(twins[name])).keys()
        for call in calls:
            assert inspect.signature(getattr(type(twins[name]), call)) == inspect.signature(getattr(type(part), call))
