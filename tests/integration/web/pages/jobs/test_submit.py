"""The submit page checks a job while it is filled in, accepts a job that waits for nodes out of service, and says
when it is unknown whether a job was submitted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from headway.domain.teams import Team
from headway.errors import HeadwayError, Refused, Unanswered, Unreachable
from headway.schemas.submission.submit_request import SubmitOut
from headway.services.token_buckets import TokenBuckets
from headway.store import StoreUnavailable
from tests.support.clusters import builders
from tests.support.servers.server_fakes import Server

PAGE = "/clusters/lab/submit"


@pytest.mark.parametrize(
    ("error", "unsure"),
    [
        (Unanswered("lab-head did not report whether the job is submitted"), True),
        (StoreUnavailable("the database does not answer"), True),
        (Unreachable("lab-head does not answer"), False),
    ],
)
async def test_submit_page_says_if_a_failed_request_may_have_submitted_the_job(
    server: Server, error: HeadwayError, unsure: bool
) -> None:
    server.backend.clusters["lab"] = {"teams": (Team("vision", ("eve",), 1),)}
    await server.apply("lab")

    def submit(_: Any, request: Any, *__: Any) -> SubmitOut:
        if "--test-only" not in request.args:
            raise error
        return SubmitOut(job_id=0, cluster="lab", user="eve", workdir="", message="")

    server.backend.answers["submit"] = submit
    eve = await server.client("eve", "member")
    sent = await eve.post(PAGE, data={"how": "script", "script": "#!/bin/sh\nhostname\n"})
    assert sent.status_code == error.http_status
    assert (error.message[1:] in sent.text, "was not submitted" in sent.text) == (True, not unsure)
    assert ("look in the queue</a> before you submit it again" in sent.text) is unsure
    assert "hostname" in sent.text  # what was filled in stays


async def test_submit_page_checks_the_form_while_it_is_filled_in(server: Server) -> None:
    server.backend.clusters["lab"] = {"teams": (Team("vision", ("eve",), 1),)}
    await server.apply("lab")
    server.backend.answers["submit"] = SubmitOut(job_id=0, cluster="lab", user="eve", workdir="", message="")
    eve = await server.client("eve", "member")
    told = await eve.post(f"{PAGE}/check", data={"how": "script", "script": "#!/bin/sh\nhostname\n"})
    assert (told.status_code, "It fits." in told.text) == (200, True)


async def test_submit_page_accepts_a_job_that_waits_for_drained_nodes(server: Server) -> None:
    """--test-only refuses it, for it looks at nodes in service alone; sbatch itself takes it."""
    server.backend.clusters["lab"] = {"teams": (Team("vision", ("eve",), 1),)}
    await server.apply("lab")

    def submit(_: Any, request: Any, *__: Any) -> SubmitOut:
        if "--test-only" in request.args:
            raise Refused("allocation failure: Requested node configuration is not available", hint="lab has 4 nodes")
        return SubmitOut(job_id=12, cluster="lab", user="eve", workdir="")

    server.backend.answers["submit"] = submit
    eve = await server.client("eve", "member")
    form = {"how": "script", "script": "#!/bin/sh\n#SBATCH -N 5 -t 60\nhostname\n"}
    nodes = [builders.node(name) for name in builders.cluster().slot_names]
    server.state.live.store_snapshot(replace(server.state.live.snapshot("lab"), nodes=tuple(nodes)))
    told = (await eve.post(f"{PAGE}/check", data=form)).text
    assert "1 thing to correct" in told  # all nodes are in service: it can never run
    nodes[1] = replace(nodes[1], states=("IDLE", "DRAIN"))
    server.state.live.store_snapshot(replace(server.state.live.snapshot("lab"), nodes=tuple(nodes)))
    told = (await eve.post(f"{PAGE}/check", data=form)).text
    assert "It fits.</span> The job would wait for nodes to return to service: 4 of 5 are in service." in told
    assert "USD</strong>" in told
    ask = {"submit": {"script": form["script"]}}
    estimate = (await eve.post("/api/v1/clusters/lab/estimate", json=ask)).json()
    assert (estimate["start"], estimate["waits"]) == (
        0,
        "the job would wait for nodes to return to service: 4 of 5 are in service",
    )
    assert (await eve.post(PAGE, data=form)).headers["location"].startswith("/clusters/lab/jobs/12")


async def test_submit_page_keeps_the_form_of_a_person_who_submits_too_fast(server: Server) -> None:
    server.backend.clusters["lab"] = {"teams": (Team("vision", ("eve",), 1),)}
    await server.apply("lab")
    server.backend.answers["submit"] = SubmitOut(job_id=12, cluster="lab", user="eve", workdir="")
    server.state.submit_buckets = TokenBuckets(1)
    eve = await server.client("eve", "member")
    form = {"how": "script", "script": "#!/bin/sh\nhostname\n"}
    assert (await eve.post(PAGE, data=form)).status_code == 303
    refused = await eve.post(PAGE, data=form)
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "60")
    assert "eve submits more than 1 jobs a minute" in refused.text
    assert "hostname" in refused.text


async def test_recent_task_of_an_array_fills_the_form_as_clone_does(server: Server) -> None:
    server.backend.clusters["lab"] = {"teams": (Team("vision", ("eve",), 1),)}
    await server.apply("lab")
    task = builders.job(15, name="train", user="eve", array_job_id=12, array_task="3")
    server.backend.answers["history"] = ()
    server.state.live.store_snapshot(replace(server.state.live.snapshot("lab"), jobs=(task,)))
    eve = await server.client("eve", "member")
    assert 'href="?from=15"' in (await eve.get(PAGE)).text
    assert "like job" not in (await eve.get(f"{PAGE}?from=12_3")).text, "no job was copied"
