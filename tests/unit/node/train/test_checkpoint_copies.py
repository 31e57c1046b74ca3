"""Checkpoints are copied while the training goes on, and come back where scratch is empty (without torch)."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[4] / "node" / "train"))

from headway_train import checkpoint_copies, checkpoint_folder
from headway_train.checkpoint_copies import CheckpointCopies, FolderStore
from headway_train.checkpoint_folder import CheckpointError

from tests.unit.node.train.test_checkpoint_folder import save, steps, whole


class Gate(FolderStore):
    """A store whose copies wait until the test lets them, and fail where it says so."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.go, self.begun, self.fails = threading.Event(), threading.Event(), set[str]()
        self.put_names: list[str] = []

    def put(self, place: Path) -> None:
        self.put_names.append(place.name)
        self.begun.set()
        assert self.go.wait(60)
        if place.name in self.fails:
            raise OSError("the store is away")
        super().put(place)


@pytest.fixture
def gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Gate:
    made = Gate(tmp_path / "copies")
    monkeypatch.setattr(checkpoint_copies, "open_store", lambda _: made)
    return made


def test_newest_waiting_checkpoint_is_copied_next(gate: Gate, tmp_path: Path) -> None:
    copies = CheckpointCopies("there", keep=2)
    copies.add(save(tmp_path / "run", 5, keep=9))
    assert gate.begun.wait(60)
    for step in (10, 15):
        copies.add(save(tmp_path / "run", step, keep=9))
    gate.go.set()
    copies.wait()
    assert gate.put_names == ["step-00000005", "step-00000015"]
    assert steps(tmp_path / "copies") == [15, 5]
    copies.add(save(tmp_path / "run", 20, keep=9))
    copies.wait()
    assert steps(tmp_path / "copies") == [20, 15], "the newest two are kept"
    assert whole(tmp_path / "copies" / "step-00000020") == []


def test_wait_names_a_copy_that_failed(gate: Gate, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    gate.go.set()
    gate.fails = {"step-00000005"}
    copies = CheckpointCopies("there", keep=2)
    copies.add(save(tmp_path / "run", 5))
    with pytest.raises(CheckpointError, match="step-00000005 could not be copied to there: OSError: the store is away"):
        copies.wait()
    assert "could not be copied" in capfd.readouterr().err
    copies.add(save(tmp_path / "run", 10))
    copies.wait()  # a newer copy makes up for it


def test_copy_of_a_checkpoint_that_newer_ones_replaced_is_no_error(gate: Gate, tmp_path: Path) -> None:
    copies = CheckpointCopies("there", keep=2)
    copies.add(save(tmp_path / "run", 5, keep=1))
    assert gate.begun.wait(60)
    save(tmp_path / "run", 10, keep=1)  # deletes step 5
    gate.go.set()
    copies.wait()
    assert steps(tmp_path / "copies") == []


def test_fetch_brings_the_newest_copy_back(tmp_path: Path) -> None:
    for step in (5, 10):
        save(tmp_path / "copies", step)
    copies = CheckpointCopies(str(tmp_path / "copies"), keep=2)
    assert copies.fetch(tmp_path / "run") == tmp_path / "run" / "step-00000010"
    assert whole(tmp_path / "run" / "step-00000010") == []
    assert copies.fetch(tmp_path / "run") is None
    save(tmp_path / "run", 15)
    assert copies.fetch(tmp_path / "run") is None, "what is newer here counts"


def test_damaged_copy_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    place = save(tmp_path / "copies", 5)
    (place / "__0_0.distcp").write_bytes(b"less")
    with pytest.raises(CheckpointError, match=r"the copy of step 5 in .* is damaged: __0_0\.distcp has 4 bytes"):
        CheckpointCopies(str(tmp_path / "copies"), keep=2).fetch(tmp_path / "run")
    assert list((tmp_path / "run").iterdir()) == []


def test_manifest_can_name_no_file_elsewhere(tmp_path: Path) -> None:
    place = save(tmp_path / "copies", 5)
    text = (place / checkpoint_folder.MANIFEST).read_text()
    (place / checkpoint_folder.MANIFEST).write_text(text.replace("__0_0.distcp", "../../evil"))
    with pytest.raises(CheckpointError, match="names the file"):
        CheckpointCopies(str(tmp_path / "copies"), keep=2).fetch(tmp_path / "run")
    assert not (tmp_path / "evil").exists()


@pytest.mark.parametrize(("target", "words"), [("gs://b/x", "not to gs://b/x"), ("s3:///x", "names no bucket")])
def test_other_addresses_are_refused(target: str, words: str) -> None:
    with pytest.raises(CheckpointError, match=words):
        checkpoint_copies.open_store(target)
