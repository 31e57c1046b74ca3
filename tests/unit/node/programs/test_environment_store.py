"""A version of an environment is copied whole with the user's rights, and never changes afterwards."""

from __future__ import annotations

import errno
import json
import os
import pwd
import sys
from pathlib import Path
from typing import Any

import pytest

from headway.transport.remote_program import program_source

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="it reads files as another user")
USER = pwd.getpwnam("nobody")


@pytest.fixture
def program() -> dict[str, Any]:
    namespace: dict[str, Any] = {"__name__": "environment_store"}
    exec(program_source("environment_store"), namespace)
    return namespace


@pytest.fixture
def stage(tmp_path: Path) -> Path:
    tmp_path.chmod(0o755)
    for parent in tmp_path.parents:
        if parent != Path("/"):
            parent.chmod(parent.stat().st_mode | 0o111)
    venv = tmp_path / "stage" / "venv"
    (venv / "bin").mkdir(parents=True)
    (venv / "lib" / "python3.13" / "site-packages" / "models").mkdir(parents=True)
    (venv / "pyvenv.cfg").write_text("home = /usr/bin\nversion_info = 3.13.5\n")
    (venv / "bin" / "python").symlink_to("/usr/bin/python3")
    (venv / "lib64").symlink_to("lib")
    tool = venv / "bin" / "tool"
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o4775)
    module = venv / "lib" / "python3.13" / "site-packages" / "models" / "__init__.py"
    module.write_text("version = 1\n")
    os.utime(module, (1_000_000, 1_000_000))
    lock = "models==2.1 ; python_version == '3.13' \\\n    --hash=sha256:ab\nsteady==1.0 \\\n    --hash=sha256:cd\n"
    (venv.parent / "lock.txt").write_text(lock)
    for path in (venv.parent, *venv.parent.rglob("*")):
        os.chown(path, USER.pw_uid, USER.pw_gid, follow_symlinks=False)
    return venv.parent


def ask(tmp_path: Path, stage: Path, **more: object) -> dict[str, object]:
    root = tmp_path / "environments"
    root.mkdir(exist_ok=True)
    asked = {"root": str(root), "name": "demo", "number": 1, "operation": "op-1", "user": "nobody"}
    return {**asked, "stage": str(stage), **more}


def test_published_version_belongs_to_root_and_has_no_write_or_setuid_bits(
    program: dict[str, Any],
    tmp_path: Path,
    stage: Path,
) -> None:
    answer = program["publish"](ask(tmp_path, stage))
    assert (answer["number"], answer["packages"], answer["python"]) == (1, 2, "3.13.5")
    place = tmp_path / "environments" / "demo" / "1"
    for path in (place, *place.rglob("*")):
        about = path.lstat()
        assert (about.st_uid, about.st_gid) == (0, 0), path
        assert path.is_symlink() or about.st_mode & 0o7222 == 0, path
    assert (place / "bin" / "tool").stat().st_mode & 0o777 == 0o555
    module = place / "lib64" / "python3.13" / "site-packages" / "models" / "__init__.py"
    assert (module.read_text(), module.stat().st_mtime) == ("version = 1\n", 1_000_000)
    text = (tmp_path / "environments" / ".modules" / "demo" / "1.lua").read_text()
    assert 'prepend_path("PATH", "/environments/demo/1/bin")' in text


def test_repeated_publication_answers_the_same_and_another_operation_gets_the_next_number(
    program: dict[str, Any],
    tmp_path: Path,
    stage: Path,
) -> None:
    first = program["publish"](ask(tmp_path, stage))
    assert program["publish"](ask(tmp_path, stage)) == first
    assert program["publish"](ask(tmp_path, stage, operation="op-2"))["number"] == 2
    for number in (1, 2, 2):
        program["remove"]({"root": str(tmp_path / "environments"), "name": "demo", "number": number})
    assert sorted((tmp_path / "environments").rglob("*")) == [tmp_path / "environments" / ".modules"]


@pytest.mark.parametrize(
    ("target", "why"),
    [
        ("/root/.ssh", "links to /root/.ssh, outside"),
        ("../../../etc", "outside the environment"),
        ("python/../../lib", "outside the environment"),  # bin/python is a link itself
        ("", "neither a file"),
    ],
)
def test_refuses_what_an_environment_can_not_contain_and_leaves_nothing(
    program: dict[str, Any],
    tmp_path: Path,
    stage: Path,
    target: str,
    why: str,
) -> None:
    odd = stage / "venv" / "bin" / "odd"
    if target:
        odd.symlink_to(target)
    else:
        os.mkfifo(odd)
    with pytest.raises(program["WorkRefused"], match=why):
        program["publish"](ask(tmp_path, stage))
    assert list((tmp_path / "environments").iterdir()) == []


