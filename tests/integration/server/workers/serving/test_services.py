"""The worker carries out a service round by round: replicas start, get traffic when healthy, are replaced before they go, and end
only when they have no requests."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from headway.domain.serving.service_proxy import ServerState
from headway.errors import CommandFailed, Refused, Unanswered, Unreachable
from headway.schemas.submission.submit_request import SubmitOut
from tests.support.clusters import builders
from tests.support.servers.service_lab import FILE, SERVICES, Lab, open_lab, serving, start, states


@pytest.fixture
async def lab(tmp_path: Path) -> AsyncIterator[Lab]:
    async for made in open_lab(tmp_path):
        yield made


async def test_dry_run_shows_the_script_and_stores_nothing(lab: Lab) -> None:
    eve = await lab.server.client("eve", "member")
    answer = (await eve.post(SERVICES, json={"document": FILE, "dry_run": True})).json()
    assert "#SBATCH --gpus-per-node=1" in [line["text"] for line in answer["script"]]
    assert (answer["id"], answer["state"], (await eve.get(SERVICES)).json()) == ("", "planned", [])


async def test_replica_gets_requests_when_it_is_healthy(lab: Lab) -> None:
    eve = await start(lab)
    await lab.round()
    assert (await states(eve), lab.servers) == ({1: "pending", 2: "pending"}, {})
    lab.run(41)
    await lab.round()
    assert (await states(eve), lab.servers) == ({1: "starting", 2: "pending"}, {"r1": ServerState.NEW})
    lab.healthy.add("r1")
    await lab.round()
    await lab.round()
    assert (await states(eve), lab.servers) == ({1: "serving", 2: "pending"}, {"r1": ServerState.READY})
    shown = (await eve.get(f"{SERVICES}/chat")).json()
    assert (shown["healthy"], shown["url"]) == (1, "http://10.0.0.1:8470/serve/eve/chat")


async def test_drained_node_loses_its_replicas_after_others_are_healthy_and_no_request_runs(lab: Lab) -> None:
    eve = await serving(lab)
    lab.nodes[0] = builders.node("lab-1-1", "MIXED", "DRAIN")
    await lab.round()
    assert lab.servers == {"r1": ServerState.READY, "r2": ServerState.READY}
    lab.run(43, "lab-1-2")
    lab.healthy.add("r3")
    lab.sessions = {"r1": 3}
    for _ in range(3):
        await lab.round()
    assert lab.servers == {"r1": ServerState.DRAIN, "r2": ServerState.READY, "r3": ServerState.READY}
    assert lab.server.backend.named("cancel") == []
    lab.sessions = {}
    await lab.round()
    assert [call[1] for call in lab.server.backend.named("cancel")] == ["41"]
    assert (await states(eve))[1] == "ending"


async def test_new_version_replaces_replicas_one_by_one(lab: Lab) -> None:
    eve = await serving(lab)
    await start(lab)
    await lab.round()
    assert await states(eve) == {1: "serving", 2: "serving"}, "the same file changes nothing"
    await start(lab, run="serve --new {port}")
    await lab.round()
    assert await states(eve) == {1: "serving", 2: "serving", 3: "pending", 4: "pending"}
    for job in (43, 44):
        lab.run(job, "lab-1-2")
    lab.healthy |= {"r3"}
    for _ in range(3):
        await lab.round()
    found = await states(eve)
    assert (found[2], found[3], found[4]) == ("serving", "serving", "starting")
    assert found[1] in ("ending", "ended")
    lab.healthy |= {"r4"}
    for _ in range(5):
        await lab.round()
    assert await states(eve) == {1: "ended", 2: "ended", 3: "serving", 4: "serving"}


async def test_dead_replica_is_replaced(lab: Lab) -> None:
    eve = await serving(lab)
    lab.run(41, state="FAILED", end_time=int(lab.clock()), exit_code=1)
    await lab.round()
    assert (await states(eve))[1] == "ended"
    await lab.round(3)
    assert (await states(eve))[3] == "pending"
    assert "1 replicas failed in a row" in (await eve.get(f"{SERVICES}/chat")).json()["why"]


async def test_interrupted_submission_makes_one_job(lab: Lab) -> None:
    eve = await start(lab, replicas=1)
    submit = lab.server.backend.answers["submit"]

    def lost(*words: Any) -> SubmitOut:
        submit(*words)
        raise Unanswered("gone")

    lab.server.backend.answers["submit"] = lost
    await lab.round()
    assert await states(eve) == {1: "submitting"}
    lab.server.backend.answers["submit"] = submit
    await lab.round()
    assert (await states(eve), list(lab.jobs)) == ({1: "pending"}, [41])


@pytest.mark.parametrize("begun", [True, False])
async def test_stopped_service_cancels_the_job_of_an_interrupted_submission(lab: Lab, begun: bool) -> None:
    eve = await start(lab, replicas=1)
    submit = lab.server.backend.answers["submit"]

    def lost(*words: Any) -> SubmitOut:
        if begun:
            submit(*words)
        raise Unanswered("gone")

    lab.server.backend.answers["submit"] = lost
    await lab.round()
    assert (await eve.post(f"{SERVICES}/chat/stop")).status_code == 200
    await lab.round()
    assert await states(eve) == {1: "ending"}, "the answer is still not known"
    lab.server.backend.answers["submit"] = submit
    await lab.round()
    assert [call[1] for call in lab.server.backend.named("cancel")] == ["41"]
    assert "--hold" in lab.server.backend.named("submit")[-1][1].args, (
        "a job that was not submitted before does not run"
    )
    for _ in range(2):
        await lab.round()
    assert (await states(eve), list(lab.jobs), lab.jobs[41].state) == ({1: "ended"}, [41], "CANCELLED")
    assert (await eve.get(f"{SERVICES}/chat")).json()["ended_at"] is not None


async def test_replica_whose_submission_is_refused_ends(lab: Lab) -> None:
    eve = await start(lab, replicas=1)
    lab.server.backend.answers["submit"] = Unanswered("gone")
    await lab.round()
    assert (await eve.post(f"{SERVICES}/chat/stop")).status_code == 200
    lab.server.backend.answers["submit"] = Refused("eve is no user")
    for _ in range(2):
        await lab.round()
    found = (await eve.get(f"{SERVICES}/chat")).json()
    assert [(one["state"], one["why"]) for one in found["replicas"]] == [
        ("ended", "no job of it is known: eve is no user")
    ]


async def test_error_of_one_service_does_not_stop_the_others(lab: Lab) -> None:
    eve = await start(lab, replicas=1)
    await lab.round()
    lab.server.backend.answers["cancel"] = CommandFailed(["scancel", "41"], 1, "no such user")
    await start(lab, replicas=1, name="later")
    await start(lab, replicas=1, run="serve --new {port}")  # ends job 41
    await lab.round()
    shown = {one["name"]: one for one in (await eve.get(SERVICES)).json()}
    assert "no such user" in shown["chat"]["why"]
    assert (shown["later"]["why"], [one["state"] for one in shown["later"]["replicas"]]) == ("", ["pending"])


async def test_service_that_cannot_be_read_stays_in_the_proxy_and_the_others_continue(lab: Lab) -> None:
    eve = await serving(lab)
    made = (await eve.post(f"{SERVICES}/chat/keys", json={})).json()
    await put(lab, "bob", "blue")  # its document is not one that this version reads
    await start(lab, replicas=1, name="later")
    lab.nodes[0] = builders.node("lab-1-1", "MIXED", "DRAIN")
    await lab.round()
    assert (lab.settings.unchanged, [one.name for one in lab.settings.services]) == (
        ("blue:chat",),
        ["eve:chat", "eve:later"],
    )
    assert lab.settings.keys == {hashlib.sha256(made["key"].encode()).hexdigest(): "eve:chat"}
    assert [one["state"] for one in (await eve.get(f"{SERVICES}/later")).json()["replicas"]] == ["pending"]


async def test_unreachable_cluster_changes_nothing(lab: Lab) -> None:
    eve = await serving(lab)
    lab.server.backend.answers["steer_proxy"] = Unreachable("gone")
    await lab.round()
    assert await states(eve) == {1: "serving", 2: "serving"}
    assert (await eve.get(f"{SERVICES}/chat")).json()["why"] == "gone"
    lab.server.backend.answers["steer_proxy"] = lab.steer
    await lab.round()
    assert (await eve.get(f"{SERVICES}/chat")).json()["why"] == ""


async def test_number_of_replicas_follows_requests_and_hands(lab: Lab) -> None:
    eve = await serving(lab, replicas={"min": 2, "max": 4, "requests": 5, "idle_s": 60})
    lab.active = 14
    await lab.round()
    assert sorted((await states(eve)).values()) == ["pending", "serving", "serving"]
    lab.active = 0
    answer = await eve.post(f"{SERVICES}/chat/scale", json={"min": 1, "max": 1})
    assert answer.status_code == 200
    await lab.round()
    found = await states(eve)
    assert (found[1], found[2], found[3]) == ("serving", "draining", "ending")


async def test_stopped_service_drains_its_replicas_and_leaves_the_proxy(lab: Lab) -> None:
    eve = await serving(lab)
    assert (await eve.post(f"{SERVICES}/chat/stop")).status_code == 200
    assert (await eve.post(f"{SERVICES}/chat/stop")).status_code == 409
    for _ in range(5):
        await lab.round()
    assert lab.settings.services == ()
    found = (await eve.get(f"{SERVICES}/chat")).json()
    assert found["ended_at"] is not None
    assert (await eve.get(SERVICES)).json() == []


async def test_keys_reach_the_proxy_as_hashes_and_leave_it(lab: Lab) -> None:
    eve = await serving(lab)
    made = (await eve.post(f"{SERVICES}/chat/keys", json={"label": "ci", "per_minute": 60})).json()
    await lab.round()
    digest = hashlib.sha256(made["key"].encode()).hexdigest()
    assert (lab.settings.keys, lab.settings.limits) == ({digest: "eve:chat"}, {digest: 60})
    listed = (await eve.get(f"{SERVICES}/chat/keys")).json()
    assert [(one["label"], one["key"]) for one in listed] == [("ci", "")]
    assert (await eve.delete(f"{SERVICES}/chat/keys/{made['id']}")).status_code == 204
    assert (await eve.delete(f"{SERVICES}/chat/keys/{made['id']}")).status_code == 404
    await lab.round()
    assert lab.settings.keys == {}


async def test_other_people_may_look_and_not_touch(lab: Lab) -> None:
    await serving(lab)
    bob = await lab.server.client("bob", "member")
    assert (await bob.get(f"{SERVICES}/chat")).status_code == 200
    for path, body in (("stop", None), ("scale", {"min": 1, "max": 1}), ("keys", {})):
        assert (await bob.post(f"{SERVICES}/chat/{path}", json=body)).status_code == 403
    assert (await bob.get(f"{SERVICES}/chat/keys")).status_code == 403


async def stopped(lab: Lab, eve: httpx.AsyncClient) -> str:
    """Stops the service until it has ended, and returns its id."""
    assert (await eve.post(f"{SERVICES}/chat/stop")).status_code == 200
    for _ in range(5):
        await lab.round()
    found = (await eve.get(f"{SERVICES}/chat")).json()
    assert found["ended_at"] is not None
    return str(found["id"])


async def put(lab: Lab, person: str, team: str) -> str:
    """Stores a service named chat, and returns its id."""
    document = {"service": FILE, "mark": "", "bundle": "", "git": None}
    row = await lab.server.state.store.services.put(
        "lab", team, "chat", person=person, user=person, document=document, least=1, most=1
    )
    return row.id


async def test_keys_of_a_name_belong_to_the_service_that_has_it_now(lab: Lab) -> None:
    eve = await serving(lab)
    assert (await eve.post(f"{SERVICES}/chat/keys", json={})).status_code == 201
    ended = await stopped(lab, eve)
    await put(lab, "bob", "eve")
    bob = await lab.server.client("bob", "member")
    assert (await bob.get(f"{SERVICES}/chat/keys")).json() == [], "keys of the former owner are revoked"
    made = (await bob.post(f"{SERVICES}/chat/keys", json={})).json()
    assert (await eve.get(f"{SERVICES}/{ended}/keys")).status_code == 403
    assert (await eve.post(f"{SERVICES}/{ended}/keys", json={})).status_code == 403
    assert (await eve.delete(f"{SERVICES}/{ended}/keys/{made['id']}")).status_code == 403
    assert [one["id"] for one in (await bob.get(f"{SERVICES}/chat/keys")).json()] == [made["id"]]


async def test_keys_stay_when_their_owner_starts_the_service_again(lab: Lab) -> None:
    eve = await serving(lab)
    made = (await eve.post(f"{SERVICES}/chat/keys", json={})).json()
    await stopped(lab, eve)
    await start(lab)
    assert [one["id"] for one in (await eve.get(f"{SERVICES}/chat/keys")).json()] == [made["id"]]


async def test_name_of_several_running_services_needs_its_team(lab: Lab) -> None:
    eve = await start(lab)
    await put(lab, "bob", "blue")
    answer = await eve.get(f"{SERVICES}/chat")
    assert (answer.status_code, answer.json()["hint"]) == (409, "give one of blue/chat, eve/chat")
    assert (await eve.get(f"{SERVICES}/eve:chat")).json()["team"] == "eve"


async def test_file_of_a_service_is_read_by_those_who_may_change_it(lab: Lab) -> None:
    eve = await start(lab)
    file = (await eve.get(f"{SERVICES}/chat")).json()["file"]
    assert (file["name"], file["run"], file["drain_s"]) == ("chat", ["serve", "{port}"], 30)
    mallory = await lab.server.client("mallory", "member")
    found = (await mallory.get(f"{SERVICES}/chat")).json()
    assert (found["name"], found.get("file")) == ("chat", {})
    (listed,) = (await eve.get(SERVICES)).json()
    assert not listed.get("file")
