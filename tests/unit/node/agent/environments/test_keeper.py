from __future__ import annotations

import pytest

from agent.environments import keeper, page_cache
from agent.environments.local_copies import LocalCopies


class Copies(LocalCopies):
    fault = ""

    def look_once(self) -> None:
        if self.fault:
            raise OSError(self.fault)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    found: list[int] = []
    monkeypatch.setattr(keeper, "list_versions", lambda: [])
    monkeypatch.setattr(page_cache, "read_into_memory", lambda paths, most: found.append(most) or 0)
    return found


def test_files_are_read_every_five_minutes_while_no_job_runs(reads: list[int]) -> None:
    now, idle = [0.0], [False]
    kept = keeper.EnvironmentKeeper(lambda: idle[0], Copies(), clock=lambda: now[0])
    kept.look_once()
    assert not reads
    idle[0] = True
    for now[0], count in ((1.0, 1), (299.0, 1), (302.0, 2)):
        kept.look_once()
        assert len(reads) == count


def test_fault_is_logged_once_and_the_thread_goes_on(reads: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(keeper, "log", said.append)
    copies = Copies()
    kept = keeper.EnvironmentKeeper(lambda: True, copies)
    copies.fault = "filer is away"
    kept.look_once()
    kept.look_once()
    assert len(said) == 1
    assert "filer is away" in said[0]
    copies.fault = ""
    kept.look_once()
    assert len(reads) == 1
