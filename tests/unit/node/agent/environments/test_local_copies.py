from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from agent.environments import local_copies
from agent.environments.local_copies import (
    LocalCopies,
    Version,
    list_versions,
    mount_types,
    newest_versions,
    used_now,
    versions_to_keep,
)

ROW = "41 40 0:52 / {point} {options} shared:9 - {kind} filer:/x rw\n"


class Node:
    """A node with a folder of environments on network storage, in a temporary folder."""

    def __init__(self, folder: Path, kind: str = "nfs4") -> None:
        self.folder, self.copies, self.proc = folder / "environments", folder / "disk" / "copies", folder / "proc"
        for made in (self.folder, self.copies.parent, self.proc / "self"):
            made.mkdir(parents=True)
        self.kind, self.mounted, self.ran, self.busy = kind, [], list[list[str]](), set[str]()
        self.mounted: list[str]
        self.now = 1000.0
        self._write_mounts()
        self.delay_s = 0.0  # of a copy
        self.local = LocalCopies(
            self.run, lambda: self.now, str(self.folder), str(self.copies), str(self.proc), lambda place: self.delay_s
        )

    def publish(self, name: str, number: int, size: int = 100) -> None:
        place = self.folder / name / str(number)
        (place / "lib").mkdir(parents=True)
        (place / "lib" / "torch.py").write_text(f"{name} {number}")
        (place / local_copies.RECORD).write_text(
            json.dumps({"bytes": size, "operation": f"{name}-{number}-{self.now}"})
        )
        self.now += 1
        os.utime(place / local_copies.RECORD, (self.now, self.now))
        for closed in (place / "lib", place):
            closed.chmod(0o555)

    def remove(self, name: str, number: int) -> None:
        local_copies.delete_folder(str(self.folder / name / str(number)))

    def use(self, pid: int, place: str, uid: int) -> None:
        (self.proc / str(pid)).mkdir()
        (self.proc / str(pid) / "environ").write_text(f"A=1\0VIRTUAL_ENV=/environments/{place}\0B=2\0")
        os.chown(self.proc / str(pid), uid, uid)

    def run(self, argv: list[str], timeout_s: float) -> None:
        self.ran.append(argv)
        if "cp" in argv:
            subprocess.run(argv[argv.index("cp") :], check=True, timeout=30)
        if argv[:2] == ["mount", "--bind"]:
            self.mounted.append(argv[-1])
        if argv[0] == "umount":
            if argv[-1] in self.busy:
                raise subprocess.CalledProcessError(32, argv)
            self.mounted.remove(argv[-1])
        self._write_mounts()

    def have(self) -> set[str]:
        return {str(path.parent.relative_to(self.copies)) for path in self.copies.glob("*/*/lib") if path.is_dir()}

    def _write_mounts(self) -> None:
        rows = [ROW.format(point=self.folder, options="ro", kind=self.kind)]
        rows += [ROW.format(point=point, options="ro,nosuid", kind="ext4") for point in self.mounted]
        (self.proc / "self" / "mountinfo").write_text("".join(rows))


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


@pytest.fixture(autouse=True)
def _disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_copies.shutil, "disk_usage", lambda _: Disk())


class Disk:
    total, free = 10_000, 9_000


def test_newest_versions_are_copied_and_mounted_one_at_each_look(node: Node) -> None:
    for name, number in (("vision", 1), ("vision", 2), ("speech", 1)):
        node.publish(name, number)
    node.local.look_once()
    assert node.have() == {"speech/1"}, "the one published last comes first"
    node.local.look_once()
    node.local.look_once()
    assert node.have() == {"speech/1", "vision/2"}
    assert node.mounted == [f"{node.folder}/speech/1", f"{node.folder}/vision/2"]
    assert (node.copies / "vision/2/lib/torch.py").read_text() == "vision 2"
    assert ["sync", "-f", f"{node.copies}/.draft"] in node.ran, "before it gets its final name"
    ran = len(node.ran)
    node.local.look_once()
    assert len(node.ran) == ran


