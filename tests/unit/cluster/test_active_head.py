"""The active one of two heads is addressed, and the first head is brought back at the right time."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from headway.cluster.active_head import active_head, active_or_stopped_head, require_active_head, second_head_leads
from headway.domain.machines.machine import Machine
from headway.errors import Unreachable
from tests.support.clusters.two_heads import FIRST, ONE, SECOND, TWO, Place


def of(cluster_heads: Sequence[str], place: Place) -> dict[str, Machine]:
    return {name: place.machines[name] for name in cluster_heads}


async def test_single_head_is_active_without_a_probe() -> None:
    place = Place()
    place.silent = {FIRST}
    found = await active_head(ONE, place.context, of(ONE.heads, place))
    assert found is not None
    assert found.name == FIRST
    place.stop(FIRST)
    assert await active_head(ONE, place.context, of(ONE.heads, place)) is None


@pytest.mark.parametrize(
    ("silent", "without", "who"),
    [
        ((), (), FIRST),
        ((FIRST,), (), SECOND),
        ((), (FIRST,), SECOND),  # it has only begun to start
        ((SECOND,), (), FIRST),
        ((SECOND,), (FIRST,), FIRST),
        ((FIRST, SECOND), (), FIRST),
    ],
)
async def test_active_head_is_the_first_with_answering_daemons(
    silent: Sequence[str], without: Sequence[str], who: str
) -> None:
    place = Place()
    place.silent, place.without = set(silent), set(without)
    assert (await require_active_head(TWO, place.context, of(TWO.heads, place))).name == who


async def test_require_active_head_fails_if_no_head_runs() -> None:
    place = Place()
    place.stop(FIRST)
    assert (await require_active_head(TWO, place.context, of(TWO.heads, place))).name == SECOND
    place.stop(SECOND)
    with pytest.raises(Unreachable, match="is not running"):
        await require_active_head(TWO, place.context, of(TWO.heads, place))


async def test_second_head_leads_only_if_it_reports_the_first_down() -> None:
    place = Place()
    assert await second_head_leads(TWO, place.context, place.machines) is None
    place.primary = "DOWN"
    assert (await second_head_leads(TWO, place.context, place.machines)) == place.machines[SECOND]
    assert await second_head_leads(ONE, place.context, of(ONE.heads, place)) is None
    place.stop(SECOND)
    assert await second_head_leads(TWO, place.context, place.machines) is None


async def test_active_or_stopped_head_returns_a_stopped_head() -> None:
    """Who takes machines away asks it what runs there, or does not take them."""
    place = Place()
    del place.machines[FIRST]
    assert await active_or_stopped_head(TWO, place.context, place.machines) == place.machines[SECOND]
    place.stop(SECOND)
    assert await active_or_stopped_head(TWO, place.context, place.machines) == place.machines[SECOND]
    assert await active_or_stopped_head(TWO, place.context, {}) is None