def test_training_package_is_not_written_through_a_link(
    program: dict[str, Any], tmp_path: Path, stage: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    victim, train = tmp_path / "victim", tmp_path / "train"
    victim.mkdir(mode=0o700)
    train.mkdir()
    (train / "__init__.py").write_text("")
    monkeypatch.setitem(program, "TRAIN", str(train))
    venv = tmp_path / "venv"
    (venv / "lib" / "python3.13").mkdir(parents=True)
    (venv / "lib" / "python3.13" / "site-packages").symlink_to(victim)
    assert program["add_train"](str(venv)) == 0
    assert (victim.stat().st_mode & 0o777, list(victim.iterdir())) == (0o700, [])


def test_a_link_in_the_users_folder_does_not_make_root_read_a_secret(
    program: dict[str, Any],
    tmp_path: Path,
    stage: Path,
) -> None:
    secret = tmp_path / "secret"
    secret.mkdir(mode=0o700)
    (secret / "lock.txt").write_text("key==1\n")
    (secret / "venv").mkdir()
    stage.rename(tmp_path / "away")
    stage.symlink_to(secret)
    with pytest.raises(PermissionError):
        program["publish"](ask(tmp_path, stage))
    assert os.geteuid() == 0
    assert list((tmp_path / "environments").iterdir()) == []


def test_a_full_disk_is_named_and_leaves_nothing(
    program: dict[str, Any],
    tmp_path: Path,
    stage: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setitem(program, "copy_bytes", full)
    asked = json.dumps(ask(tmp_path, stage))
    monkeypatch.setattr("sys.argv", ["environment_store.py", "publish", asked])
    assert program["main"]() == 1
    answer = json.loads(capsys.readouterr().out)
    assert answer["error"] == "/environments: No space left on device; nothing was kept"
    assert "headway env rm" in answer["hint"]
    assert list((tmp_path / "environments").iterdir()) == []


def refused(
    program: dict[str, Any], asked: dict[str, object], capsys: pytest.CaptureFixture[str], what: str = "publish"
) -> dict[str, str]:
    """Runs the program, which must refuse, and returns its answer."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["environment_store.py", what, json.dumps(asked)])
        assert program["main"]() == 1
    answer: dict[str, str] = json.loads(capsys.readouterr().out)
    return answer


def test_unknown_user_is_told_in_a_sentence(
    program: dict[str, Any], tmp_path: Path, stage: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = refused(program, ask(tmp_path, stage, user="nowhere-man"), capsys)
    assert answer["error"] == "there is no user nowhere-man on this machine"
    assert answer["hint"] == "add the person to a team in the cluster file, then headway apply"
    assert list((tmp_path / "environments").iterdir()) == []


def test_build_without_its_files_points_to_the_log_of_its_job(
    program: dict[str, Any], tmp_path: Path, stage: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (stage / "lock.txt").unlink()
    answer = refused(program, ask(tmp_path, stage), capsys)
    assert answer["error"] == f"{stage}/lock.txt: No such file or directory; nothing was kept"
    assert answer["hint"] == "the build did not finish: look into its job's log"


def test_file_that_the_user_may_not_read_is_named(
    program: dict[str, Any], tmp_path: Path, stage: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (stage / "lock.txt").chmod(0)
    answer = refused(program, ask(tmp_path, stage), capsys)
    assert answer["error"] == f"{stage}/lock.txt: Permission denied; nothing was kept"
    assert answer["hint"] == "nobody must be able to read the build, and root of this machine to write to the folder"


@pytest.mark.parametrize(
    ("number", "text", "hint"),
    [
        (errno.EROFS, "Read-only file system", "mount the volume of {root} writable on this machine, then repeat it"),
        (errno.EIO, "Input/output error", "check the volume of {root} on this machine, then repeat it"),
    ],
)
def test_volume_that_accepts_no_change_is_told_with_what_to_do(
    program: dict[str, Any],
    tmp_path: Path,
    stage: Path,
    capsys: pytest.CaptureFixture[str],
    number: int,
    text: str,
    hint: str,
) -> None:
    def fail(_: object) -> None:
        raise OSError(number, text)

    program["erase"] = fail
    asked = ask(tmp_path, stage)
    answer = refused(program, asked, capsys, "remove")
    assert answer == {"error": f"/environments: {text}", "hint": hint.format(root=asked["root"])}


def test_a_program_is_stored_once_and_only_if_it_arrived_whole(
    program: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import hashlib
    import io
    from types import SimpleNamespace

    about = {"root": str(tmp_path), "name": "uv-1", "sha256": hashlib.sha256(b"program").hexdigest()}
    assert not program["store_tool"]({**about, "bytes": 0})["present"]
    monkeypatch.setattr(program["sys"], "stdin", SimpleNamespace(buffer=io.BytesIO(b"prog")))
    with pytest.raises(program["WorkRefused"], match="arrived damaged"):
        program["store_tool"]({**about, "bytes": 7})
    assert list((tmp_path / ".tools").iterdir()) == []
    monkeypatch.setattr(program["sys"], "stdin", SimpleNamespace(buffer=io.BytesIO(b"program")))
    assert program["store_tool"]({**about, "bytes": 7})["present"]
    assert program["store_tool"]({**about, "bytes": 0})["present"]
    assert (tmp_path / ".tools" / "uv-1").stat().st_mode & 0o777 == 0o755


def test_the_images_own_python_becomes_a_version_without_a_network(program: dict[str, Any], tmp_path: Path) -> None:
    root = tmp_path / "environments"
    root.mkdir()
    asked = {"root": str(root), "name": "pytorch", "number": 1, "operation": "image-debian13"}
    answer = program["publish_image"](asked)
    assert answer["lock"].startswith("# The node image's own packages")
    place = root / "pytorch" / "1"
    assert (place / "bin" / "python").resolve() == Path(sys._base_executable).resolve()  # type: ignore[attr-defined]
    assert "include-system-site-packages = true" in (place / "pyvenv.cfg").read_text()
    for path in (place, *place.rglob("*")):
        assert path.is_symlink() or path.stat().st_mode & 0o222 == 0, path
    texts = [path.read_text() for path in (place / "bin").glob("[aA]ctivate*")]
    assert any("/environments/pytorch/1" in text for text in texts)
    assert not any(str(root) in text for text in texts)
    assert program["publish_image"](asked)["number"] == 1


def test_same_packages_keep_the_latest_number_and_bring_back_its_files(
    program: dict[str, Any], tmp_path: Path, stage: Path
) -> None:
    first = program["publish"](ask(tmp_path, stage))
    latest = {name: first[name] for name in ("number", "sha256", "python")}
    again = ask(tmp_path, stage, number=2, operation="op-2", latest=latest)
    assert program["publish"](again)["number"] == 1
    root = tmp_path / "environments"
    assert sorted(one.name for one in (root / "demo").iterdir()) == ["1"]
    program["remove"]({"root": str(root), "name": "demo", "number": 1})  # as after a restore on another machine
    assert program["publish"](again)["number"] == 1
    assert (root / "demo" / "1" / "bin" / "python").is_symlink()
    other = {**latest, "sha256": "0" * 64}
    assert program["publish"]({**again, "operation": "op-3", "latest": other})["number"] == 2
    assert not list(root.glob(".draft-*"))


def test_versions_that_are_there_are_told_from_missing_ones(
    program: dict[str, Any], tmp_path: Path, stage: Path
) -> None:
    made = program["publish"](ask(tmp_path, stage))
    asked = {"root": str(tmp_path / "environments"), "versions": [["demo", 1], ["demo", 2], ["other", 1]]}
    assert program["digests"](asked) == {"sha256": [made["sha256"], "", ""]}


def test_files_of_other_packages_under_the_latest_number_are_not_taken_for_it(
    program: dict[str, Any], tmp_path: Path, stage: Path
) -> None:
    """The records are older than the files, as after a restore of the server alone."""
    first = program["publish"](ask(tmp_path, stage))
    latest = {name: first[name] for name in ("number", "sha256", "python")}
    place = tmp_path / "environments" / "demo" / "1"
    (place / ".headway.json").unlink()
    (place / ".headway.json").write_text(json.dumps({"operation": "op-0", "sha256": "0" * 64}))
    assert program["publish"](ask(tmp_path, stage, number=2, operation="op-2", latest=latest))["number"] == 2
