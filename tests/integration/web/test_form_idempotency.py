"""A form that creates a job or notebook is carried out once when one page sends it twice."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headway.errors import Unanswered
from headway.jobs import notebook_job
from headway.schemas.submission.submit_request import SubmitOut
from headway.store import StoreUnavailable
from tests.support.clusters import builders
from tests.support.servers.server_fakes import Server, reading

SUBMIT = "/clusters/lab/submit"
NOTEBOOKS = "/clusters/lab/notebooks"
JOB = {"how": "script", "script": "#!/bin/bash\nsrun hostname\n", "form_key": "0123456789abcdef" * 2}
BOOK = {"gpus": "0", "form_key": JOB["form_key"]}


def sent(server: Server) -> int:
    """How often sbatch was run in earnest."""
    return sum("--test-only" not in args[1].args for args in server.backend.named("submit"))


async def ready(server: Server, answer: Any = None) -> Any:
    await server.apply()
    numbers = iter(range(5, 50))

    def submitted(_: Any, request: Any, *__: Any) -> SubmitOut:
        number = 0 if "--test-only" in request.args else next(numbers)
        words = "sbatch: Job 9 to start at 1700000840 using 8 processors on nodes lab-1-1 in partition all"
        return SubmitOut(job_id=number, cluster="lab", user="alice", workdir="~", message=words)

    server.backend.answers |= {"submit": answer or submitted, "history": ()}
    object.__setattr__(server.state.settings, "notebooks", "http://*.notebooks.localhost:7879")
    return await server.client("alice", "member")


@pytest.mark.parametrize(
    ("path", "form", "leads"), [(SUBMIT, JOB, "/clusters/lab/jobs/5"), (NOTEBOOKS, BOOK, NOTEBOOKS)]
)
async def test_form_sent_twice_is_executed_once_with_the_same_redirect(
    server: Server, path: str, form: dict[str, str], leads: str
) -> None:
    alice = await ready(server)
    first, second = await asyncio.gather(alice.post(path, data=form), alice.post(path, data=form))
    third = await alice.post(path, data=form)
    assert [answer.status_code for answer in (first, second, third)] == [303] * 3
    assert [answer.headers["location"] for answer in (first, second, third)] == [leads] * 3
    assert sent(server) == 1
    assert len(server.backend.tags) == 1, "the head knows the request too"
    assert first.headers.get("set-cookie") == third.headers.get("set-cookie"), "and says the same"
    assert len(await server.store.notebooks.of_cluster("lab")) == (path == NOTEBOOKS)


@pytest.mark.parametrize(("fails", "submitted"), [("notebooks.save", 1), ("notebooks.set_job", 2), ("jobs.record", 2)])
async def test_interrupted_notebook_start_keeps_the_secret_of_its_job(
    server: Server, monkeypatch: pytest.MonkeyPatch, fails: str, submitted: int
) -> None:
    """Led to the first one's job with another secret and folder, it would be one that no Jupyter has."""
    part, method = fails.split(".")
    owner = getattr(server.store, part)
    alice, works = await ready(server), getattr(owner, method)
    server.backend.answers |= {"read": reading(builders.job(5, "PENDING", user="alice")), "machines": ()}

    async def away(*_: Any, **__: Any) -> None:
        raise StoreUnavailable("the database does not answer")

    monkeypatch.setattr(owner, method, away)
    assert (await alice.post(NOTEBOOKS, data=BOOK)).status_code == StoreUnavailable.http_status
    monkeypatch.setattr(owner, method, works)
    assert (await alice.post(NOTEBOOKS, data=BOOK)).status_code == 303
    (row,) = await server.store.notebooks.of_cluster("lab")
    requests = [call[1] for call in server.backend.named("submit")]
    assert (row.job_id, len(requests), len(set(server.backend.tags))) == (4 + submitted, submitted, 1)
    assert {(request.env[notebook_job.SECRET_VARIABLE], request.script_args[0]) for request in requests} == {
        (row.secret, row.folder)
    }


async def test_other_form_key_content_or_session_is_a_new_request(server: Server) -> None:
    alice = await ready(server)
    elsewhere = await server.client("alice", "member")
    other = {**JOB, "form_key": "f" * 32}
    for who, form in ((alice, JOB), (alice, other), (alice, {**JOB, "job_name": "b"}), (elsewhere, JOB)):
        assert (await who.post(SUBMIT, data=form)).status_code == 303
    assert sent(server) == 4
    assert len(set(server.backend.tags)) == 4


async def test_form_without_a_valid_key_is_executed_each_time(server: Server) -> None:
    alice = await ready(server)
    for key in ("", "x" * 32, "0" * 31):
        assert (await alice.post(SUBMIT, data={**JOB, "form_key": key})).status_code == 303
    assert (sent(server), server.backend.tags) == (3, [])


async def test_unanswered_submission_is_resent_under_the_same_tag(server: Server) -> None:
    """The head knows whether it ran."""
    times: list[float] = []

    def lost(_: Any, request: Any, *__: Any) -> SubmitOut:
        if "--test-only" not in request.args and not times:
            times.append(1)
            raise Unanswered("the line broke")
        words = "sbatch: Job 9 to start at 1700000840 using 8 processors on nodes lab-1-1 in partition all"
        return SubmitOut(job_id=5, cluster="lab", user="alice", workdir="~", message=words)

    alice = await ready(server, lost)
    assert (await alice.post(SUBMIT, data=JOB)).status_code == 503
    assert (await alice.post(SUBMIT, data=JOB)).headers["location"] == "/clusters/lab/jobs/5"
    assert len(server.backend.tags) == 2
    assert len(set(server.backend.tags)) == 1


async def test_each_page_view_has_its_own_form_key(server: Server) -> None:
    alice = await ready(server)
    found = [
        (await alice.get(path)).text.partition('name="form_key" value="')[2][:32]
        for path in (SUBMIT, SUBMIT, NOTEBOOKS)
    ]
    assert all(len(one) == 32 for one in found)
    assert len(set(found)) == 3


async def test_database_failure_after_submission_still_redirects_to_the_job(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: Any) -> None:
        raise StoreUnavailable("the database does not answer")

    alice = await ready(server)
    monkeypatch.setattr(server.store.idempotency_keys, "finish", away)
    assert (await alice.post(SUBMIT, data=JOB)).headers["location"] == "/clusters/lab/jobs/5"
