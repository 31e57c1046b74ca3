"""The first checkpoint of a resumed job is that of the earlier job: hard links to files that stay unchanged, copies of others."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.support.paths import NODE

sys.path.insert(0, str(NODE))

from user_helper import bundles, identity


class Refused(Exception):
    pass


@pytest.fixture(autouse=True)
def refusals(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(sentence: str) -> None:
        raise Refused(sentence)

    monkeypatch.setattr(identity, "refuse", refuse)


def request(tmp_path: Path, name: str = "step-00004000", index: str = "manifest.json") -> dict[str, object]:
    old, work = tmp_path / "old", tmp_path / "new"
    place = old / name
    if not place.exists():
        place.mkdir(parents=True)
        (place / index).write_text("{}")
        (place / "model.pt").write_bytes(b"weights")
    resume = {"source": str(old), "name": place.name, "target": str(work / "checkpoints")}
    return {"root": str(tmp_path), "bundle": "", "work": str(work), "files": {}, "resume": resume}


def test_checkpoint_is_linked_and_stays_when_the_first_job_deletes_it(tmp_path: Path) -> None:
    for _ in range(2):  # a repeated request
        bundles.stage_bundle(request(tmp_path))
    first, second = (tmp_path / name for name in ("old/step-00004000", "new/checkpoints/step-00004000"))
    assert (first / "model.pt").stat().st_ino == (second / "model.pt").stat().st_ino
    assert [path.name for path in second.parent.iterdir()] == ["step-00004000"]
    for path in first.iterdir():
        path.unlink()
    assert (second / "model.pt").read_bytes() == b"weights"


def test_checkpoint_that_another_program_may_write_again_is_copied(tmp_path: Path) -> None:
    bundles.stage_bundle(request(tmp_path, "checkpoint-4000", "trainer_state.json"))
    first, second = (tmp_path / name for name in ("old/checkpoint-4000", "new/checkpoints/checkpoint-4000"))
    (second / "model.pt").write_bytes(b"other weights")  # in place, as a Trainer that comes to step 4000 again
    assert (first / "model.pt").read_bytes() == b"weights"


def test_checkpoint_that_was_deleted_meanwhile_is_refused(tmp_path: Path) -> None:
    sent = request(tmp_path)
    (tmp_path / "old" / "step-00004000").rename(tmp_path / "gone")
    with pytest.raises(Refused, match="step-00004000 can't be used for a new job: No such file or directory"):
        bundles.stage_bundle(sent)
    assert not (tmp_path / "new" / "checkpoints" / "step-00004000").exists()


def test_partial_copies_of_tries_that_were_killed_are_deleted(tmp_path: Path) -> None:
    sent = request(tmp_path, "checkpoint-4000", "trainer_state.json")
    folder, other = tmp_path / "new" / "checkpoints", tmp_path / "other"
    dead = 1 << 23  # larger than any process id of Linux
    read_only = folder / f".checkpoint-4000.{dead}.part" / "shards"
    kept = {f".checkpoint-4000.{os.getppid()}.part", f".checkpoint-400.{dead}.part", ".checkpoint-4000.x.part"}
    for path in (read_only, folder / f".checkpoint-4000.{os.getpid()}.part", other, *(folder / name for name in kept)):
        path.mkdir(parents=True)
        (path / "model.pt").write_bytes(b"half")
    read_only.chmod(0o500)
    link = folder / f".checkpoint-4000.{dead + 1}.part"
    link.symlink_to(other)
    bundles.stage_bundle(sent)
    assert {path.name for path in folder.iterdir()} == {"checkpoint-4000", link.name, *kept}
    assert (other / "model.pt").read_bytes() == b"half"


def test_partial_copy_of_another_user_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sent = request(tmp_path)
    part = tmp_path / "new" / "checkpoints" / f".step-00004000.{1 << 23}.part"
    part.mkdir(parents=True)
    monkeypatch.setattr(os, "geteuid", lambda: part.stat().st_uid + 1)
    bundles.stage_bundle(sent)
    assert part.is_dir()
