"""The ranks that hold a stalled training back are named, and no others."""

from __future__ import annotations

import pytest

from headway.health.jobs.stall_stragglers import RankStack, find_stragglers

WAITS = ("all_reduce (distributed_c10d.py:2810)", "train (train.py:80)", "<module> (train.py:120)")
LOADS = ("load_batch (train.py:41)", "train (train.py:71)", "<module> (train.py:120)")


def stacks(count: int, odd: dict[int, tuple[str, ...]]) -> list[RankStack]:
    return [RankStack(rank, f"lab-1-{rank // 8 + 1}", odd.get(rank, WAITS)) for rank in range(count)]


def test_names_rank_node_and_places() -> None:
    found = find_stragglers(stacks(16, {9: LOADS}))
    assert found is not None
    assert found.text() == (
        "rank 9 is in load_batch (train.py:41) on lab-1-2, and 15 ranks wait in all_reduce (distributed_c10d.py:2810)"
    )
    assert found.nodes == ("lab-1-2",)


def test_names_several_ranks_of_one_node() -> None:
    found = find_stragglers(stacks(32, dict.fromkeys(range(8, 16), LOADS)))
    assert found is not None
    assert found.text().startswith("ranks 8-15 are in load_batch (train.py:41) on lab-1-2, and 24 ranks wait")


@pytest.mark.parametrize(
    ("count", "odd"),
    [
        (16, {}),  # all at one place: a deadlock, or the fabric
        (16, dict.fromkeys(range(6), LOADS)),  # too many to say who waits for whom
        (2, {0: LOADS}),
        (16, {3: ()}),  # unknown is no evidence
    ],
)
def test_names_nothing_without_a_clear_minority(count: int, odd: dict[int, tuple[str, ...]]) -> None:
    assert find_stragglers(stacks(count, odd)) is None


def test_line_numbers_do_not_make_a_straggler() -> None:
    elsewhere = ("all_reduce (distributed_c10d.py:2810)", "train (train.py:84)", "<module> (train.py:120)")
    assert find_stragglers(stacks(16, {2: elsewhere})) is None
