"""The first head is brought back at the right time."""

from __future__ import annotations

from headway.health.head_recovery import MAX_STARTS, RETRY_S, TAKEOVER_LIMIT_S, HeadRecovery
from tests.support.clusters import builders
from tests.support.clusters.builders import Clock
from tests.support.clusters.two_heads import FIRST, SECOND, TWO, Place


async def test_stopped_first_head_is_started_without_immediate_repeat() -> None:
    place, clock = Place(), Clock()
    heads = HeadRecovery(clock)
    assert await heads.recover_first_head(TWO, place.context, place.machines) == []
    place.stop(FIRST)
    place.primary = "DOWN"
    assert await heads.recover_first_head(TWO, place.context, place.machines) == [
        (FIRST, f"started again; {SECOND} is the active head until it is back")
    ]
    assert await heads.recover_first_head(TWO, place.context, place.machines) == []
    assert place.done == [f"start {FIRST}"]


async def test_recovery_waits_for_a_takeover_in_progress() -> None:
    place, clock = Place(), Clock()
    heads = HeadRecovery(clock)
    place.stop(FIRST)
    place.primary, place.leads = "DOWN", FIRST
    assert await heads.recover_first_head(TWO, place.context, place.machines) == []
    place.leads = SECOND
    assert len(await heads.recover_first_head(TWO, place.context, place.machines)) == 1
    again = HeadRecovery(clock)
    place.leads = FIRST
    assert await again.recover_first_head(TWO, place.context, place.machines) == []
    clock.now += TAKEOVER_LIMIT_S
    assert len(await again.recover_first_head(TWO, place.context, place.machines)) == 1, (
        "one that can't lead is no reason to leave both off"
    )


async def test_recovery_waits_for_the_takeover_at_each_fault() -> None:
    place, clock = Place(), Clock()
    heads = HeadRecovery(clock)
    place.stop(FIRST)
    place.primary, place.leads = "DOWN", FIRST
    assert await heads.recover_first_head(TWO, place.context, place.machines) == []
    place.machines[FIRST] = builders.machine(FIRST)
    assert await heads.recover_first_head(TWO, place.context, place.machines) == []  # it came back by itself
    clock.now += TAKEOVER_LIMIT_S
    place.stop(FIRST)
    assert await heads.recover_first_head(TWO, place.context, place.machines) == []
    assert place.done == []


async def test_silent_first_head_is_fenced_before_it_is_started() -> None:
    place = Place()
    heads = HeadRecovery(Clock())
    place.silent, place.primary = {FIRST}, "DOWN"
    assert await heads.recover_first_head(TWO, place.context, place.machines) == []  # one look may be a slow answer
    await heads.recover_first_head(TWO, place.context, place.machines)
    assert place.done == [f"fence {FIRST}", f"start {FIRST}"]


async def test_first_head_reachable_from_the_second_is_left_alone() -> None:
    place = Place()
    heads = HeadRecovery(Clock())
    place.silent = {FIRST}  # to the server only
    for _ in range(3):
        assert await heads.recover_first_head(TWO, place.context, place.machines) == []
    assert place.done == []


async def test_recovery_gives_up_after_the_maximum_number_of_starts() -> None:
    place, clock = Place(), Clock()
    heads = HeadRecovery(clock)
    place.stop(FIRST)
    place.primary, place.fails = "DOWN", True
    for _ in range(MAX_STARTS + 2):
        await heads.recover_first_head(TWO, place.context, place.machines)
        clock.now += RETRY_S
    assert place.done == [f"start {FIRST}"] * MAX_STARTS
