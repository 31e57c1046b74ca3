"""The worker carries out a sweep round by round: it submits trials, stops the bad ones early, loses and repeats none."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from headway.errors import Unanswered, Unreachable
from headway.jobs.metrics.reader import MetricsPart
from headway.schemas.submission.submit_request import SubmitOut
from headway.server.workers.row_rounds import SweepWorker
from tests.support.clusters import builders
from tests.support.servers import server_fakes
from tests.support.servers.interrupted_request import KEY
from tests.support.servers.server_fakes import Server, reading

SWEEPS = "/api/v1/clusters/lab/sweeps"
FILE: dict[str, Any] = {
    "name": "lr",
    "run": "python train.py --lr {lr}",
    "method": "grid",
    "metric": {"name": "loss"},
    "parameters": {"lr": [0.1, 0.2, 0.3, 0.4]},
    "parallel": 3,
    "gpus": 8,
    "time": "60",
    "early_stopping": {"min_step": 10, "max_step": 100, "eta": 3},
}


class Lab:
    """A server with a cluster whose jobs and metrics the test changes."""

    def __init__(self, server: Server, clock: builders.Clock) -> None:
        self.server, self.clock = server, clock
        self.jobs: dict[int, Any] = {}
        self.files: dict[int, bytes] = {}
        self.known: dict[str, int] = {}
        self.starts: dict[int, int] = {}
        server.backend.answers |= {
            "submit": self.submit,
            "read": lambda *_: reading(*self.jobs.values()),
            "machines": (),
            "metric_parts": self.metric_parts,
            "cancel": None,
        }

    def submit(self, _: Any, request: Any, user: str, *__: Any) -> SubmitOut:
        number = self.known.setdefault(self.server.backend.tags[-1], 41 + len(self.known))
        self.jobs.setdefault(number, builders.job(number, "PENDING", user=user, start_time=0))
        return SubmitOut(job_id=number, cluster="lab", user=user, workdir=request.chdir)

    def metric_parts(self, _: Any, asked: Any) -> dict[int, MetricsPart]:
        found = {}
        for ask in asked:
            if (data := self.files.get(ask.job.id)) is not None:
                found[ask.job.id] = MetricsPart("/m", data[ask.offset :], len(data))
        return found

    def run(self, job: int, *values: tuple[int, float], state: str = "RUNNING", **fields: Any) -> None:
        """Lets the job run, or end, and report (step, loss)."""
        end = int(self.clock()) if state not in ("RUNNING", "PENDING") else 0
        start = self.starts.setdefault(job, int(self.clock()) - 3600)
        begun = {"start_time": start, "end_time": end, **fields}
        self.jobs[job] = builders.job(job, state, user="eve", **begun)
        if values:
            rows: list[Any] = [{"run": 5.0}, {"names": ["loss"]}, *([step, 6.0, loss] for step, loss in values)]
            self.files[job] = b"".join(json.dumps(row).encode() + b"\n" for row in rows)

    async def round(self) -> None:
        """Does a round with a new reading of Slurm."""
        self.clock.now += 3
        await SweepWorker(self.server.state).advance_all()

    @property
    def cancelled(self) -> list[str]:
        return [call[1] for call in self.server.backend.named("cancel")]


@pytest.fixture
async def lab(tmp_path: Path) -> AsyncIterator[Lab]:
    clock = builders.Clock()
    clock.now = 1e6
    made = await server_fakes.start(tmp_path, clock)
    await made.apply()
    yield Lab(made, clock)
    await made.close()


async def start(lab: Lab, **change: Any) -> tuple[httpx.AsyncClient, str]:
    eve = await lab.server.client("eve", "member")
    answer = await eve.post(SWEEPS, json={"document": {**FILE, **change}})
    assert answer.status_code == 201, answer.text
    return eve, answer.json()["id"]


async def show(eve: httpx.AsyncClient, sweep: str) -> Any:
    return (await eve.get(f"{SWEEPS}/{sweep}")).json()


async def test_dry_run_shows_trials_and_cost_and_stores_nothing(lab: Lab) -> None:
    eve = await lab.server.client("eve", "member")
    answer = (await eve.post(SWEEPS, json={"document": FILE, "dry_run": True})).json()
    assert [trial["parameters"]["lr"] for trial in answer["trials"]] == [0.1, 0.2, 0.3, 0.4]
    assert (answer["id"], answer["state"], answer["trial_count"]) == ("", "planned", 4)
    assert answer["most_gpu_hours"] == 32
    assert answer["command"] == ["python", "train.py", "--lr", "0.1"]
    assert (await eve.get(SWEEPS)).json() == []
    assert lab.server.backend.named("submit") == []


async def test_bad_trial_is_cancelled_at_its_rung_and_the_next_begins(lab: Lab) -> None:
    eve, sweep = await start(lab)
    await lab.round()
    assert list(lab.jobs) == [41, 42, 43]
    lab.run(41, (5, 9.0), (10, 1.0))
    lab.run(42, (5, 2.0), (12, 2.0))
    lab.run(43, (5, 3.0))
    await lab.round()
    assert lab.cancelled == ["42"]
    found = await show(eve, sweep)
    assert [trial["state"] for trial in found["trials"]] == ["running", "stopped", "running"]
    assert found["trials"][1]["why"] == "loss 2 at step 10: number 2 of 2"
    lab.run(42, state="CANCELLED")
    lab.run(41, (5, 9.0), (10, 1.0), (99, 0.5), state="COMPLETED")
    await lab.round()
    assert len(lab.jobs) == 4
    lab.run(43, (5, 3.0), (10, 0.9), (99, 0.7), state="COMPLETED")
    lab.run(44, (9, 0.1), state="FAILED", exit_code=1)
    await lab.round()
    await lab.round()
    found = await show(eve, sweep)
    assert [trial["state"] for trial in found["trials"]] == ["done", "stopped", "done", "failed"]
    assert (found["state"], found["best"], found["trials"][0]["value"]) == ("done", 1, 0.5)
    assert found["ended_at"] is not None
    assert 31.9 < found["gpu_hours"] < 32.1
    assert await lab.server.store.sweeps.unfinished() == ()


async def test_killed_server_neither_loses_nor_repeats_a_trial(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    eve, sweep = await start(lab)
    store = lab.server.store.sweeps
    stores, times = store.update_trials, iter(range(2))

    async def killed(trials: Any) -> None:
        some = list(trials)
        if some and next(times, None) is None:
            raise asyncio.CancelledError
        await stores(some)

    monkeypatch.setattr(store, "update_trials", killed)
    with pytest.raises(asyncio.CancelledError):  # after the third sbatch, before its number is stored
        await lab.round()
    monkeypatch.setattr(store, "update_trials", stores)
    assert [trial["job_id"] for trial in (await show(eve, sweep))["trials"]] == [41, 42, 0]
    await lab.round()
    assert [trial["job_id"] for trial in (await show(eve, sweep))["trials"]] == [41, 42, 43]
    assert list(lab.jobs) == [41, 42, 43]
    records = await lab.server.store.jobs.of_pipeline(sweep)
    assert [(one.job_id, one.step) for one in records] == [(41, "1"), (42, "2"), (43, "3")]


@pytest.mark.parametrize("error", [Unreachable("the head is away"), Unanswered("the head did not answer")])
async def test_trial_waits_while_the_head_is_away(lab: Lab, error: Unreachable) -> None:
    eve, sweep = await start(lab)
    lab.server.backend.answers["submit"] = error
    await lab.round()
    assert {trial["state"] for trial in (await show(eve, sweep))["trials"]} == {"submitting"}
    lab.server.backend.answers["submit"] = lab.submit
    await lab.round()
    assert [trial["state"] for trial in (await show(eve, sweep))["trials"]] == ["pending"] * 3


async def test_requeued_job_stays_the_same_trial_and_keeps_its_hours(lab: Lab) -> None:
    eve, sweep = await start(lab)
    await lab.round()
    lab.run(41, (10, 1.0))
    await lab.round()
    lab.run(41, state="NODE_FAIL")
    await lab.round()
    lab.run(41, state="PENDING", start_time=0)  # Slurm, or Headway's health loop, has requeued it
    await lab.round()
    first = (await show(eve, sweep))["trials"][0]
    assert (first["state"], first["job_id"], first["value"]) == ("pending", 41, 1.0)
    lab.run(41, (10, 1.0), (20, 0.5), state="COMPLETED", start_time=int(lab.clock()) - 1800)
    await lab.round()
    first = (await show(eve, sweep))["trials"][0]
    assert (first["state"], first["value"]) == ("done", 0.5)
    assert 5390 < first["run_s"] < 5415


async def test_sweep_whose_first_trials_fail_ends_and_cancels_the_others(lab: Lab) -> None:
    eve, sweep = await start(lab, parallel=4)
    await lab.round()
    for job in (41, 42, 43):
        lab.run(job, state="FAILED", exit_code=127)
    await lab.round()
    assert lab.cancelled == ["44"]
    lab.run(44, state="CANCELLED")
    await lab.round()
    found = await show(eve, sweep)
    assert (found["state"], found["trials"][3]["state"]) == ("failed", "cancelled")
    assert found["why"].startswith("all of its first 3 trials failed; trial 3: ")


async def test_trial_that_never_reports_the_metric_has_failed(lab: Lab) -> None:
    eve, sweep = await start(lab, metric={"name": "losss"})
    await lab.round()
    lab.run(41, (10, 1.0), state="COMPLETED")
    await lab.round()
    first = (await show(eve, sweep))["trials"][0]
    assert (first["state"], first["why"]) == ("failed", "it did not report losss")


async def test_sweep_stops_at_its_cost(lab: Lab) -> None:
    eve, sweep = await start(lab, max_cost=5)
    await lab.round()
    lab.run(41, (10, 1.0))
    await lab.round()
    found = await show(eve, sweep)
    assert found["state"] == "stopped"
    assert "max_cost is 5.00 USD" in found["why"]


async def test_stopped_sweep_cancels_its_trials_and_begins_none(lab: Lab) -> None:
    eve, sweep = await start(lab)
    await lab.round()
    assert (await eve.post(f"{SWEEPS}/lr/stop")).json()["state"] == "stopped"
    await lab.round()
    assert sorted(lab.cancelled) == ["41", "42", "43"]
    for job in lab.jobs:
        lab.run(job, state="CANCELLED")
    await lab.round()
    found = await show(eve, sweep)
    assert (found["why"], found["ended_at"] is not None, len(found["trials"])) == ("eve stopped it", True, 3)
    again = await eve.post(f"{SWEEPS}/lr/stop")
    assert again.status_code == 409


async def test_sweep_of_a_disabled_person_stops(lab: Lab) -> None:
    eve, sweep = await start(lab)
    await lab.server.store.people.disable("eve", by="ann")
    await lab.round()
    row = await lab.server.store.sweeps.get("lab", sweep)
    assert (row.state, lab.jobs) == ("stopped", {})
    del eve


async def test_best_trial_runs_on_more_nodes_with_its_lineage(lab: Lab) -> None:
    eve, sweep = await start(lab, parallel=2)
    await lab.round()
    lab.run(41, (20, 1.0), state="COMPLETED")
    lab.run(42, (20, 0.5), state="COMPLETED")
    await lab.round()
    script = (await eve.post(f"{SWEEPS}/lr/best", json={"nodes": 2, "dry_run": True})).json()
    assert "#SBATCH --nodes=2" in [line["text"] for line in script["script"]]
    assert script["script_args"][-2:] == ["--lr", "0.2"]
    done = (await eve.post(f"{SWEEPS}/lr/best", json={"nodes": 2}, headers=KEY)).json()
    record = await lab.server.store.jobs.get("lab", done["job_id"])
    assert record is not None
    assert (record.parent, record.pipeline, record.step) == (42, sweep, "2")
    none = await eve.post(f"{SWEEPS}/lr/best", json={"trial": 9})
    assert none.status_code == 404


async def test_program_adds_trials_that_wait_for_their_place(lab: Lab) -> None:
    eve, sweep = await start(lab, method="manual", trials=3, parallel=1)
    await lab.round()
    assert lab.jobs == {}
    added = await eve.post(f"{SWEEPS}/{sweep}/trials", json={"parameters": [{"lr": 0.7}, {"lr": 0.8}]})
    assert [(one["number"], one["state"]) for one in added.json()] == [(1, "waiting"), (2, "waiting")]
    await lab.round()
    assert list(lab.jobs) == [41]
    lab.run(41, (10, 1.0), state="COMPLETED")
    await lab.round()
    assert list(lab.jobs) == [41, 42]
    assert lab.server.backend.named("submit")[1][1].script_args[-1] == "0.8"
    other = await eve.post(f"{SWEEPS}/{sweep}/trials", json={"parameters": [{"rate": 0.7}]})
    assert other.status_code == 400
    many = await eve.post(f"{SWEEPS}/{sweep}/trials", json={"parameters": [{"lr": 1}, {"lr": 2}]})
    assert many.status_code == 409
    await eve.post(f"{SWEEPS}/{sweep}/trials", json={"parameters": [{"lr": 0.9}]})
    lab.run(42, (10, 2.0), state="COMPLETED")
    await lab.round()
    lab.run(43, (10, 3.0), state="COMPLETED")
    await lab.round()
    found = await show(eve, sweep)
    assert (found["state"], found["best"], len(found["trials"])) == ("done", 1, 3)
    late = await eve.post(f"{SWEEPS}/{sweep}/trials", json={"parameters": [{"lr": 1}]})
    assert late.status_code == 409


async def test_search_refuses_trials_of_a_program(lab: Lab) -> None:
    eve, sweep = await start(lab)
    answer = await eve.post(f"{SWEEPS}/{sweep}/trials", json={"parameters": [{"lr": 1}]})
    assert answer.status_code == 400


async def test_repeated_start_with_one_key_is_one_sweep(lab: Lab) -> None:
    eve = await lab.server.client("eve", "member")
    first, again = [await eve.post(SWEEPS, json={"document": FILE}, headers=KEY) for _ in range(2)]
    assert first.json()["id"] == again.json()["id"]
    assert len((await eve.get(SWEEPS)).json()) == 1


async def test_sweep_that_is_named_like_the_id_of_another_does_not_hide_it(lab: Lab) -> None:
    _, sweep = await start(lab)
    store = lab.server.store.sweeps
    row = await store.get("lab", sweep)
    lab.clock.now += 10
    await store.save("lab", sweep, person="mallory", user="mallory", document=row.document)
    assert (await store.get("lab", sweep)).person == "eve"
