"""A promotion is refused if its files are not of its run, or if the person, the approvals or the required gates have changed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from headway.domain.access.role import Role
from headway.domain.teams import Team
from headway.server.workers.row_rounds import PromotionWorker
from headway.services.access.concurrency_limits import MAX_COMMANDS_PER_PERSON
from headway.services.models import rounds
from headway.store.jobs.promotions import PromotionRow
from tests.support.servers.promotion_lab import EVALUATE, LAB, MODEL, Lab, ask, start_lab, statement


@pytest.fixture
async def lab(tmp_path: Path) -> AsyncIterator[Lab]:
    made = await start_lab(tmp_path)
    yield made
    await made.server.close()


async def test_files_that_are_not_of_the_versions_run_are_refused(lab: Lab) -> None:
    """A person who registers a version names its run: a good run of another job, over files of their own."""
    other = "workspaces/w/1/r2/artifacts/model"
    lab.mlflow.files[f"{other}/MLmodel"] = b"flavors: {}\n"
    lab.mlflow.logged["m-2"] = "r2"
    for folder in (other, MODEL.replace("m-1", "m-2"), "workspaces/w/1/r10/artifacts"):
        lab.mlflow.versions["iris", 1] = ("r1", f"mlflow-artifacts:/{folder}")
        eve, asked = await ask(lab, {})
        found = await lab.rounds(eve, asked["id"])
        assert (found["state"], lab.mlflow.aliases) == ("refused", {})
        assert found["why"] == f"the files of iris@1 are not of its run: they are in {folder}"
    own = "workspaces/w/1/r1/artifacts/model"
    lab.mlflow.files[f"{own}/MLmodel"] = b"flavors: {}\n"
    lab.mlflow.versions["iris", 1] = ("r1", f"mlflow-artifacts:/{own}")
    eve, asked = await ask(lab, {})
    assert (await lab.rounds(eve, asked["id"]))["state"] == "promoted"


@pytest.mark.parametrize("path", ["runs/get", "/model.pkl", "registered-models/alias"])
async def test_fault_of_mlflow_is_no_answer(lab: Lab, path: str) -> None:
    eve, asked = await ask(lab, {})
    await lab.round()
    lab.mlflow.broken = path
    found = await lab.rounds(eve, asked["id"])
    assert (found["state"], lab.mlflow.aliases) == ("promoting", {})
    assert found["why"].startswith("the MLflow server has a fault: ")
    lab.mlflow.broken = ""
    assert (await lab.rounds(eve, asked["id"]))["state"] == "promoted"
    assert (await statement(lab, eve, asked["id"]))["predicate"]["source"]["job"] == 7


async def test_alias_that_is_set_is_not_taken_back_by_later_checks(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    eve, asked = await ask(lab, {})
    await lab.round()

    async def die(*_: object) -> None:
        raise RuntimeError("killed")

    with monkeypatch.context() as killed:
        killed.setattr(rounds, "_notify", die)
        await lab.round()
    assert lab.mlflow.aliases == {("iris", "production"): 1}
    lab.mlflow.files[f"{MODEL}/data/model.pkl"] = b"other weights"
    assert (await lab.rounds(eve, asked["id"]))["state"] == "promoted"


async def test_gates_that_the_alias_requires_since_then_are_not_left_out(lab: Lab) -> None:
    eve, asked = await ask(lab, EVALUATE)
    await lab.rounds(eve, asked["id"])
    ann = await lab.server.client("ann", "lead")
    gates = {"gates": {"licence": {"approval": "lead"}}}
    assert (await ann.put(f"{LAB}/required-gates/red/production", json={"gates": gates})).status_code == 200
    lab.end(41, accuracy=0.97)
    found = await lab.rounds(eve, asked["id"])
    assert (found["state"], lab.mlflow.aliases) == ("refused", {})
    assert found["why"] == "the gates that production requires have changed"


@pytest.mark.parametrize("loss", ["disabled", "viewer", "team"])
async def test_person_who_may_not_promote_any_more_does_not(lab: Lab, loss: str) -> None:
    _, asked = await ask(lab, {})
    ann = await lab.server.client("ann", "lead")
    await lab.round()
    if loss == "disabled":
        await lab.server.store.people.disable("eve", by="boss")
    elif loss == "viewer":
        await lab.server.store.people.set_role("eve", Role.VIEWER)
    else:
        lab.server.backend.clusters["lab"]["teams"] = (Team("red", ("ann",), 1), Team("blue", ("carol",), 1))
        lab.server.state.clusters.forget("lab")
    found = await lab.rounds(ann, asked["id"])
    assert (found["state"], lab.mlflow.aliases) == ("refused", {})
    assert "eve" in found["why"] or "viewer" in found["why"]


async def test_jobs_of_gates_run_as_another_user_only_while_the_person_is_an_admin(lab: Lab) -> None:
    dan = await lab.server.client("dan", "admin")
    sent = {"model": "iris", "version": 1, "team": "red", "to": "production", "gates": EVALUATE, "user": "carol"}
    asked = (await dan.post(f"{LAB}/promotions", json=sent)).json()
    await lab.round()
    await lab.server.store.people.set_role("dan", Role.MEMBER)
    ann = await lab.server.client("ann", "lead")
    assert ((await lab.rounds(ann, asked["id"]))["state"], lab.requests) == ("refused", [])


async def test_promotions_of_another_team_push_none_out_of_the_list(lab: Lab) -> None:
    eve, asked = await ask(lab, {})
    await lab.rounds(eve, asked["id"])
    for number in range(51):
        await lab.server.store.promotions.save(
            "lab", "blue", f"m{number}", 1, "production", person="carol", user="carol", document={}
        )
    for query in ("", "?model=iris"):
        found = (await eve.get(f"{LAB}/promotions{query}")).json()
        assert [one["id"] for one in found] == [asked["id"]]


async def test_reading_all_files_counts_as_a_command(lab: Lab) -> None:
    lab.server.state.running_commands["eve"] = lab.server.state.running_commands["ann"] = MAX_COMMANDS_PER_PERSON
    await ask(lab, {}, 429, dry_run=True)
    ann = await lab.server.client("ann", "lead")
    sent = {"version": 1, "name": "licence"}
    assert (await ann.post(f"{LAB}/models/red/iris/approvals", json=sent)).status_code == 429
    await ask(lab, {})


async def test_reading_a_large_model_does_not_hold_up_other_teams(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Red's round hangs; blue's goes on."""
    go, done = asyncio.Event(), asyncio.Event()

    async def advance(_: object, row: PromotionRow) -> None:
        if row.team == "red":
            await go.wait()
        else:
            done.set()

    monkeypatch.setattr(rounds, "advance_promotion", advance)
    for team in ("red", "blue"):
        await lab.server.store.promotions.save(
            "lab", team, "iris", 1, "production", person="eve", user="eve", document={}
        )
    working = asyncio.create_task(PromotionWorker(lab.server.state).advance_all())
    async with asyncio.timeout(30):
        await done.wait()
    assert not working.done()
    go.set()
    assert await working


async def test_approval_of_a_person_who_is_no_lead_any_more_does_not_count(lab: Lab) -> None:
    ann = await lab.server.client("ann", "lead")
    await ann.post(f"{LAB}/models/red/iris/approvals", json={"version": 1, "name": "licence"})
    await lab.server.store.people.set_role("ann", Role.MEMBER)
    eve, asked = await ask(lab, {"gates": {"licence": {"approval": "lead"}}})
    found = await lab.rounds(eve, asked["id"])
    assert (found["state"], found["gates"][0]["saw"]) == ("refused", "approved only by ann")
