"""A podman that is broken, hangs or is missing leads to a bounded wait and a helpful message."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from headway.errors import CommandFailed
from headway.images.podman import Podman, podman_problem
from headway.providers.local.provider import LocalProvider
from tests.support.clusters import builders


@pytest.fixture
def pretend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A podman of ours comes first on PATH; write its script there."""
    program = tmp_path / "bin" / "podman"
    program.parent.mkdir()
    program.touch(mode=0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    return program


async def test_broken_podman_error_includes_output_and_hint(pretend: Path, tmp_path: Path) -> None:
    pretend.write_text("#!/bin/sh\necho 'Error: database is locked' >&2\nexit 125\n")
    with pytest.raises(CommandFailed, match="database is locked") as caught:
        await LocalProvider(tmp_path / "state").find(builders.cluster())
    assert "headway doctor" in caught.value.hint
    with pytest.raises(CommandFailed) as caught:
        await LocalProvider(tmp_path / "state").list("lab")
    assert "headway doctor" in caught.value.hint
    (problem,) = await podman_problem()
    assert "database is locked" in problem.what
    assert problem.fatal


async def test_hanging_podman_times_out(pretend: Path, tmp_path: Path) -> None:
    pretend.write_text("#!/bin/sh\nexec sleep 600\n")
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


async def test_working_podman_reports_no_problem(pretend: Path) -> None:
    pretend.write_text("#!/bin/sh\n")
    assert await podman_problem() == ()


async def test_reclaimed_machine_is_removed_at_its_deadline(pretend: Path, tmp_path: Path) -> None:
    said = tmp_path / "said"
    pretend.write_text(f'#!/bin/sh\necho "$@" >> {said}\n')
    provider = LocalProvider(tmp_path / "state")
    for name in ("lab-1-1", "lab-1-2"):
        (provider.state_dir / "machines" / "lab" / name).mkdir(parents=True)
    assert await provider.notices("lab") == ()
    now = time.time()
    await provider.reclaim(builders.machine("lab-1-1"), now - 1)
    await provider.reclaim(builders.machine("lab-1-2"), now + 1000)
    (left,) = await provider.notices("lab")
    assert (left.machine, round(left.at - now)) == ("lab-1-2", 1000)
    (removed,) = (line for line in said.read_text().splitlines() if line.startswith("rm"))
    assert removed.endswith("-lab-lab-1-1")
    await provider.delete(
        builders.machine("lab-1-2")
    )  # its notice is of that machine, not of the next one of this name
    assert await provider.notices("lab") == ()
