"""The table of trainings has what jobs reported, cost and were made of, as far as a person may see it."""

from __future__ import annotations

import csv
from typing import Any

import httpx
import pytest

from headway.schemas.submission.exec_commands import ExecOut
from headway.store import TrialRow
from headway.store.jobs.trainings import TrainingRow
from tests.support.billing import billing_cluster
from tests.support.billing.billing_cluster import V1, Accounting, H, accounting, got, run, server
from tests.support.clusters import builders
from tests.support.servers.server_fakes import Server

__all__ = ["accounting", "server"]  # fixtures


def row(job: int, loss: float | None, **fields: Any) -> TrainingRow:
    told = {
        "cluster": "lab",
        "label": str(job),
        "name": f"run-{job}",
        "user": "alice",
        "team": "vision",
        "state": "COMPLETED",
    }
    metrics = {"loss": (9, loss, loss, 5.0)}
    return TrainingRow(**{**told, "job_id": job, "submitted_at": 1.0, "reported_at": 2.0, "metrics": metrics, **fields})


@pytest.fixture
async def client(server: Server, accounting: Accounting) -> httpx.AsyncClient:
    """Three trainings: job 1 was requeued once, job 3 belongs to another team."""
    accounting.runs = [
        run(1, 0, H, state="NODE_FAIL"),
        run(1, 2 * H, 4 * H),
        run(2, 0, H),
        run(3, 0, H, user="sam", team="speech"),
    ]
    await billing_cluster.machines(server, 4)
    billing_cluster.at(server, 5 * H)
    found = await server.client()
    await got(found, "usage")
    for job, commit, version in ((1, "a" * 40, "1"), (2, "b" * 40, "2")):
        request = {
            "script": f"#!/bin/sh\npython train.py --lr {job}\n", "script_args": ["--lr", str(job)], "env": {"SEED": "1"},
            "git": {"commit": commit, "branch": "main", "dirty": job == 2},
        }  # fmt: skip
        facts = {"datasets": [{"name": "wiki", "version": version, "mount": "/datasets/wiki", "sha256": "f" * 64}]}
        await server.store.jobs.record(
            "lab", job, person="alice", user="alice", kind="run", request=request, facts=facts, audit={}
        )
    await server.store.trainings.save([row(1, 2.0), row(2, 1.5), row(3, None, user="sam", team="speech")])
    return found


async def test_training_that_its_sweep_stopped_says_why(client: httpx.AsyncClient, server: Server) -> None:
    document = {"script": "x"}
    for job, sweep in ((1, "s-1"), (2, "s-2")):
        await server.store.jobs.record(
            "lab",
            job,
            person="alice",
            user="alice",
            kind="run",
            request=document,
            facts={},
            audit={},
            pipeline=sweep,
            step="3",
        )
    why = "loss 2 at step 9: number 5 of 7"
    await server.store.sweeps.add_trials(
        [
            TrialRow("s-1", "lab", 3, {}, 1.0, "stopped", 1, 2.0, 9, 2.0, {"9": 2.0}, why),
            TrialRow("s-2", "lab", 3, {}, 1.0, "done", 2, 2.0, 9, 1.5),
            TrialRow("s-3", "lab", 3, {}, 1.0, "stopped", 2, 2.0, 9, 1.5, {}, "another job had this number"),
        ]
    )
    told = await got(client, "trainings")
    assert {one["job"]: one["stopped_by"] for one in told["trainings"]} == {
        1: f"sweep s-1, trial 3: {why}",
        2: "",
        3: "",
    }


async def test_rows_have_values_cost_and_origin(client: httpx.AsyncClient) -> None:
    told = await got(client, "trainings?where=loss<=2&sort=loss:lowest")
    assert [one["job"] for one in told["trainings"]] == [2, 1]
    first = told["trainings"][1]
    assert first["metrics"] == {"loss": {"step": 9, "last": 2.0, "lowest": 2.0, "highest": 5.0}}
    assert (first["restarts"], first["cost"]["runs"], first["cost"]["gpu_hours"], first["cost"]["usd"]) == (
        1,
        2,
        24.0,
        24.0,
    )
    assert first["origin"] == {
        "commit": "a" * 40, "dirty": False, "container": "", "datasets": ["wiki@1"], "environments": [],
    }  # fmt: skip
    assert told["names"] == ["loss"]


