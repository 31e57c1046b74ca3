"""A folder whose quota can't be assigned keeps no other user's limit from being set."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ops import quotas
from ops.files import StepFailed

GIB = 2**30


@pytest.fixture
def volume() -> Iterator[Path]:
    """Not below tmp_path: pytest fails in each later run if a run that was killed leaves folders nested this deep there."""
    folder = tempfile.mkdtemp()
    yield Path(folder)
    subprocess.run(["rm", "-rf", folder], check=True)  # shutil can't


def nest(folder: Path, levels: int) -> None:
    """Makes folders in each other, without ever using their whole path."""
    handle = os.open(folder, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("d", dir_fd=handle)
        below = os.open("d", os.O_RDONLY, dir_fd=handle)
        os.close(handle)
        handle = below
    os.close(handle)


def test_folders_nested_too_deep_fail_for_their_user_alone(volume: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limits: dict[int, int] = {}
    for user in ("ann", "zoe"):
        (volume / user).mkdir()
    nest(volume / "ann", 1200)
    monkeypatch.setattr(quotas, "_is_enforced", lambda _, kind: kind == quotas._PROJECT)
    monkeypatch.setattr(quotas, "_belongs", lambda *_: False)
    monkeypatch.setattr(quotas, "_give", lambda *_: None)
    monkeypatch.setattr(quotas, "_set_limit", lambda _volume, _kind, number, limit: limits.update({number: limit}))
    goal = {"uids": {"ann": 1, "zoe": 2}, "first_project": 100, "limit": GIB}
    with pytest.raises(StepFailed, match=r"ann: the folders in .* are nested too deep") as failed:
        quotas.set_quotas(str(volume), goal, {str(volume): GIB})
    assert "zoe" not in str(failed.value)
    assert limits == {101: GIB, 102: GIB}
