"""Which slots an apply wants machines in, where some of those that there are will soon be taken."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from headway.cluster.env import Env
from headway.cluster.members import members
from headway.machines.base import Notice
from tests import builders

WHOLE = builders.cluster(4, 0)
SPOT = replace(WHOLE, groups=(replace(WHOLE.groups[0], nodes=2, most=4, spot=True),))


class Provider:
    """Takes lab-1-1 back."""

    async def notices(self, cluster: str) -> tuple[Notice, ...]:
        return (Notice(f"{cluster}-1-1", 5000.0), Notice(f"{cluster}-1-4", 5000.0))


async def chosen(*places: int) -> tuple[str, ...]:
    names = [SPOT.head, *(f"lab-1-{place}" for place in places)]
    env: Any = Env(Provider(), None, None, Path())  # type: ignore[arg-type]
    return await members(SPOT, env, {name: builders.machine(name) for name in names})


async def test_a_machine_that_is_taken_back_is_not_counted_and_not_sent_away() -> None:
    assert await chosen(1, 2) == ("lab-1-1", "lab-1-2")  # its slot is the first free one, as soon as it is gone
    assert await chosen(1, 2, 3) == ("lab-1-1", "lab-1-2", "lab-1-3")


async def test_a_notice_of_a_machine_that_is_gone_takes_no_slot() -> None:
    assert await chosen(2, 3) == ("lab-1-2", "lab-1-3")
