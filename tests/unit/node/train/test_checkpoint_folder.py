"""A checkpoint under its final name is complete, even if the run was killed at any moment (without torch)."""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[4] / "node" / "train"))

from headway_train import checkpoint_folder, progress
from headway_train.checkpoint_folder import CheckpointError, CheckpointManifest


class Killed(BaseException):
    """The process ends here: nothing after it runs, not even what handles errors."""


def save(folder: Path, step: int, keep: int = 2) -> Path:
    """What Checkpointer does around torch's own write."""
    part = checkpoint_folder.begin_checkpoint(folder, step)
    (part / "__0_0.distcp").write_bytes(b"%d" % step * 1000)
    (part / ".metadata").write_bytes(b"meta")
    entries = {path.name: checkpoint_folder.describe_file(path) for path in part.iterdir()}
    place = checkpoint_folder.publish_checkpoint(part, CheckpointManifest(step, 1.0, 1, "dcp", entries))
    checkpoint_folder.prune_checkpoints(folder, keep, step)
    return place


def whole(place: Path) -> list[str]:
    return checkpoint_folder.faults(place, checkpoint_folder.read_manifest(place))


def steps(folder: Path) -> list[int]:
    return [step for step, _ in checkpoint_folder.published_checkpoints(folder)]


def test_newest_checkpoints_are_kept_and_all_else_removed(tmp_path: Path) -> None:
    for step in (5, 10, 15, 120):
        assert whole(save(tmp_path / "run", step)) == []
    assert steps(tmp_path / "run") == [120, 15]
    assert len(list((tmp_path / "run").iterdir())) == 2
    assert checkpoint_folder.published_checkpoints(tmp_path / "none") == []


CALLS = [(Path, "mkdir"), (Path, "rename"), (os, "fsync"), (os, "open"), (os, "unlink"), (os, "rmdir"), (json, "dump")]


def killing(monkeypatch: pytest.MonkeyPatch, at: int) -> Callable[[], int]:
    """From now on the process dies just before the `at`th call that changes the disk; tells how many there were."""
    count = 0

    def wrap(place: Any, name: str) -> None:
        real = getattr(place, name)

        def call(*args: Any, **more: Any) -> Any:
            nonlocal count
            count += 1
            if count == at:
                raise Killed
            return real(*args, **more)

        monkeypatch.setattr(place, name, call)

    for place, name in CALLS:
        wrap(place, name)
    return lambda: count


@pytest.mark.parametrize("again", [False, True], ids=["a new step", "a step that is there already"])
def test_kill_at_any_call_leaves_only_complete_checkpoints(tmp_path: Path, again: bool) -> None:
    at, died = 0, True
    while died:
        at += 1
        folder = tmp_path / f"run{at}"
        for step in (1, 2, 3):
            save(folder, step)
        with pytest.MonkeyPatch.context() as patch:
            killing(patch, at)
            try:
                save(folder, 3 if again else 4)
                died = False
            except Killed:
                pass
        left = steps(folder)
        assert left, f"call {at}: nothing to go on from"
        assert left[0] >= (2 if again else 3), f"call {at}"
        for _, place in checkpoint_folder.published_checkpoints(folder):
            assert whole(place) == [], f"call {at}"
        checkpoint_folder.delete_incomplete(folder)
        assert len(list(folder.iterdir())) == len(left), f"call {at}: a killed run's leavings are swept"
        save(folder, 9)
        assert steps(folder)[0] == 9
    assert at > 8, "it really died at many places"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return save(tmp_path, 7)


@pytest.mark.parametrize(
    ("harm", "text"),
    [
        (lambda p: (p / "__0_0.distcp").write_bytes(b"7" * 999), "__0_0.distcp has 999 bytes of 1000"),
        (lambda p: (p / "__0_0.distcp").write_bytes(b"8" * 1000), "__0_0.distcp is not what was written"),
        (lambda p: (p / ".metadata").unlink(), ".metadata: No such file or directory"),
    ],
)
def test_checkpoint_damage_is_reported_per_file(place: Path, harm: Callable[[Path], Any], text: str) -> None:
    harm(place)
    assert whole(place) == [text]
    manifest = checkpoint_folder.read_manifest(place)
    shares = [fault for rank in range(3) for fault in checkpoint_folder.faults(place, manifest, share=rank, of=3)]
    assert shares == [text], "of several ranks one reads each file"


@pytest.mark.parametrize("text", ["", "{", "[]", '{"step": 7}', '{"step":7,"time":1,"world_size":1,"files":{"a":3}}'])
def test_torn_manifest_raises_value_error(place: Path, text: str) -> None:
    (place / "manifest.json").write_text(text)
    with pytest.raises(ValueError):
        checkpoint_folder.read_manifest(place)


