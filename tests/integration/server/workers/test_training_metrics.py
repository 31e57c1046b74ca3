"""The leader copies each training's reports once, until the end of its file; answers are made from the copy."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from headway.errors import NotFound, Unreachable
from headway.jobs.metrics.reader import MetricsPart
from headway.schemas.jobs import ProgressOut
from headway.server.workers.training_metrics import TrainingMetrics
from headway.services.jobs import training_metrics
from headway.services.read_model.snapshot import Snapshot
from tests.support.clusters import builders
from tests.support.paths import NODE
from tests.support.servers.server_fakes import Server

sys.path.insert(0, str(NODE / "train"))

from headway_train import metrics_file

PATH = "/scratch/alice/.headway/metrics/7.jsonl"
AT = "/api/v1/clusters/lab/jobs/7/metrics"


def lines(*values: Any) -> bytes:
    return b"".join(json.dumps(value).encode() + b"\n" for value in values)


class Head:
    """The files of trainings on a head, by job."""

    def __init__(self, server: Server) -> None:
        self.files: dict[int, bytes] = {}
        self.part = 1000
        self.asked: list[tuple[int, int, str]] = []
        server.backend.answers["metric_parts"] = self.read

    def read(self, _: Any, asked: Any) -> dict[int, MetricsPart]:
        self.asked += [(ask.job.id, ask.offset, ask.path) for ask in asked]
        found = {}
        for ask in asked:
            if ask.job.id in self.files:
                data = self.files[ask.job.id]
                part = data[ask.offset : ask.offset + self.part]
                found[ask.job.id] = MetricsPart(PATH, part[: part.rfind(b"\n") + 1], len(data))
        return found


@pytest.fixture
async def server(server: Server) -> Server:
    """With a cluster and a running job."""
    await server.apply()
    show(server, builders.job(7))
    return server


@pytest.fixture
def head(server: Server) -> Head:
    found = Head(server)
    found.files[7] = lines({"run": 5.0}, {"names": ["loss", "lr"]}, [1, 6.0, 2.0, 0.1], [2, 7.0, 1.5, None])
    return found


def show(server: Server, *jobs: Any, progress: bool = True) -> None:
    known = {job.id: ProgressOut(step=1) for job in jobs if progress}
    server.state.live.store_snapshot(Snapshot("lab", jobs=jobs, progress=known, as_of=1000.0))


async def test_reports_are_copied_once_and_served(server: Server, head: Head) -> None:
    worker, client = TrainingMetrics(server.state), await server.client()
    await worker.collect_all()
    head.files[7] += lines([3, 8.0, float("nan"), 0.05]) + b"[4, 9"
    await worker.collect_all()
    told = (await client.get(AT)).json()
    assert [(one["name"], one["points"], one["step"], one["value"], one["text"]) for one in told["metrics"]] == [
        ("loss", 3, 3, None, "nan"), ("lr", 2, 3, 0.05, "0.05"),
    ]  # fmt: skip
    assert told["runs"] == [{"began": 5.0, "first_step": 1}]
    assert told["unread_bytes"] == 5
    charts = (await client.get(f"{AT}/series", params={"metric": ["loss", "lr"], "points": 10})).json()["series"]
    assert [(one["steps"], one["values"]) for one in charts] == [([1, 2, 3], [2.0, 1.5, None]), ([1, 3], [0.1, 0.05])]
    assert charts[0]["not_finite"] == [[3, "nan"]]
    rows = list(csv.reader((await client.get(f"{AT}/csv")).text.splitlines()))
    assert rows[0] == ["metric", "run", "step", "unix_seconds", "value"]
    assert rows[3:] == [
        ["loss", "0", "3", "8.000", "nan"], ["lr", "0", "1", "6.000", "0.1"], ["lr", "0", "3", "8.000", "0.05"],
    ]  # fmt: skip
    assert (await client.get(f"{AT}/csv?metric=lr")).text.count("\n") == 3
    assert head.asked[1][2] == PATH, "the path is known from then on"


async def test_unknown_metric_is_refused_with_those_that_exist(server: Server, head: Head) -> None:
    await TrainingMetrics(server.state).collect_all()
    answer = await (await server.client()).get(f"{AT}/series?metric=los")
    assert answer.status_code == 404
    assert "has not reported los; it reports: loss, lr" in answer.text


async def test_job_without_progress_is_asked_only_when_it_has_ended(server: Server, head: Head) -> None:
    worker = TrainingMetrics(server.state)
    show(server, builders.job(7), progress=False)
    await worker.collect_all()
    assert head.asked == []
    show(server, builders.job(7, "COMPLETED", end_time=990), progress=False)
    for _ in range(3):
        await worker.collect_all()
    assert [number for number, _, _ in head.asked] == [7]
    assert len(training_metrics.metric_files(server.state).read("lab", 7).metrics) == 2


async def test_file_of_a_job_that_ended_without_a_server_is_read_on_request(server: Server, head: Head) -> None:
    show(server)
    ended = builders.job(7, "COMPLETED", end_time=500)
    server.backend.answers |= {"job": ended, "history": ()}
    client = await server.client()
    told = (await client.get(AT)).json()
    assert [one["name"] for one in told["metrics"]] == ["loss", "lr"]
    server.backend.answers["metric_parts"] = Unreachable("lab-head does not answer")
    assert (await client.get(AT)).json() == told, "it was read to its end after the job's end"


async def test_long_file_is_read_in_parts_so_that_others_get_their_turn(server: Server, head: Head) -> None:
    head.part = 40
    head.files[7] += lines(*([step, 6.0 + step, 1.0, 0.1] for step in range(3, 400)))
    worker = TrainingMetrics(server.state)
    await worker.collect_all()
    known = training_metrics.metric_files(server.state).read("lab", 7)
    assert 0 < known.unread_bytes == len(head.files[7]) - known.offset
    while training_metrics.metric_files(server.state).read("lab", 7).unread_bytes:
        await worker.collect_all()
    assert training_metrics.metric_files(server.state).read("lab", 7).metrics[0].points == 399


async def test_million_numbers_of_one_minute_delay_no_other_job(
    server: Server, head: Head, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HEADWAY_METRICS_DIR", str(tmp_path))
    monkeypatch.setenv("SLURM_JOB_ID", "8")
    writer = metrics_file.MetricsFile(5.0, every_s=3600)
    layers = {f"layer {number}": 1.0 for number in range(100)}
    for step in range(10_000):
        writer.add({"step": step, **layers}, 60.0 + step * 0.005)
        if step % 1000 == 999:
            writer.write()
    show(server, builders.job(7), builders.job(8))
    head.files[8], head.part = (tmp_path / "8.jsonl").read_bytes(), 64 * 1024
    worker, files = TrainingMetrics(server.state), training_metrics.metric_files(server.state)
    await worker.collect_all()
    assert files.read("lab", 8).unread_bytes > 0
    assert (files.read("lab", 7).points, files.read("lab", 7).unread_bytes) == (3, 0), "the other job is complete"
    head.part = 1024 * 1024
    await worker.collect_all()
    found = (await (await server.client()).get(AT.replace("/7/", "/8/"))).json()
    assert {one["points"] for one in found["metrics"]} == {5940}, (
        "600,000 numbers of a minute are kept, with their steps"
    )
    assert (found["dropped"], found["unread_bytes"]) == (4060, 0)
    assert "more than 600,000 numbers a minute" in capsys.readouterr().err


async def test_shorter_file_is_that_of_another_job_with_the_same_number(server: Server, head: Head) -> None:
    worker = TrainingMetrics(server.state)
    await worker.collect_all()
    head.files[7] = lines({"run": 9.0}, {"names": ["acc"]}, [1, 10.0, 0.5])
    await worker.collect_all()
    known = training_metrics.metric_files(server.state).read("lab", 7)
    assert [(metric.name, metric.points) for metric in known.metrics] == [("acc", 1)]


async def test_metrics_go_with_the_data_of_a_cluster(server: Server, head: Head) -> None:
    await TrainingMetrics(server.state).collect_all()
    files = training_metrics.metric_files(server.state)
    files.forget("other")
    assert files.read("lab", 7).metrics
    files.forget("lab")
    assert not files.read("lab", 7).metrics


async def test_table_of_trainings_follows_the_state_of_jobs(server: Server, head: Head) -> None:
    worker, trainings = TrainingMetrics(server.state), server.store.trainings
    await worker.collect_all()
    found = await trainings.get("lab", 7)
    assert found is not None
    assert (found.state, found.metrics) == ("RUNNING", {"loss": (2, 1.5, 1.5, 2.0), "lr": (1, 0.1, 0.1, 0.1)})
    show(server, builders.job(7, "PENDING", restarts=1))
    await worker.collect_all()
    assert await trainings.unfinished("lab", 9) == {7: "PENDING"}
    show(server)  # it ended while no server ran
    head.files[7] += lines([4, 9.0, 0.5, None])
    server.backend.answers |= {"job": builders.job(7, "FAILED", end_time=500), "history": ()}
    await worker.collect_all()
    found = await trainings.get("lab", 7)
    assert found is not None
    assert (found.state, found.metrics["loss"]) == ("FAILED", (4, 0.5, 0.5, 2.0))
    assert await trainings.unfinished("lab", 9) == {}


async def test_job_that_slurm_forgot_is_not_asked_for_again(server: Server, head: Head) -> None:
    worker = TrainingMetrics(server.state)
    await worker.collect_all()
    show(server)
    asked: list[int] = []

    def job(_: Any, number: int) -> Any:
        asked.append(number)
        raise NotFound(f"no job {number}")

    server.backend.answers |= {"job": job, "history": ()}
    for _ in range(3):
        await worker.collect_all()
    found = await server.store.trainings.get("lab", 7)
    assert found is not None
    assert (found.state, asked) == ("UNKNOWN", [7])
