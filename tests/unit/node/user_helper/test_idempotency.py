"""An action with a tag is done once on the head, also where homes have no file locks, and tags are kept for a limited
time."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from headway.store.access.idempotency_keys import IDEMPOTENCY_KEPT_S
from tests.support.paths import NODE

# argv: the tag, the number of the error that a lock gives or 0. Its work leaves a line in `done` and says which one it was.
PROGRAM = """
import os, sys
from user_helper import idempotency as once
if int(sys.argv[2]):
    def lockf(*_):
        raise OSError(int(sys.argv[2]), os.strerror(int(sys.argv[2])))
    os.lockf = lockf
def work():
    path = os.path.join(os.environ["HOME"], "done")
    os.execvp("sh", ["sh", "-c", f"echo x >>{path}; wc -l <{path}"])
sys.exit(once.run_once(sys.argv[1], work))
"""


def run(home: Path, tag: str, lock_error: int = 0) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, tag, str(lock_error)],
        cwd=NODE, env={"HOME": str(home), "PATH": os.environ["PATH"]}, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    return done.returncode, done.stdout.strip() or done.stderr.strip().splitlines()[-1]


@pytest.mark.parametrize("lock_error", [errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS])
def test_tagged_action_is_done_once_without_file_locks(tmp_path: Path, lock_error: int) -> None:
    assert run(tmp_path, "a", lock_error) == (0, "1")
    assert run(tmp_path, "a", lock_error) == (0, "1")
    assert run(tmp_path, "b", lock_error) == (0, "2")


def test_unexpected_lock_error_prevents_the_action(tmp_path: Path) -> None:
    code, said = run(tmp_path, "a", errno.EIO)
    assert code != 0
    assert "Input/output error" in said
    assert not (tmp_path / "done").exists()


def test_tag_expires_before_the_server_may_reuse_its_key(tmp_path: Path) -> None:
    """The server forgets after a day: a key that is good again must run again."""
    assert run(tmp_path, "a") == (0, "1")
    kept = tmp_path / ".headway-once" / "a"
    at = time.time() - IDEMPOTENCY_KEPT_S + 1
    os.utime(kept, (at, at))
    assert run(tmp_path, "a") == (0, "2")


def test_one_request_in_256_deletes_the_old_files_of_all_tags(tmp_path: Path) -> None:
    for tag in ("a1", "b2"):
        run(tmp_path, tag)
    folder = tmp_path / ".headway-once"
    os.utime(folder / "a1", (1, 1))
    run(tmp_path, "c3")
    assert sorted(file.name for file in folder.iterdir()) == ["a1", "b2", "c3"]
    run(tmp_path, "00d4")
    assert sorted(file.name for file in folder.iterdir()) == ["00d4", "b2", "c3"]


def test_request_whose_answer_lost_a_part_is_not_repeated(tmp_path: Path) -> None:
    """Like a head that lost its power before the answer was on disk."""
    assert run(tmp_path, "a") == (0, "1")
    file = tmp_path / ".headway-once" / "a"
    file.write_bytes(file.read_bytes()[:5])
    assert run(tmp_path, "a") == (98, "an earlier try of this request was interrupted")


@pytest.mark.parametrize(
    "unsure", ["Socket timed out on send/recv operation", "Zero Bytes were transmitted or received"]
)
def test_submission_with_an_uncertain_outcome_is_not_repeated(tmp_path: Path, unsure: str) -> None:
    work = PROGRAM.replace("wc -l <{path}", f"echo 'Batch job submission failed: {unsure}' >&2; exit 1")
    for told in (unsure, "was interrupted"):
        done = subprocess.run(
            [sys.executable, "-c", work, "a", "0"],
            cwd=NODE, env={"HOME": str(tmp_path), "PATH": os.environ["PATH"]}, capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        assert (done.returncode, told in done.stderr) == (98, True)
    assert (tmp_path / "done").read_text() == "x\n"