def test_nodes_copy_a_new_version_at_different_times() -> None:
    """Otherwise all of them would read it from the storage at once."""
    delays = [local_copies.copy_delay_s(f"lab-1-{number}", "vision/2") for number in range(200)]
    assert delays == [local_copies.copy_delay_s(f"lab-1-{number}", "vision/2") for number in range(200)]
    assert 0 <= min(delays) < 3
    assert local_copies.SPREAD_S - 3 < max(delays) < local_copies.SPREAD_S
    quarter = local_copies.SPREAD_S / 4
    assert all(30 < sum(n * quarter <= delay < (n + 1) * quarter for delay in delays) < 70 for n in range(4))
    assert local_copies.copy_delay_s("lab-1-0", "vision/2") != local_copies.copy_delay_s("lab-1-0", "vision/3")


@pytest.mark.skipif(os.geteuid() != 0, reason="makes processes of another user")
def test_copy_waits_for_its_delay_unless_a_job_uses_the_version(node: Node) -> None:
    node.delay_s = 40.0
    node.publish("vision", 1)
    node.publish("speech", 1)
    node.local.look_once()
    assert not node.have()
    node.use(77, "vision/1", 20000)
    node.local.look_once()
    assert node.have() == {"vision/1"}
    node.now += 39.0
    node.local.look_once()
    assert node.have() == {"vision/1"}
    node.now += 1.0
    node.local.look_once()
    assert node.have() == {"speech/1", "vision/1"}


