"""A scheduled pipeline starts at its times and for new versions of its dataset, once each, also if a start is interrupted."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from headway.domain.dataset import DatasetVersion
from headway.errors import Refused, Unanswered, Unreachable
from headway.schemas.submission.submit_request import SubmitOut
from headway.server.workers.row_rounds import PipelineScheduleWorker
from tests.support.clusters import builders
from tests.support.servers import server_fakes
from tests.support.servers.server_fakes import Server, reading

LAB = "/api/v1/clusters/lab"
SCHEDULES = f"{LAB}/pipeline-schedules"
FILE: dict[str, Any] = {
    "name": "retrain",
    "schedule": "0 3 * * *",
    "on": {"dataset": "books"},
    "steps": {"train": {"run": "python train.py"}, "evaluate": {"run": "python evaluate.py", "needs": ["train"]}},
}
DAY = 86_400.0


class Lab:
    """A server at 1970-01-12 13:46:40 with a cluster whose jobs the test changes."""

    def __init__(self, server: Server, clock: builders.Clock) -> None:
        self.server, self.clock = server, clock
        self.jobs: dict[int, Any] = {}
        self.known: dict[str, int] = {}
        self.requests: list[Any] = []
        server.backend.answers |= {
            "submit": self.submit,
            "read": lambda *_: reading(*self.jobs.values()),
            "machines": (),
            "history": (),
            "job": lambda _, number: self.jobs[number],
        }

    def submit(self, _: Any, request: Any, user: str, *__: Any) -> SubmitOut:
        number = self.known.setdefault(self.server.backend.tags[-1], 41 + len(self.known))
        if number not in self.jobs:
            self.requests.append(request)
            self.jobs[number] = builders.job(number, "PENDING", user=user, start_time=0)
        return SubmitOut(job_id=number, cluster="lab", user=user, workdir=request.chdir)

    def end_all(self) -> None:
        for number in self.jobs:
            self.jobs[number] = builders.job(number, "COMPLETED", user="eve", start_time=1, end_time=2)

    async def round(self, seconds: float = 3.0) -> None:
        """Does a round after this time, with a new reading of Slurm."""
        self.clock.now += seconds
        self.server.state.live.forget_cluster("lab")
        await PipelineScheduleWorker(self.server.state).advance_all()

    async def add_version(self, number: int) -> None:
        row = DatasetVersion("lab", "books", number, "0" * 64, 1, 1, "/data/books", "ann", self.clock())
        await self.server.store.datasets.add(row)


@pytest.fixture
async def lab(tmp_path: Path) -> AsyncIterator[Lab]:
    clock = builders.Clock()
    clock.now = 1e6
    made = await server_fakes.start(tmp_path, clock)
    await made.apply()
    yield Lab(made, clock)
    await made.close()


async def schedule(lab: Lab, status: int = 201, **change: Any) -> tuple[httpx.AsyncClient, Any]:
    eve = await lab.server.client("eve", "member")
    answer = await eve.post(SCHEDULES, json={"document": {**FILE, **change}})
    assert answer.status_code == status, answer.text
    return eve, answer.json()


async def shown(eve: httpx.AsyncClient) -> Any:
    (found,) = (await eve.get(SCHEDULES)).json()
    return found


async def test_pipeline_starts_once_at_its_time(lab: Lab) -> None:
    eve, made = await schedule(lab)
    assert (made["schedule"], made["dataset"], made["next_at"]) == ("0 3 * * *", "books", 1_047_600.0)  # 13th, 03:00
    await lab.round()
    assert lab.requests == []
    await lab.round(made["next_at"] - lab.clock())
    await lab.round()
    assert [request.script_name for request in lab.requests] == ["train", "evaluate"]
    assert "HEADWAY_TRIGGER=schedule" in lab.requests[0].script or (
        lab.requests[0].env["HEADWAY_TRIGGER"] == "schedule"
    )
    found = await shown(eve)
    assert (found["next_at"], found["why"]) == (made["next_at"] + DAY, "")
    started = (await eve.get(f"{LAB}/pipelines/{found['last']}")).json()
    assert (started["name"], started["person"]) == ("retrain", "eve")


async def test_missed_times_start_it_once_and_a_running_pipeline_is_left_alone(lab: Lab) -> None:
    eve, _ = await schedule(lab)
    await lab.round(5 * DAY)
    await lab.round()
    assert len(lab.requests) == 2
    first = (await shown(eve))["last"]
    await lab.round(DAY)
    assert (len(lab.requests), (await shown(eve))["why"]) == (2, f"{first} still ran")
    lab.end_all()
    await lab.round(DAY)
    assert (len(lab.requests), (await shown(eve))["why"]) == (4, "")


async def test_new_version_of_the_dataset_starts_it_and_waits_for_the_last_one(lab: Lab) -> None:
    await lab.add_version(1)
    await schedule(lab, schedule=None)
    await lab.round()
    assert lab.requests == [], "the version was there before"
    await lab.add_version(2)
    await lab.round()
    assert len(lab.requests) == 2
    assert "books@2" in (lab.requests[0].env.get("HEADWAY_TRIGGER", "") + (lab.requests[0].script or ""))
    await lab.add_version(3)
    await lab.round()
    assert len(lab.requests) == 2
    lab.end_all()
    await lab.round()
    await lab.round()
    assert len(lab.requests) == 4


async def test_start_that_a_killed_server_interrupted_submits_no_step_twice(lab: Lab) -> None:
    eve, made = await schedule(lab)

    def dies(*sent: Any) -> SubmitOut:
        done = lab.submit(*sent)
        if done.job_id == 42:
            raise RuntimeError("killed")
        return done

    lab.server.backend.answers["submit"] = dies
    await lab.round(made["next_at"] - lab.clock())
    lab.server.backend.answers["submit"] = lab.submit
    await lab.round()
    found = await shown(eve)
    (started,) = (await eve.get(f"{LAB}/pipelines")).json()
    assert (found["last"], found["why"], len(lab.requests)) == (started["id"], "", 2)
    assert [step["job_id"] for step in started["steps"]] == [41, 42]


async def test_start_whose_steps_were_cancelled_is_repeated_with_new_jobs(lab: Lab) -> None:
    eve, made = await schedule(lab)

    def unanswered(*sent: Any) -> SubmitOut:
        done = lab.submit(*sent)
        if done.job_id == 42:
            raise Unanswered("the head does not answer")
        return done

    lab.server.backend.answers |= {"submit": unanswered, "cancel": None}
    await lab.round(made["next_at"] - lab.clock())
    assert "the head does not answer" in (await shown(eve))["why"]
    await lab.round()
    found = await shown(eve)
    started = (await eve.get(f"{LAB}/pipelines/{found['last']}")).json()
    assert (found["why"], [step["job_id"] for step in started["steps"]]) == ("", [43, 44])


async def test_refused_start_is_told_and_the_next_time_stays(lab: Lab) -> None:
    eve, made = await schedule(lab)
    lab.server.backend.answers |= {"submit": Refused("no more jobs"), "cancel": None}
    await lab.round(made["next_at"] - lab.clock())
    found = await shown(eve)
    assert ("no more jobs" in found["why"], found["next_at"]) == (True, made["next_at"] + DAY)


async def test_schedule_that_is_replaced_during_a_start_stays(lab: Lab) -> None:
    eve, made = await schedule(lab)
    sent = {"document": {**FILE, "schedule": None, "steps": {"new": {"run": "new.py"}}}}

    async def replaced(*job: Any) -> SubmitOut:
        assert (await eve.post(SCHEDULES, json=sent)).status_code == 201
        return lab.submit(*job)

    lab.server.backend.answers["submit"] = replaced
    await lab.round(made["next_at"] - lab.clock())
    lab.server.backend.answers["submit"] = lab.submit
    found = await shown(eve)
    assert (found["schedule"], found["next_at"], found["last"][:2]) == ("", None, "p-")
    (row,) = await lab.server.store.pipeline_schedules.all()
    assert [*row.document["document"]["steps"]] == ["new"]
    await lab.round(DAY)
    assert len(lab.requests) == 2


async def test_start_waits_while_accounting_does_not_answer(lab: Lab) -> None:
    eve, made = await schedule(lab)
    await lab.round(made["next_at"] - lab.clock())
    first = await shown(eve)
    lab.end_all()
    lab.server.backend.answers |= {"read": lambda *_: reading(), "history": Unreachable("slurmdbd is down")}
    await lab.round(DAY)
    found = await shown(eve)
    assert (found["why"], found["next_at"], len(lab.requests)) == ("slurmdbd is down", first["next_at"], 2)
    lab.server.backend.answers |= {"history": (), "job": lambda _, number: lab.jobs[number]}
    await lab.round(60)
    assert ((await shown(eve))["why"], len(lab.requests)) == ("", 4)


async def test_start_waits_for_steps_that_run_after_another_has_failed(lab: Lab) -> None:
    eve, made = await schedule(lab)
    await lab.round(made["next_at"] - lab.clock())
    first = (await shown(eve))["last"]
    lab.jobs[41] = builders.job(41, "FAILED", user="eve", start_time=1, end_time=2)
    await lab.round(DAY)
    assert ((await shown(eve))["why"], len(lab.requests)) == (f"{first} still ran", 2)
    lab.jobs[42] = builders.job(42, "PENDING", user="eve", start_time=0, reason="DependencyNeverSatisfied")
    await lab.round(DAY)
    assert len(lab.requests) == 4


async def test_start_that_was_interrupted_more_than_a_day_ago_is_not_repeated(lab: Lab) -> None:
    eve, made = await schedule(lab)

    def dies(*sent: Any) -> SubmitOut:
        lab.submit(*sent)
        raise RuntimeError("killed")

    lab.server.backend.answers["submit"] = dies
    await lab.round(made["next_at"] - lab.clock())
    lab.server.backend.answers["submit"] = lab.submit
    lab.known.clear()  # the head forgets tags
    await lab.round(1.1 * DAY)
    found = await shown(eve)
    assert (len(lab.requests), "more than a day ago" in found["why"]) == (1, True)
    assert found["next_at"] == made["next_at"] + 2 * DAY


async def test_unschedule_by_name_takes_the_own_schedule(lab: Lab) -> None:
    eve, made = await schedule(lab)
    for name in ("bob", "carol"):
        lab.clock.now += 1
        assert (await (await lab.server.client(name, "member")).post(SCHEDULES, json={"document": FILE})).is_success
    boss = await lab.server.client()
    refused = await boss.delete(f"{SCHEDULES}/retrain")
    assert (refused.status_code, made["id"] in refused.json()["hint"]) == (409, True)
    assert (await eve.delete(f"{SCHEDULES}/retrain")).json()["user"] == "eve"
    assert sorted(one["user"] for one in (await eve.get(SCHEDULES)).json()) == ["bob", "carol"]


async def test_dataset_without_versions_is_told(lab: Lab) -> None:
    _, made = await schedule(lab, schedule=None)
    assert made["why"] == "dataset books has no version yet"


async def test_schedule_is_replaced_and_ends(lab: Lab) -> None:
    eve, _ = await schedule(lab)
    await schedule(lab, schedule="0 4 * * *")
    assert (await shown(eve))["schedule"] == "0 4 * * *"
    carol = await lab.server.client("carol", "member")
    assert (await carol.delete(f"{SCHEDULES}/retrain")).status_code == 403
    assert (await eve.delete(f"{SCHEDULES}/retrain")).status_code == 200
    await lab.round(2 * DAY)
    assert (lab.requests, (await eve.get(SCHEDULES)).json()) == ([], [])
    assert (await eve.delete(f"{SCHEDULES}/retrain")).status_code == 404


async def test_wrong_schedules_are_refused(lab: Lab) -> None:
    _, refused = await schedule(lab, 422, schedule="61 3 * * *")
    assert refused["faults"][0]["path"] == "schedule"
    assert "61 is no minute" in refused["faults"][0]["message"]
    _, refused = await schedule(lab, 400, schedule=None, on=None)
    assert "neither schedule nor on" in refused["detail"]
    secret = {"train": {"run": "x", "env": {"API_TOKEN": "hw_1234567890abcdefghijkl"}}}
    _, refused = await schedule(lab, 400, steps=secret)
    assert "looks like a secret" in refused["detail"]
