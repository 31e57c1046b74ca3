"""All reported numbers of a job reach its file, and a training never waits for storage."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from headway.jobs.metrics.metric_files import MetricFiles
from tests.support.paths import NODE

sys.path.insert(0, str(NODE / "train"))

from headway_train import metrics_file

TRAIN = """
import sys
sys.path.insert(0, sys.argv[1])
from headway_train import report
"""


def train(code: str, folder: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Runs a training as job 7; its metrics go to `folder`."""
    places = {"HEADWAY_METRICS_DIR": str(folder), "HEADWAY_REPORT_SOCKET": str(folder / "nobody"), "SLURM_JOB_ID": "7"}
    return subprocess.run(
        [sys.executable, "-c", TRAIN + code, str(NODE / "train")],
        env={**os.environ, **places, **env}, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def stored(folder: Path) -> list[Any]:
    return [json.loads(line) for line in (folder / "7.jsonl").read_text().splitlines() if line]


def test_every_report_of_a_fast_loop_is_kept(tmp_path: Path) -> None:
    code = "for i in range(5000): report(step=i, loss=i / 2, tokens=i * 10, lr='0.5', note='x', **{'val/acc': float('nan')})"
    ran = train(code, tmp_path / "m")
    assert (ran.returncode, ran.stderr) == (0, "")
    begin, names, *reports = stored(tmp_path / "m")
    assert list(begin) == ["run"]
    assert names == {"names": ["loss", "tokens", "lr", "val/acc"]}
    assert [line[0] for line in reports] == list(range(5000))
    assert [line[2] for line in reports] == [i / 2 for i in range(5000)]
    assert reports[3][3:5] == [30, 0.5]
    assert (tmp_path / "m/7.jsonl").stat().st_mode & 0o077 == 0


def test_restarted_training_continues_the_file_after_half_a_line(tmp_path: Path) -> None:
    assert train("report(step=1, loss=1.0)\nreport(loss=2.0, lr=1)", tmp_path).returncode == 0
    with (tmp_path / "7.jsonl").open("a") as file:
        file.write("[2, 17")  # killed here
    assert train("report(step=2, loss=3.0)", tmp_path).returncode == 0
    files = MetricFiles(tmp_path / "server")
    known = files.read("lab", 7)
    files.append("lab", 7, known, (tmp_path / "7.jsonl").read_bytes())
    assert [row[:2] + row[3:] for row in files.rows("lab", 7, known, "loss")] == [(0, 1, 2.0), (1, 2, 3.0)]
    assert [(metric.name, metric.points) for metric in known.metrics] == [("loss", 2), ("lr", 1)]
    assert known.dropped == 1, "the half line"


def test_only_rank_0_of_a_job_writes(tmp_path: Path) -> None:
    for env in ({"RANK": "1"}, {"SLURM_JOB_ID": ""}, {"SLURM_JOB_ID": "../x"}):
        assert train("report(step=1, loss=1.0)", tmp_path / "m", **env).returncode == 0
    assert not (tmp_path / "m").exists()


def test_storage_that_fails_is_said_once_and_the_training_goes_on(tmp_path: Path) -> None:
    (tmp_path / "m").write_text("")  # no folder
    ran = train("for i in range(100): report(step=i, loss=1.0)\nprint('on')", tmp_path / "m")
    assert (ran.returncode, ran.stdout) == (0, "on\n")
    assert ran.stderr.count("headway_train: not all reported numbers are kept:") == 1
    assert "File exists" in ran.stderr or "Not a directory" in ran.stderr


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HEADWAY_METRICS_DIR", str(tmp_path / "m"))
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    return tmp_path / "m"


def test_flood_is_bounded_and_counted(
    written: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(metrics_file, "MOST_NUMBERS", 30)
    kept = metrics_file.MetricsFile(5.0, every_s=3600)
    for step in range(1000):
        kept.add({"step": step, "loss": 1.0, "lr": 2.0}, 60.0 + step / 1000)
    kept.add({"step": 2000, "loss": 1.0}, 120.0)
    kept.write()
    lines = stored(written)
    assert [line for line in lines if "dropped" in line] == [{"dropped": 990}]
    assert [line[0] for line in lines if isinstance(line, list)] == [*range(10), 2000]
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "more than 30 numbers a minute are reported; report fewer steps" in said


def test_storage_that_hangs_holds_up_neither_reports_nor_the_end(
    written: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    released, entered = threading.Event(), threading.Event()

    def hang(self: metrics_file.MetricsFile, data: bytes) -> None:
        entered.set()
        released.wait(60)

    monkeypatch.setattr(metrics_file.MetricsFile, "_append", hang)
    monkeypatch.setattr(metrics_file, "MOST_WAITING", 100)
    monkeypatch.setattr(metrics_file, "LAST_S", 0.01)
    kept = metrics_file.MetricsFile(5.0, every_s=0.001)
    kept.add({"step": 0, "loss": 1.0}, 60.0)
    assert entered.wait(60)
    for step in range(1000):
        kept.add({"step": step, "loss": 1.0}, 60.0)
    kept.close()
    released.set()
    for thread in threading.enumerate():
        if thread.name == "headway metrics, last":
            thread.join(60)
    assert "the storage of the metrics is too slow, or does not answer" in capsys.readouterr().err


def test_tensor_on_a_gpu_is_copied_and_read_by_the_writer(written: Path) -> None:
    class Tensor:
        def __init__(self, value: float) -> None:
            self.value, self.device, self.reads = value, type("Device", (), {"type": "cuda"}), 0

        def detach(self) -> Tensor:
            return self

        def clone(self) -> Tensor:
            return Tensor(self.value)

        def __float__(self) -> float:
            self.reads += 1
            return self.value

    kept, loss = metrics_file.MetricsFile(5.0, every_s=3600), Tensor(1.5)
    kept.add({"step": 1, "loss": loss}, 60.0)
    loss.value = 99.0  # the training changes it in place
    kept.write()
    assert (loss.reads, stored(written)[-1]) == (0, [1, 60.0, 1.5])


def test_folder_is_on_scratch_else_at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HEADWAY_METRICS_DIR", raising=False)
    monkeypatch.setattr(metrics_file, "SCRATCH", tmp_path / "scratch")
    monkeypatch.setattr(metrics_file, "IN_CONTAINER", tmp_path / "run")
    monkeypatch.setenv("USER", "alice")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert metrics_file.default_folder() is None
    (tmp_path / "home").mkdir()
    assert metrics_file.default_folder() == tmp_path / "home/.headway/metrics"
    (tmp_path / "scratch/alice").mkdir(parents=True)
    assert metrics_file.default_folder() == tmp_path / "scratch/alice/.headway/metrics"
    (tmp_path / "run").mkdir()
    assert metrics_file.default_folder() == tmp_path / "run"