def test_records_are_read_again_only_after_a_change(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    read = list[str]()
    inner = local_copies.list_versions

    def counted(folder: str) -> list[Version]:
        read.append(folder)
        return inner(folder)

    monkeypatch.setattr(local_copies, "list_versions", counted)
    node.publish("vision", 1)
    for _ in range(9):
        node.local.look_once()
    assert len(read) == 2, "a second time, because times of files are coarse"
    node.publish("vision", 2)
    node.publish("speech", 1)
    node.local.look_once()
    assert len(read) == 3
    node.local.look_once()
    assert node.have() == {"speech/1", "vision/2"}
    node.local.look_once()
    assert len(read) == 4
    node.now += local_copies.READ_S
    node.local.look_once()
    assert len(read) == 5, "a change that the storage did not show"


def test_nothing_is_copied_from_a_disk_of_this_machine(tmp_path: Path) -> None:
    node = Node(tmp_path, kind="ext4")
    node.publish("vision", 1)
    node.local.look_once()
    assert not node.ran


def test_copies_are_mounted_again_after_a_boot(node: Node) -> None:
    node.publish("vision", 1)
    node.local.look_once()
    node.mounted.clear()
    node._write_mounts()
    node.local.look_once()
    assert node.mounted == [f"{node.folder}/vision/1"]
    assert sum("cp" in argv for argv in node.ran) == 1


def test_copy_of_a_removed_version_is_deleted(node: Node) -> None:
    node.publish("vision", 1)
    node.publish("vision", 2)
    node.local.look_once()
    node.remove("vision", 2)
    for _ in range(local_copies.ABSENT_LOOKS - 1):
        node.local.look_once()
    assert node.have() == {"vision/1", "vision/2"}, "a server that comes back may show an empty folder"
    node.local.look_once()
    assert node.have() == {"vision/1"}
    assert node.mounted == [f"{node.folder}/vision/1"]


@pytest.mark.skipif(os.geteuid() != 0, reason="makes processes of another user")
def test_used_version_replaces_the_newest_when_the_disk_is_full(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in (1, 2):
        node.publish("vision", number, size=800)
    node.local.look_once()
    assert node.have() == {"vision/2"}
    node.use(77, "vision/1", 20000)
    node.busy.add(f"{node.folder}/vision/2")
    node.local.look_once()
    assert node.have() == {"vision/1", "vision/2"}, "a copy in use stays"
    node.busy.clear()
    node.local.look_once()
    assert node.have() == {"vision/1"}
    monkeypatch.setattr(Disk, "free", 900)
    node.publish("speech", 1, size=10)
    node.local.look_once()
    assert node.have() == {"vision/1"}, "a tenth of the disk stays free"


def test_failed_copy_leaves_nothing_and_is_tried_again(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(local_copies, "log", said.append)
    node.publish("vision", 1)
    inner, node.local._run = node.local._run, fail
    node.local.look_once()
    node.local.look_once()
    assert not node.have()
    assert not (node.copies / ".draft").exists()
    assert len(said) == 1
    assert "could not be copied" in said[0]
    node.local._run = inner
    node.publish("speech", 1)
    node.local.look_once()
    assert node.have() == {"speech/1"}, "others do not wait for it"
    node.now += local_copies.RETRY_S
    node.local.look_once()
    assert node.have() == {"speech/1", "vision/1"}


def test_copy_of_another_build_of_the_version_is_not_mounted(node: Node) -> None:
    """As on a machine that was part of another cluster."""
    node.publish("vision", 1)
    node.local.look_once()
    node.mounted.clear()
    node._write_mounts()
    node.remove("vision", 1)
    node.publish("vision", 1)
    (node.folder / "vision/1/lib/torch.py").write_text("built again")
    node.local.look_once()
    assert (node.copies / "vision/1/lib/torch.py").read_text() == "built again"
    assert node.mounted == [f"{node.folder}/vision/1"]


def test_version_that_is_removed_during_its_copy_is_not_kept(node: Node) -> None:
    node.publish("vision", 1)
    inner = node.local._run

    def removes(argv: list[str], timeout_s: float) -> None:
        inner(argv, timeout_s)
        if "cp" in argv:
            node.remove("vision", 1)

    node.local._run = removes
    node.local.look_once()
    assert (node.have(), node.mounted) == (set(), [])


def test_storage_that_returns_an_error_deletes_no_copy(node: Node) -> None:
    node.publish("vision", 1)
    node.local.look_once()
    (node.folder / "aquota.user").touch()
    assert [one.place for one in list_versions(str(node.folder))] == ["vision/1"]
    record = node.folder / "vision/1" / local_copies.RECORD
    record.parent.chmod(0o755)
    record.unlink()
    record.symlink_to(record)
    for _ in range(local_copies.ABSENT_LOOKS):
        with pytest.raises(OSError, match="Too many levels of symbolic links"):
            node.local.look_once()
    assert node.have() == {"vision/1"}


def test_first_mount_is_kept_from_the_folder_below_scratch(node: Node) -> None:
    for number in (1, 2):
        node.publish(f"env{number}", 1)
    for _ in range(2):
        node.local.look_once()
    made = [argv[1] for argv in node.ran if argv[0] == "mount"]
    assert made == ["--make-private", "--make-shared", "--bind", "--bind"]


@pytest.mark.parametrize("kind", ["tmpfs", "nfs4"])
def test_nothing_is_copied_where_this_machine_has_no_disk(tmp_path: Path, kind: str) -> None:
    node = Node(tmp_path)
    with (node.proc / "self" / "mountinfo").open("a") as file:
        file.write(ROW.format(point=tmp_path / "disk", options="rw", kind=kind))
    node.publish("vision", 1)
    node.local.look_once()
    assert not node.ran


def fail(argv: list[str], timeout_s: float) -> None:
    Path(argv[-1]).mkdir(parents=True)
    raise subprocess.CalledProcessError(1, argv)


@pytest.mark.skipif(os.geteuid() != 0, reason="makes processes of another user")
def test_only_users_processes_use_a_version(node: Node) -> None:
    node.use(5, "vision/1", 0)
    node.use(6, "speech/3", 20000)
    (node.proc / "7").mkdir()  # it has ended
    assert used_now(str(node.proc)) == {"speech/3"}


def test_choice_keeps_within_the_limit_and_leaves_out_the_images_own() -> None:
    image = Version("pytorch", 1, 0, 50)
    old, new, other = Version("vision", 1, 40, 10), Version("vision", 2, 40, 20), Version("speech", 1, 40, 30)
    versions = [image, old, new, other]
    assert newest_versions(versions) == [image, other, new]
    assert versions_to_keep(versions, {}, 80) == [other, new]
    assert versions_to_keep(versions, {"vision/1": 5.0}, 80) == [old, other]
    assert versions_to_keep(versions, {"vision/1": 5.0, "speech/1": 9.0}, 60) == [other]


def test_mounts_of_mountinfo() -> None:
    text = ROW.format(point="/environments", options="ro", kind="nfs4") + ROW.format(
        point="/environments/a/1", options="ro", kind="ext4"
    )
    assert mount_types(text) == {"/environments": "nfs4", "/environments/a/1": "ext4"}


def test_versions_are_listed_by_their_records(node: Node) -> None:
    node.publish("vision", 3, size=7)
    (node.folder / ".tools").mkdir()
    (node.folder / "vision" / "4").mkdir()
    assert [(one.place, one.bytes) for one in list_versions(str(node.folder))] == [("vision/3", 7)]