async def test_pages_follow_each_other(client: httpx.AsyncClient) -> None:
    first = await got(client, "trainings?limit=2")
    assert ([one["job"] for one in first["trainings"]], first["total"]) == ([3, 2], 3)
    second = await got(client, f"trainings?limit=2&cursor={first['next']}")
    assert ([one["job"] for one in second["trainings"]], second["next"]) == ([1], "")
    assert (await client.get(f"{V1}/trainings?cursor=x")).status_code == 400


async def test_other_teams_see_metrics_but_neither_cost_nor_origin(client: httpx.AsyncClient, server: Server) -> None:
    told = await got(await server.client("sam", "member"), "trainings")
    assert [one["job"] for one in told["trainings"]] == [3, 2, 1]
    assert [one["cost"] is None for one in told["trainings"]] == [False, True, True]
    assert [one["origin"] for one in told["trainings"]] == [None, None, None]
    lead = await got(await server.client("vera", "lead"), "trainings")
    assert [one["origin"] is None for one in lead["trainings"]] == [True, False, False]


async def test_groups_have_cost_and_the_best_training(client: httpx.AsyncClient) -> None:
    told = await got(client, "trainings/groups?by=user&metric=loss")
    assert [(one["value"], one["trainings"], one["gpu_hours"]) for one in told["groups"]] == [
        ("alice", 2, 32.0),
        ("sam", 1, 8.0),
    ]
    alice = told["groups"][0]
    assert (alice["lowest"], alice["lowest_job"], alice["mean"], alice["highest"]) == (1.5, 2, 1.75, 5.0)
    assert told["groups"][1]["lowest"] is None
    by_commit = await got(client, "trainings/groups?by=commit")
    assert {one["value"][:1] for one in by_commit["groups"]} == {"a", "b", ""}
    refused = await client.get(f"{V1}/trainings/groups?by=colour")
    assert (refused.status_code, "use user, team" in refused.text) == (400, True)


async def test_notes_and_tags_are_kept_and_found(client: httpx.AsyncClient, server: Server) -> None:
    path = f"{V1}/trainings/1"
    alice = await server.client("alice", "member")
    done = await alice.patch(path, json={"note": "=rate halved", "add_tags": ["base", "v1"], "remove_tags": []})
    assert (done.status_code, done.json()["tags"], done.json()["note"]) == (200, ["base", "v1"], "=rate halved")
    assert (await alice.patch(path, json={"remove_tags": ["v1"]})).json()["note"] == "=rate halved"
    assert [one["job"] for one in (await got(client, "trainings?tag=base"))["trainings"]] == [1]
    assert (await alice.patch(path, json={"add_tags": ["two words"]})).status_code == 422
    assert (await (await server.client("sam", "member")).patch(path, json={"note": "x"})).status_code == 403
    assert (await alice.patch(f"{V1}/trainings/99", json={})).status_code == 404
    text = (await client.get(f"{V1}/trainings/csv?metric=loss:lowest&tag=base")).text
    rows = list(csv.DictReader(text.splitlines()))
    assert (len(rows), rows[0]["loss:lowest"], rows[0]["usd"], rows[0]["note"]) == (1, "2.0", "24.00", "'=rate halved")


async def test_two_trainings_are_compared(client: httpx.AsyncClient, server: Server) -> None:
    server.backend.answers |= {"run_command": ExecOut(code=1), "job": lambda _, number: builders.job(number)}
    told = await got(client, "trainings/1/compare/2")
    differs = {one["what"]: one for one in told["differences"]}
    assert set(differs) == {"script", "arguments", "commit", "dataset wiki"}
    assert differs["script"]["lines"][-2:] == ["-python train.py --lr 1", "+python train.py --lr 2"]
    assert differs["commit"]["second"] == f"{'b' * 40} with uncommitted changes"
    assert differs["dataset wiki"]["first"].startswith("1 (sha256 ffff")
    assert "variable SEED" in told["same"]
    assert [one["last"] for one in told["metrics"]["loss"]] == [2.0, 1.5]
    other = await (await server.client("sam", "member")).get(f"{V1}/trainings/1/compare/2")
    assert other.status_code == 403
