"""Scalars of TensorBoard event files are read and reported. The files of `events/` were written by TensorBoard 2.21 (as
torch's SummaryWriter and as TensorFlow 2 do) and by tensorboardX 2.6.5."""

from __future__ import annotations

import json
import math
import os
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from headway.jobs.metrics.metric_files import MetricFiles
from tests.support.paths import NODE

sys.path.insert(0, str(NODE / "train"))

from headway_train import event_follower
from headway_train.event_files import Damaged, Scalar, read_scalars

FILES = Path(__file__).parent / "events"
TORCH, TF2, X = (FILES / f"events.out.tfevents.{name}" for name in ("torch", "tf2", "tensorboardx"))


def scalars(path: Path, offset: int = 0) -> list[Scalar]:
    return [one for _, found in read_scalars(str(path), offset) for one in found]


def test_scalars_of_real_files_are_read() -> None:
    found = scalars(TORCH)
    assert found[:3] == [
        Scalar("Loss/train", 0, 1700000000.0, 2.0), Scalar("lr", 0, 1700000000.5, 0.25),
        Scalar("Loss/train", 1, 1700000001.0, 1.5),
    ]  # fmt: skip
    assert (len(found), math.isnan(found[-1].value)) == (7, True)
    assert [(one.tag, one.step, one.value) for one in scalars(TF2)] == [
        ("epoch_loss", step, 1.5 - step / 2) for step in range(3)
    ]
    assert [(one.tag, one.step, one.value) for one in scalars(X)] == [("loss", 7, 0.5)], "no text, no histogram"


def test_every_beginning_of_a_file_gives_its_complete_records(tmp_path: Path) -> None:
    data, part = TORCH.read_bytes(), tmp_path / "part"
    whole = scalars(TORCH)
    for size in range(0, len(data), 5):
        part.write_bytes(data[:size])
        records = list(read_scalars(str(part), 0))
        seen = [one for _, found in records for one in found]
        part.write_bytes(data)
        rest = scalars(part, records[-1][0] if records else 0)
        assert repr(seen + rest) == repr(whole)


@pytest.mark.parametrize(
    "data",
    [
        b"\xff" * 40,
        struct.pack("<QI", 3, 0) + b"\xff\xff\xff" + b"\0" * 4,
        struct.pack("<QI", 2, 0) + b"\x0a\x7f" + b"\0" * 4,
    ],
)
def test_damaged_file_is_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "damaged"
    path.write_bytes(data)
    with pytest.raises(Damaged):
        scalars(path)


@pytest.mark.parametrize(
    ("tag", "name"),
    [("Loss/train", "Loss/train"), ("top-1 acc", "top-1 acc"), ("loss:0", "loss_0"), ("1st", "_1st"), ("", "_")],
)
def test_tags_become_names_of_metrics(tag: str, name: str) -> None:
    assert event_follower.metric_name(tag) == name


def run(folder: Path, code: str) -> MetricFiles:
    """Runs a training in `folder` as job 7, and returns what the server makes of its metrics."""
    places = {
        "HEADWAY_METRICS_DIR": str(folder / "m"),
        "HEADWAY_REPORT_SOCKET": str(folder / "none"),
        "SLURM_JOB_ID": "7",
    }
    env = {
        **os.environ,
        **places,
        "PYTHONPATH": str(NODE / "train"),
        "HEADWAY_TENSORBOARD_DIR": "runs",
        "FILES": str(FILES),
    }
    start = "import os, pathlib, shutil\nfiles, runs = pathlib.Path(os.environ['FILES']), pathlib.Path('runs')\n"
    command = [sys.executable, "-m", "headway_train", sys.executable, "-c", start + code]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (3, "")
    files = MetricFiles(folder / "kept")
    files.forget("lab", 7)
    files.append("lab", 7, files.read("lab", 7), (folder / "m" / "7.jsonl").read_bytes())
    return files


def points(files: MetricFiles) -> dict[str, list[tuple[int, int, Any]]]:
    known = files.read("lab", 7)
    return {
        metric.name: [(restart, step, value) for restart, step, _, value in files.rows("lab", 7, known, metric.name)]
        for metric in known.metrics
    }


def test_training_that_writes_event_files_reports_them_once(tmp_path: Path) -> None:
    old = tmp_path / "runs" / "of another job"
    old.mkdir(parents=True)
    (old / TF2.name).write_bytes(TF2.read_bytes())
    first = """
place = runs / 'Nov29_03-40-00_n1' / 'train'
place.mkdir(parents=True)
shutil.copy(files / 'events.out.tfevents.torch', place)
raise SystemExit(3)"""
    found = points(run(tmp_path, first))
    assert set(found) == {"train/Loss/train", "train/lr"}
    assert found["train/lr"] == [(0, 0, 0.25), (0, 1, 0.25), (0, 2, 0.25)]
    second = """
place = runs / 'Nov29_04-00-00_n1'
place.mkdir()
shutil.copy(files / 'events.out.tfevents.tensorboardx', place)
from headway_train import report
report(step=8, loss=0.25, acc=1.0)
raise SystemExit(3)"""
    again = points(run(tmp_path, second))
    assert again["train/lr"] == found["train/lr"], "a requeued job reads on"
    assert sorted(again["loss"]) == [(1, 7, 0.5), (1, 8, 0.25)], "both belong to the second run"
    assert again["acc"] == [(1, 8, 1.0)]


def test_only_the_first_task_of_a_job_follows(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HEADWAY_TENSORBOARD_DIR", str(tmp_path))
    assert event_follower.follow(1.0) is None, "outside of a job"
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURM_PROCID", "1")
    assert event_follower.follow(1.0) is None


def test_damaged_file_is_said_once_and_others_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HEADWAY_METRICS_DIR", str(tmp_path / "m"))
    monkeypatch.setenv("HEADWAY_REPORT_SOCKET", str(tmp_path / "none"))
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    runs = tmp_path / "runs"
    runs.mkdir()
    follower = event_follower.EventFollower(runs, 5.0)
    follower.start()
    (runs / "events.out.tfevents.a").write_bytes(b"\xff" * 40)
    (runs / "events.out.tfevents.b").write_bytes(TF2.read_bytes())
    follower.read_new()
    follower.close()
    assert capsys.readouterr().err.count("event file left out") == 1
    lines = [json.loads(line) for line in (tmp_path / "m" / "7.jsonl").read_text().splitlines() if line]
    assert [line[0] for line in lines if isinstance(line, list)] == [0, 1, 2]
