"""With two servers on one PostgreSQL database, killing either loses no job or operation and repeats none."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from tests.support.servers.postgres import BIN, postgres
from tests.support.servers.two_server_chaos import Ordeal

pytestmark = [
    pytest.mark.skipif(BIN is None, reason="no PostgreSQL here"),
    pytest.mark.skipif(os.geteuid() != 0, reason="submits as somebody else"),
]


def survive(seconds: float, least: int, between_s: tuple[float, float], *, back: bool = True) -> dict[str, int]:
    """Runs the ordeal in its own folder, because pytest closes its folders to other users whenever another pytest
    starts, and returns its counts."""
    with tempfile.TemporaryDirectory(prefix="headway-two-") as folder, postgres() as url:
        ordeal = Ordeal(Path(folder), url)
        try:
            ordeal.run(seconds, least, between_s, back=back)
            return ordeal.count()
        finally:
            ordeal.close()


def test_second_server_takes_over_after_leader_is_killed() -> None:
    """The leading server is killed, and the other one takes over."""
    found = survive(0, 1, (0.5, 1), back=False)
    assert found["jobs"]
    assert found["operations"]


@pytest.mark.soak
def test_repeated_server_kills_lose_no_work_for_a_minute() -> None:
    found = survive(60, 6, (1, 9))
    assert found["jobs"] >= 50, found
