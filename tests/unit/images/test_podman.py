"""A podman that is broken, hangs or is missing leads to a bounded wait and a helpful message."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headway.errors import CommandFailed, Refused
from headway.images.podman import Podman, file_lock, host_lock_folder, podman_problem
from headway.providers.local.provider import LocalProvider
from tests.support.clusters import builders
from tests.support.machines.podman_script import podman_script

__all__ = ["podman_script"]  # a fixture


async def test_broken_podman_error_includes_output_and_hint(podman_script: Path, tmp_path: Path) -> None:
    podman_script.write_text("#!/bin/sh\necho 'Error: database is locked' >&2\nexit 125\n")
    with pytest.raises(CommandFailed, match="database is locked") as caught:
        await LocalProvider(tmp_path / "state").find(builders.cluster())
    assert "headway doctor" in caught.value.hint
    with pytest.raises(CommandFailed) as caught:
        await LocalProvider(tmp_path / "state").list("lab")
    assert "headway doctor" in caught.value.hint
    (problem,) = await podman_problem()
    assert "database is locked" in problem.what
    assert problem.fatal


async def test_hanging_podman_times_out(podman_script: Path, tmp_path: Path) -> None:
    podman_script.write_text("#!/bin/sh\nexec sleep 600\n")
    with pytest.raises(CommandFailed, match="time limit") as caught:
        await Podman(tmp_path)("ps", timeout_s=0.2)
    assert "headway doctor" in caught.value.hint
    (problem,) = await podman_problem(timeout_s=0.2)
    assert "time limit" in problem.what


async def test_missing_podman_error_explains_setup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CommandFailed, match="program is not installed") as caught:
        await LocalProvider(tmp_path / "state").find(builders.cluster())
    assert "make setup" in caught.value.hint
    assert await podman_problem() == ()  # preflight names it


async def test_working_podman_reports_no_problem(podman_script: Path) -> None:
    podman_script.write_text("#!/bin/sh\n")
    assert await podman_problem() == ()


def test_lock_is_never_a_file_that_another_user_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such a user could point it to a file of root, or hold it for ever."""
    target, link, pipe = tmp_path / "target", tmp_path / "link", tmp_path / "pipe"
    link.symlink_to(target)
    os.mkfifo(pipe)
    for path in (link, pipe):
        with pytest.raises(Refused, match="lock"), file_lock(path):
            pass
    assert not target.exists()
    with file_lock(tmp_path / "own"):
        pass
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(Refused, match="not a file of this user"), file_lock(tmp_path / "own"):
        pass


def test_locks_of_root_are_in_a_folder_where_only_root_makes_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert host_lock_folder() == Path("/run/headway")
