"""Notebooks are submitted as jobs, and their stored records and states are correct."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from headway.errors import Refused, Unanswered, Unreachable
from headway.jobs import notebook_job
from headway.jobs.submission.node_capacity import largest_node
from headway.schemas.submission.notebooks import NotebookIn
from headway.schemas.submission.submit_request import SubmitIn, SubmitOut
from headway.store import StoreUnavailable
from tests.support.clusters import builders
from tests.support.servers import server_fakes
from tests.support.servers.server_fakes import ListeningTunnel, Server, reading

PATH = "/api/v1/clusters/lab/notebooks"


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    done = SubmitOut(job_id=7, cluster="lab", user="ann", workdir="~")
    machines = (builders.machine("lab-head"),)
    made = await server_fakes.start(tmp_path, builders.Clock(), submit=done, machines=machines, read=reading())
    await made.apply()
    yield made
    await made.close()


@pytest.mark.parametrize(
    ("ask", "text"),
    [
        ({"gpus": 9}, "a node of lab has 8"),
        ({"partition": "none"}, "there is no 'none'"),
        ({"team": "none"}, "there is no 'none'"),
    ],
)
def test_notebook_refuses_unavailable_gpus_partition_and_team(ask: dict[str, Any], text: str) -> None:
    with pytest.raises(Refused, match=text):
        notebook_job.prepare_notebook(
            NotebookIn(**ask), builders.cluster(), largest_node(builders.cluster()), "ann", "ab" * 8, "s"
        )


async def test_notebook_state_follows_its_job(server: Server) -> None:
    ann = await server.client("ann", "member")
    made = (await ann.post(PATH, json={"gpus": 1})).json()
    sent = server.backend.named("submit")[0][1]
    assert isinstance(sent, SubmitIn)
    row = await server.store.notebooks.get(made["id"])
    assert sent.env[notebook_job.SECRET_VARIABLE] == row.secret
    record = await server.store.jobs.get("lab", 7)
    assert record is not None
    assert row.secret not in str(record)

    async def now(**job: Any) -> tuple[str, str]:
        server.backend.answers["read"] = reading(builders.job(7, user="ann", **job))
        server.state.live.forget_cluster("lab")
        found = (await ann.get(PATH)).json()[0]
        return found["state"], found["why"]

    assert (await now(state="PENDING", reason="Resources"))[0] == "waiting"
    assert "free" in (await now(state="PENDING", reason="Resources"))[1]
    server.backend.answers["open_tunnel"] = Unreachable("does not answer yet")
    assert (await now(nodes=("lab-1-1",)))[0] == "starting"
    link = (await ann.post(f"{PATH}/{made['id']}/link")).json()
    assert link["url"].startswith(f"http://n-{made['id']}.notebooks.localhost:7879/open?code=")
    server.backend.answers["open_tunnel"] = ListeningTunnel()
    assert (await now(nodes=("lab-1-1",)))[0] == "running"
    led = len(server.backend.named("open_tunnel"))
    assert (await now(nodes=("lab-1-1",)))[0] == "running"
    assert len(server.backend.named("open_tunnel")) == led
    assert (await now(state="PENDING", reason="Resources"))[0] == "waiting"  # requeued, and begun anew elsewhere
    assert (await now(nodes=("lab-1-2",)))[0] == "running"
    assert [call[1] for call in server.backend.named("open_tunnel")][-1] == "lab-1-2"
    assert len(server.backend.named("open_tunnel")) == led + 1
    assert await now(state="COMPLETED", end_time=1000) == ("ended", "it ended or was idle")
    assert (await ann.post(f"{PATH}/{made['id']}/link")).status_code == 409
    server.state.clock.now += 400  # type: ignore[attr-defined]
    server.backend.answers["read"] = reading()
    server.state.live.forget_cluster("lab")
    assert (await ann.get(PATH)).json() == []


@pytest.mark.parametrize("fails", ["notebooks.set_job", "jobs.record"])
async def test_notebook_job_is_cancelled_when_its_record_cannot_be_stored(
    server: Server, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    async def away(*_: Any, **__: Any) -> None:
        raise StoreUnavailable("the database does not answer")

    part, method = fails.split(".")
    monkeypatch.setattr(getattr(server.store, part), method, away)
    server.backend.answers["cancel"] = None
    ann = await server.client("ann", "member")
    assert (await ann.post(PATH, json={"gpus": 1})).status_code == 503
    assert [call[1:3] for call in server.backend.named("cancel")] == [("7", "ann")]
    assert await server.store.notebooks.of_cluster("lab") == ()


async def test_notebook_with_unknown_submission_is_hidden_and_later_deleted(server: Server) -> None:
    ann = await server.client("ann", "member")
    server.backend.answers["submit"] = Unanswered("the line broke")
    assert (await ann.post(PATH, json={"gpus": 1})).status_code == 503
    assert (await ann.get(PATH)).json() == []
    assert len(await server.store.notebooks.of_cluster("lab")) == 1
    server.state.clock.now += 90_000  # type: ignore[attr-defined]
    assert (await ann.get(PATH)).json() == []
    assert await server.store.notebooks.of_cluster("lab") == ()


async def test_repeated_notebook_request_keeps_the_record_of_a_possible_job(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    ann, noted, key = await server.client("ann", "member"), server.store.notebooks.set_job, {"idempotency-key": "4f1c"}

    async def away(*_: Any) -> None:
        raise StoreUnavailable("the database does not answer")

    monkeypatch.setattr(server.store.notebooks, "set_job", away)
    assert (await ann.post(PATH, json={"gpus": 1}, headers=key)).status_code == 503
    (kept,) = await server.store.notebooks.of_cluster("lab")
    monkeypatch.setattr(server.store.notebooks, "set_job", noted)
    done, server.backend.answers["submit"] = server.backend.answers["submit"], Unreachable("the head is away")
    assert (await ann.post(PATH, json={"gpus": 1}, headers=key)).status_code == 503
    assert await server.store.notebooks.of_cluster("lab") == (kept,)
    server.backend.answers["submit"] = done
    server.state.clock.now += 1000  # type: ignore[attr-defined]
    made = await ann.post(PATH, json={"gpus": 1}, headers=key)
    (row,) = await server.store.notebooks.of_cluster("lab")
    assert (made.status_code, row.secret, row.job_id) == (201, kept.secret, 7)
    assert row.at == made.json()["created_at"] == server.state.clock()


async def test_notebook_does_not_use_a_job_of_another_user(server: Server) -> None:
    mallory, root = await server.client("mallory", "member"), await server.client("rex", "admin")
    made = (await mallory.post(PATH, json={"gpus": 1})).json()
    server.backend.answers |= {"read": reading(builders.job(7, user="ann", nodes=("lab-1-1",))), "cancel": None}
    server.state.live.forget_cluster("lab")
    assert (await mallory.post(f"{PATH}/{made['id']}/link")).status_code == 409
    assert (await root.delete(f"{PATH}/{made['id']}")).status_code == 204
    await mallory.post(PATH, json={"gpus": 1})
    assert (await root.get(PATH)).json() == []
    assert server.backend.named("cancel") == server.backend.named("open_tunnel") == []


async def test_only_the_owner_opens_a_notebook_and_admins_may_stop_it(server: Server) -> None:
    ann, bob, root = [await server.client(n, r) for n, r in (("ann", "member"), ("bob", "member"), ("rex", "admin"))]
    made = (await ann.post(PATH, json={"gpus": 1})).json()
    server.backend.answers |= {
        "read": reading(builders.job(7, user="ann", nodes=("lab-1-1",))),
        "cancel": None,
        "open_tunnel": ListeningTunnel(),
    }
    server.state.live.forget_cluster("lab")
    assert (await bob.get(PATH)).json() == []
    assert (await bob.post(f"{PATH}/{made['id']}/link")).status_code == 404
    assert (await bob.delete(f"{PATH}/{made['id']}")).status_code == 404
    assert (await root.post(f"{PATH}/{made['id']}/link")).status_code == 403
    assert [one["mine"] for one in (await root.get(PATH)).json()] == [False]
    assert (await root.delete(f"{PATH}/{made['id']}")).status_code == 204
    assert (await ann.get(PATH)).json() == []
