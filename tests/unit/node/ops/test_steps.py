"""The ops program performs file, folder, seed, wait and candidate steps and reads facts, here on temporary folders."""

from __future__ import annotations

import base64
import getpass
import grp
import hashlib
import json
import os
import pwd
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from headway.transport.remote_program import program_source
from ops import facts, steps

ME = getpass.getuser()
MY_GROUP = grp.getgrgid(os.getgid()).gr_name


def perform(*steps: dict[str, Any]) -> list[dict[str, Any]]:
    ran = subprocess.run(
        [sys.executable, "-c", program_source("ops")],
        input=json.dumps({"do": "apply", "steps": steps}),
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Traceback" not in ran.stderr, ran.stderr
    return [json.loads(line) for line in ran.stdout.splitlines()]


def file_step(path: Path, text: str, mode: int = 0o640) -> dict[str, Any]:
    data = base64.b64encode(text.encode()).decode()
    return {"op": "file", "path": str(path), "b64": data, "mode": mode, "owner": ME, "group": MY_GROUP}


def test_file_step_writes_content_mode_and_owner(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "slurm.conf"
    assert perform(file_step(target, "ClusterName=lab\n"))[0]["ok"]
    fact = facts.see_file(str(target))
    assert (target.read_text(), fact["mode"], fact["owner"]) == ("ClusterName=lab\n", 0o640, ME)


def test_file_step_replaces_a_symlink_without_following_it(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("keep")
    (tmp_path / "conf").symlink_to(victim)
    assert facts.see_file(str(tmp_path / "conf"))["sha"] == ""
    assert perform(file_step(tmp_path / "conf", "new"))[0]["ok"]
    assert victim.read_text() == "keep"
    assert not (tmp_path / "conf").is_symlink()


def test_failed_file_step_leaves_no_temporary_file(tmp_path: Path) -> None:
    (tmp_path / "munge.key").mkdir()
    (answer,) = perform(file_step(tmp_path / "munge.key", "secret"))
    assert not answer["ok"]
    assert [path.name for path in tmp_path.iterdir()] == ["munge.key"]


def test_apply_stops_at_the_first_failing_step_and_reports_it(tmp_path: Path) -> None:
    answers = perform(
        {"op": "run", "argv": ["true"]},
        {"op": "run", "argv": ["sh", "-c", "echo no space >&2; exit 3"]},
        file_step(tmp_path / "never", "x"),
    )
    assert [a["ok"] for a in answers] == [True, False]
    assert "ended with 3" in answers[1]["error"]
    assert "no space" in answers[1]["error"]
    assert not (tmp_path / "never").exists()


def test_file_step_reports_an_unknown_owner(tmp_path: Path) -> None:
    step = {**file_step(tmp_path / "f", "x"), "owner": "nosuchuser"}
    assert "no user 'nosuchuser'" in perform(step)[0]["error"]
    assert not (tmp_path / "f").exists()


def test_interrupted_seed_step_is_repeated_and_keeps_existing_data(tmp_path: Path) -> None:
    source = tmp_path / "image"
    source.mkdir()
    (source / "ibdata1").write_text("data")
    target = tmp_path / "state" / "mysql"
    half = Path(f"{target}.headway-new")
    half.mkdir(parents=True)
    (half / "ibdata1").write_text("da")
    step = {"op": "seed", "sources": [str(tmp_path / "elsewhere"), str(source)], "target": str(target)}
    assert perform(step)[0]["ok"]
    assert (target / "ibdata1").read_text() == "data"
    (target / "ibdata1").write_text("in use")
    assert perform(step)[0]["ok"]
    assert (target / "ibdata1").read_text() == "in use"


def test_own_step_changes_the_owner_recursively_unless_already_owned(tmp_path: Path) -> None:
    """Another image may have another number for the same user."""
    kept = tmp_path / "mysql"
    (kept / "db").mkdir(parents=True)
    (kept / "db" / "t.ibd").write_text("rows")
    for path in (kept, kept / "db", kept / "db" / "t.ibd"):
        os.chown(path, 4242, 4242)
    step = {"op": "own", "paths": [str(kept), str(tmp_path / "not there")], "owner": "daemon"}
    assert perform(step)[0]["ok"]
    uid = pwd.getpwnam("daemon").pw_uid
    assert [path.stat().st_uid for path in (kept, kept / "db", kept / "db" / "t.ibd")] == [uid] * 3
    os.chown(kept / "db" / "t.ibd", 4242, 4242)
    assert perform(step)[0]["ok"]
    assert (kept / "db" / "t.ibd").stat().st_uid == 4242, "a folder that is its own is not walked through"


def test_wait_step_continues_while_the_busy_command_succeeds(tmp_path: Path) -> None:
    """`busy` holds for a while, and then the answer comes: a wait of no seconds at all gets it."""
    count = tmp_path / "count"
    asks = f'echo >>{count}; [ "$(wc -l <{count})" -gt 6 ]'
    step = {"op": "wait", "argv": ["sh", "-c", asks], "timeout_s": 0, "busy": ["true"], "most_s": 60}
    assert perform(step)[0]["ok"]
    count.unlink()
    assert "gave up" in perform({**step, "busy": ["false"]})[0]["error"]
    assert "gave up" in perform({**step, "most_s": 0})[0]["error"]


def test_check_of_a_candidate_that_does_not_end_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps, "CANDIDATE_S", 0.2)
    conf = tmp_path / "slurm.conf"
    conf.write_text("ClusterName=lab\n")
    files = [file_step(conf, "ClusterName=other\n")]
    candidate = {"op": "candidate", "folder": str(tmp_path / "candidate"), "files": files, "checks": [["sleep", "300"]]}
    with pytest.raises(steps.StepFailed, match="did not read the new configuration within 0 s; the old one stays"):
        steps.op_candidate(candidate)
    assert conf.read_text() == "ClusterName=lab\n"


@pytest.mark.parametrize("old", ["", "ClusterName=lab\n"])
def test_rejected_candidate_config_stops_before_any_write(tmp_path: Path, old: str) -> None:
    conf = tmp_path / "slurm" / "slurm.conf"
    if old:
        conf.parent.mkdir()
        conf.write_text(old)
    candidate = {
        "op": "candidate",
        "folder": str(tmp_path / "candidate"),
        "files": [file_step(conf, "NoSuchKey=1\n")],
        "checks": [["sh", "-c", 'echo "fatal: in $SLURM_CONF" >&2; ! grep -q NoSuchKey "$SLURM_CONF"']],
    }
    answers = perform(candidate, file_step(tmp_path / "slurm.conf", "new"))
    assert [a["ok"] for a in answers] == [False]
    kept = "; the old one stays: fatal" if old else ": fatal"
    assert f"Slurm refuses the new configuration{kept}" in answers[0]["error"]


def test_wait_step_fails_with_its_message(tmp_path: Path) -> None:
    step = {"op": "wait", "argv": ["false"], "timeout_s": 0, "message": "slurmdbd does not answer"}
    assert perform(step)[0]["error"].startswith("slurmdbd does not answer")


def test_dir_step_in_a_shared_folder_moves_foreign_entries_aside(tmp_path: Path) -> None:
    """Scratch is everybody's: whoever was first under a newcomer's name, with a folder or a link, gets nothing by it."""
    everybody, other = tmp_path / "scratch", tmp_path / "other"
    everybody.mkdir()
    other.mkdir(mode=0o755)
    everybody.chmod(0o1777)
    (everybody / "link").symlink_to(other)
    (everybody / "dangling").symlink_to(tmp_path / "nothing")
    (everybody / "file").write_text("x")
    names = ("link", "dangling", "file", "missing")
    paths = [str(everybody / name) for name in names]
    assert facts.observe({"dirs": paths, "owners": dict.fromkeys(paths, ME)})["dirs"] == []
    for path in paths:
        told = perform({"op": "dir", "path": path, "owner": ME, "group": MY_GROUP, "mode": 0o700})
        assert all("error" not in row for row in told), told
    assert all((everybody / name).is_dir() and not (everybody / name).is_symlink() for name in names)
    assert sorted(facts.observe({"dirs": paths, "owners": dict.fromkeys(paths, ME)})["dirs"]) == sorted(paths)
    assert other.stat().st_mode & 0o777 == 0o755
    assert len(list(everybody.glob("*.not-of-*"))) == 3


def test_block_step_changes_only_headway_lines_of_a_file(tmp_path: Path) -> None:
    target = tmp_path / "hosts"
    target.write_text("192.0.2.9 files\n")
    step = {**file_step(target, "10.0.0.1 lab-head\n"), "block": True}
    assert perform(step)[0]["ok"]
    assert "192.0.2.9 files\n" in target.read_text()
    assert facts.see_file(str(target), block=True)["sha"] == hashlib.sha256(b"10.0.0.1 lab-head\n").hexdigest()
    assert perform({**file_step(target, "10.0.0.2 lab-head\n"), "block": True})[0]["ok"]
    assert "10.0.0.1" not in target.read_text()
    assert perform({"op": "remove", "path": str(target)})[0]["ok"]
    assert target.read_text() == "192.0.2.9 files\n"


def test_remove_step_removes_binary_files(tmp_path: Path) -> None:
    (tmp_path / "munge.key").write_bytes(bytes(range(256)))
    assert perform({"op": "remove", "path": str(tmp_path / "munge.key")})[0]["ok"]
    assert not (tmp_path / "munge.key").exists()
