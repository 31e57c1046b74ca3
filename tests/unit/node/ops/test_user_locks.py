"""A lock writes the lines that an apply writes for a user who left, and leaves the others alone."""

from __future__ import annotations

import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from headway.domain.teams import Team, User
from headway.render.system.login.users import FOLDER, people
from ops import user_locks
from tests.support.clusters import builders

NAMES = ("group", "passwd", "shadow")


def texts(*, departed: tuple[str, ...] = (), names: tuple[str, ...] = ("ann", "anna", "bob")) -> dict[str, str]:
    present = tuple(name for name in names if name not in departed)
    cluster = builders.cluster(
        1, teams=(Team("red", present, 1),), users=tuple(User(name, (), ("red",)) for name in present)
    )
    uids = {"ann": 20000, "anna": 20001, "bob": 20002}
    files = people(cluster, replace(builders.site(cluster), uids=uids, departed=departed))
    return {name: files[f"{FOLDER}/{name}"].text for name in NAMES}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in texts().items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o640)
    return tmp_path


def present(folder: Path) -> dict[str, str]:
    return {name: (folder / name).read_text() for name in NAMES}


def test_lock_and_unlock_write_what_an_apply_writes(folder: Path) -> None:
    user_locks.lock("ann", str(folder))
    assert present(folder) == texts(departed=("ann",)) != texts()
    assert (folder / "shadow").stat().st_mode & 0o777 == 0o640
    user_locks.unlock("ann", str(folder))
    assert present(folder) == texts()
    assert sorted(file.name for file in folder.iterdir()) == list(NAMES)


def test_new_user_gets_the_lines_that_an_apply_writes(tmp_path: Path) -> None:
    for name in ("passwd", "group", "shadow"):
        (tmp_path / name).write_text(texts(names=("ann", "bob"))[name])
    for _ in range(2):
        user_locks.add_user("anna", 20001, "/home/anna", str(tmp_path))
        assert {name: (tmp_path / name).read_text() for name in ("passwd", "group", "shadow")} == texts()
    user_locks.lock("anna", str(tmp_path))
    user_locks.add_user("anna", 20001, "/home/anna", str(tmp_path))
    assert (tmp_path / "shadow").read_text() == texts()["shadow"]


def test_users_that_are_added_at_the_same_time_are_all_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES:
        (tmp_path / name).write_text("")
    together, replaced = threading.Barrier(2), user_locks._replace

    def replace_slowly(path: str, text: str, changed: str) -> None:
        with contextlib.suppress(
            threading.BrokenBarrierError
        ):  # both have read the file, unless one waits for the other
            together.wait(0.2)
        replaced(path, text, changed)

    monkeypatch.setattr(user_locks, "_replace", replace_slowly)
    with ThreadPoolExecutor() as threads:
        list(threads.map(lambda name: user_locks.add_user(name, 20001, "/home", str(tmp_path)), ("ann", "bob")))
    for name in NAMES:
        assert [line.partition(":")[0] for line in (tmp_path / name).read_text().splitlines()] == ["ann", "bob"]


def test_unknown_user_changes_nothing(folder: Path) -> None:
    before = {file.name: file.stat().st_ino for file in folder.iterdir()}
    user_locks.lock("zoe", str(folder))
    assert {file.name: file.stat().st_ino for file in folder.iterdir()} == before
