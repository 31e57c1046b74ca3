"""What a job logs by MLflow's REST API is kept before it is answered, also while no MLflow server answers."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from headway.jobs.metrics.metric_files import JobMetrics, MetricFiles
from tests.support.paths import NODE

sys.path.insert(0, str(NODE / "train"))

from headway_train.mlflow_receiver.answers import Asked, Questions, Receiver
from headway_train.mlflow_receiver.journal import Journal
from headway_train.mlflow_receiver.runs import API, Runs

PROLOG = NODE / "train" / "headway_train" / "mlflow_receiver" / "task_prolog.py"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HEADWAY_METRICS_DIR", str(tmp_path / "metrics"))
    monkeypatch.setenv("HEADWAY_REPORT_SOCKET", str(tmp_path / "no-agent"))
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    return tmp_path


def receiver(folder: Path) -> Receiver:
    journal = Journal(folder / "mlflow", "7")
    runs = Runs("alice", lambda *_: None)
    for name, body in journal.read():
        runs.learn(name, body)
    runs.first = ""
    return Receiver(journal, runs, "token", 1700000000.0)


def journal(folder: Path) -> list[Any]:
    return [json.loads(line) for line in (folder / "mlflow" / "7.jsonl").read_text().splitlines() if line]


def metrics(folder: Path) -> JobMetrics:
    files, known = MetricFiles(folder / "copy"), JobMetrics()
    files.append("lab", 7, known, (folder / "metrics" / "7.jsonl").read_bytes())
    return files.read("lab", 7)


def post(one: Receiver, name: str, **body: Any) -> dict[str, Any]:
    answer = one.answer("POST", API + name, {}, body)
    assert answer is not None
    assert answer[0] == 200, answer
    return answer[1]


def new_run(one: Receiver, **body: Any) -> str:
    return str(post(one, "runs/create", experiment_id="0", **body)["run"]["info"]["run_id"])


def test_a_run_is_answered_and_kept_without_an_mlflow_server(folder: Path) -> None:
    one = receiver(folder)
    named = one.answer("GET", API + "experiments/get-by-name", {"experiment_name": "llm"}, {})
    assert named is not None
    experiment = named[1]["experiment"]["experiment_id"]
    run = post(one, "runs/create", experiment_id=experiment)["run"]["info"]["run_id"]
    post(one, "runs/log-parameter", run_id=run, key="lr", value="0.1")
    post(
        one,
        "runs/log-batch",
        run_id=run,
        metrics=[{"key": "loss", "value": 2.5, "timestamp": 1700000005000, "step": 3}],
    )
    post(one, "runs/update", run_id=run, status="FINISHED", end_time=1700000009000)

    shown = one.answer("GET", API + "runs/get", {"run_id": run}, {})
    assert shown is not None
    assert shown[1]["run"]["info"]["status"] == "FINISHED"
    assert shown[1]["run"]["data"]["params"] == [{"key": "lr", "value": "0.1"}]
    assert [line[0] for line in journal(folder)] == [
        "experiments/create", "runs/create", "runs/log-parameter", "runs/log-batch", "runs/update",
    ]  # fmt: skip
    assert journal(folder)[1][1]["experiment_name"] == "llm"
    assert journal(folder)[1][1]["run_id"] == run


def test_numbers_become_metrics_of_the_job(folder: Path) -> None:
    one = receiver(folder)
    run = new_run(one)
    for step in range(3):
        post(one, "runs/log-metric", run_id=run, key="loss", value=3.0 - step, timestamp=1700000000000, step=step)
    post(one, "runs/log-metric", run_id=run, key="val acc:top1", value="NaN", timestamp=1700000000000, step="3")
    second = new_run(one, run_name="trial-2")
    post(one, "runs/log-metric", run_id=second, key="loss", value=9, timestamp=1700000000000, step=0)

    known = {metric.name: metric for metric in metrics(folder).metrics}
    assert set(known) == {"loss", "val acc_top1", "trial-2/loss"}
    assert (known["loss"].points, known["loss"].step, known["loss"].value) == (3, 2, 1.0)
    assert known["val acc_top1"].value != known["val acc_top1"].value


def test_a_requeued_job_knows_its_runs(folder: Path) -> None:
    run = new_run(receiver(folder))
    with (folder / "mlflow" / "7.jsonl").open("ab") as out:
        out.write(b'["runs/log-me')  # its node was killed here
    again = receiver(folder)
    post(again, "runs/log-metric", run_id=run, key="loss", value=1.0, timestamp=1700000000000, step=5)
    assert [metric.name for metric in metrics(folder).metrics] == ["loss"]
    assert json.loads((folder / "mlflow" / "7.jsonl").read_text().splitlines()[-1])[0] == "runs/log-metric"


def test_an_unknown_run_needs_the_mlflow_server(folder: Path) -> None:
    one = receiver(folder)
    assert one.answer("POST", API + "runs/log-metric", {}, {"run_id": "0" * 32, "key": "loss", "value": 1}) is None
    assert one.answer("POST", API + "runs/search", {}, {"experiment_ids": ["1"]}) is None
    assert not (folder / "mlflow").exists()


def test_a_question_waits_for_headways_server() -> None:
    noted = threading.Event()
    questions = Questions(noted.set)
    asked = Asked("GET", "/api/2.0/mlflow/runs/search", {}, b"")
    answered: list[bool] = []
    waiting = threading.Thread(target=lambda: answered.append(questions.ask(asked)))
    waiting.start()
    assert noted.wait(10)  # the journal says that a request waits
    found = questions.next(10)
    assert found is not None
    passed_on = threading.Thread(
        target=questions.answer, args=(found[0], 200, "application/json", io.BytesIO(b"{}"), 2)
    )
    passed_on.start()
    waiting.join(10)
    assert answered == [True]
    assert (asked.status, asked.read()) == (200, b"{}")
    passed_on.join(10)
    assert questions.next(0) is None


def test_the_task_prolog_starts_one_receiver_for_a_job(folder: Path) -> None:
    job = str(2_000_000_000 + os.getpid())
    env = {"PATH": os.environ["PATH"], "HEADWAY_METRICS_DIR": str(folder / "metrics"), "SLURM_JOB_ID": job}

    def prolog(**more: str) -> dict[str, str]:
        ran = subprocess.run(
            [sys.executable, "-I", "-S", str(PROLOG)],
            env=env | more,
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        lines = (line.removeprefix("export ").partition("=") for line in ran.stdout.splitlines())
        return {name: value for name, _, value in lines}

    known = Path(f"/tmp/.headway-mlflow-{job}")
    try:
        first = prolog()
        assert prolog() == first
        assert prolog(MLFLOW_TRACKING_URI="https://own.example") == {}
        assert prolog(**{**first, "HEADWAY_MLFLOW_JOB": "1"}) == first  # submitted from within job 1
        request = urllib.request.Request(
            first["MLFLOW_TRACKING_URI"] + API + "runs/create", data=b"{}", headers={"Content-Type": "application/json"}
        )
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(request, timeout=30)
        request.add_header("Authorization", f"Bearer {first['MLFLOW_TRACKING_TOKEN']}")
        with urllib.request.urlopen(request, timeout=30) as answer:
            assert json.load(answer)["run"]["info"]["status"] == "RUNNING"
        upload = urllib.request.Request(
            first["MLFLOW_TRACKING_URI"] + "/api/2.0/mlflow-artifacts/artifacts/runs/a/artifacts/x%20y.txt",
            data=b"text", method="PUT", headers={"Authorization": request.get_header("Authorization")},
        )  # fmt: skip
        with urllib.request.urlopen(upload, timeout=30):
            pass
        lines = [json.loads(line) for line in (folder / "mlflow" / f"{job}.jsonl").read_text().splitlines() if line]
        assert lines[-1][1]["path"] == "runs/a/artifacts/x y.txt"
        assert (folder / "mlflow" / f"{job}.files" / lines[-1][1]["file"]).read_bytes() == b"text"
    finally:
        if known.exists():
            os.kill(int(json.loads(known.read_text())["pid"]), signal.SIGKILL)
        for path in (known, known.with_name(f"{known.name}.lock")):
            path.unlink(missing_ok=True)
