"""Two servers on one PostgreSQL database: either may be killed, nothing is done twice and nothing is lost."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from tests.process.two_server_chaos import Ordeal
from tests.support.postgres import BIN, postgres

pytestmark = [
    pytest.mark.skipif(BIN is None, reason="no PostgreSQL here"),
    pytest.mark.skipif(os.geteuid() != 0, reason="submits as somebody else"),
]


def survive(seconds: float, least: int, between_s: tuple[float, float], *, back: bool = True) -> dict[str, int]:
    """In a folder of its own: pytest closes its own to other users whenever another pytest starts."""
    with tempfile.TemporaryDirectory(prefix="headway-two-") as folder, postgres() as url:
        ordeal = Ordeal(Path(folder), url)
        try:
            ordeal.run(seconds, least, between_s, back=back)
            return ordeal.count()
        finally:
            ordeal.close()


def test_two_servers_for_a_moment() -> None:
    """The one that leads is killed, and the other follows."""
    found = survive(0, 1, (0.5, 1), back=False)
    assert found["jobs"]
    assert found["operations"]


@pytest.mark.soak
def test_two_servers_for_a_minute() -> None:
    found = survive(60, 6, (1, 9))
    assert found["jobs"] >= 50, found