def test_manifest_of_another_step_is_refused(place: Path) -> None:
    place.rename(place.with_name("step-00000008"))
    with pytest.raises(ValueError, match="is of step 7"):
        checkpoint_folder.read_manifest(place.with_name("step-00000008"))


def test_prune_keeps_the_checkpoint_just_written(tmp_path: Path) -> None:
    for step in (10, 20, 30):
        save(tmp_path, step, keep=9)
    save(tmp_path, 12, keep=2)  # the run went on from 10: 20 and 30 were damaged
    assert steps(tmp_path) == [30, 20, 12, 10]


def test_publish_refuses_a_file_that_not_all_ranks_see(tmp_path: Path) -> None:
    part = checkpoint_folder.begin_checkpoint(tmp_path, 1)
    entry = checkpoint_folder.CheckpointFile(1, "x")
    with pytest.raises(CheckpointError, match=r"__1_0.distcp is not seen by all ranks: use a folder on shared storage"):
        checkpoint_folder.publish_checkpoint(part, CheckpointManifest(1, 1.0, 2, "dcp", {"__1_0.distcp": entry}))
    assert steps(tmp_path) == []


def test_default_checkpoint_folder_is_named_by_user_and_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint_folder, "SCRATCH", tmp_path)
    (tmp_path / "ann").mkdir()
    for name in ("HEADWAY_CHECKPOINT_DIR", "SLURM_JOB_ID", "SLURM_JOB_NAME"):
        monkeypatch.delenv(name, raising=False)
    assert checkpoint_folder.default_folder() == Path("checkpoints")
    monkeypatch.setenv("USER", "ann")
    monkeypatch.setenv("SLURM_JOB_ID", "12")
    monkeypatch.setenv("SLURM_JOB_NAME", "train")
    assert checkpoint_folder.default_folder() == tmp_path / "ann/train-12"
    monkeypatch.setenv("HEADWAY_CHECKPOINT_DIR", "/scratch/x")
    assert checkpoint_folder.default_folder() == Path("/scratch/x")


def test_default_checkpoint_folder_requires_the_scratch_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container without scratch, where everybody may make any folder."""
    scratch = tmp_path / "scratch"
    monkeypatch.setattr(checkpoint_folder, "SCRATCH", scratch)
    monkeypatch.delenv("HEADWAY_CHECKPOINT_DIR", raising=False)
    monkeypatch.setenv("USER", "ann")
    monkeypatch.setenv("SLURM_JOB_ID", "12")
    with pytest.raises(
        CheckpointError, match=r"scratch/ann does not exist.*--container-mounts=.*HEADWAY_CHECKPOINT_DIR"
    ):
        checkpoint_folder.default_folder()
    with pytest.raises(CheckpointError, match="scratch does not exist"):
        checkpoint_folder.begin_checkpoint(scratch / "ann" / "run", 1)
    assert not scratch.exists()
    scratch.mkdir()
    with pytest.raises(CheckpointError, match="scratch/ann does not exist"):
        checkpoint_folder.default_folder()
    checkpoint_folder.begin_checkpoint(scratch / "ann" / "runs" / "deep", 1)
    assert checkpoint_folder.default_folder().parent == scratch / "ann"


def test_checkpoint_counts_are_sent_with_reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWAY_REPORT_SOCKET", str(tmp_path / "socket"))
    monkeypatch.setattr(progress, "_sender", progress._Sender())
    monkeypatch.setattr(progress, "LEAST_S", 0.0)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as agent:
        agent.bind(str(tmp_path / "socket"))
        agent.settimeout(60)
        progress.report(step=1, loss=2.0)
        first = json.loads(agent.recv(4096))
        began = first.pop("run_began")
        assert abs(began - time.time()) < 600, "by which a run that was started again is told from this one"
        assert first == {"step": 1, "loss": 2.0}
        progress.saved(1.5)
        progress.saved(0.25)
        progress.report(step=2, loss=1.5)
        checkpoints = {"checkpoints": 2, "checkpoints_s": 1.75}
        assert json.loads(agent.recv(4096)) == {"run_began": began, "step": 2, "loss": 1.5, **checkpoints}


def test_only_the_folder_of_the_jobs_checkpoints_continues_another_job(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HEADWAY_CHECKPOINT_DIR", str(tmp_path / "run"))
    monkeypatch.setenv("HEADWAY_RESUMED_FROM", "12-step-4000")
    assert checkpoint_folder.resumed_from(tmp_path / "run") == "12-step-4000"
    assert checkpoint_folder.resumed_from(tmp_path / "run" / "best") == ""  # a second Checkpointer, empty at first
    monkeypatch.delenv("HEADWAY_RESUMED_FROM")
    assert checkpoint_folder.resumed_from(tmp_path / "run") == ""
