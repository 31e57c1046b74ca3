"""Checkpoint entries that differ between ranks are detected and saved per rank (without torch)."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[4] / "node" / "train"))

from headway_train import per_rank


class Tensor:
    def __init__(self, content: bytes, divided: bool = False) -> None:
        self.content, self.divided = content, divided


def pieces(value: Any) -> list[bytes] | None:
    if isinstance(value, Tensor) and value.divided:
        raise per_rank.Divided
    return [value.content] if isinstance(value, Tensor) else None


def marked(**entries: Any) -> dict[str, str]:
    return {name: per_rank.mark(value, pieces) for name, value in entries.items()}


def test_differing_finds_entries_that_vary_between_ranks() -> None:
    ranks = [
        marked(
            rng=Tensor(b"%d" % rank),
            data={"epoch": 1, "at": {"seen": [5, rank]}},
            scheduler={"last_lr": [0.1], "base": Tensor(b"x")},
            best=float("nan"),
        )
        for rank in range(3)
    ]
    assert per_rank.differing(ranks) == {"rng", "data"}
    assert per_rank.differing(ranks[:1]) == set()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, True),
        (1, 1.0),
        ("1", 1),
        ([1, 2], [2, 1]),
        ([1], (1,)),
        ({"a": 1}, {"a": 2}),
        ([[1], 2], [[1, 2]]),
        (b"", None),
    ],
)
def test_different_values_have_different_marks(one: object, other: object) -> None:
    assert per_rank.mark(one, pieces) != per_rank.mark(other, pieces)


def test_order_of_dicts_and_sets_does_not_change_the_mark() -> None:
    assert per_rank.mark({"a": 1, "b": 2}, pieces) == per_rank.mark({"b": 2, "a": 1}, pieces)
    entries = "{'s': {'a', 'b', 'c', 'd'}, 'o': (None, 1j)}"
    program = f"from headway_train.per_rank import mark; print(mark({entries}, lambda value: None))"
    said = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONPATH": str(Path(per_rank.__file__).parents[1]), "PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
            text=True,
            timeout=60,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(said) == 1, "each process orders a set as it likes"


def test_divided_tensors_and_unpicklable_values_do_not_differ() -> None:
    ranks = [marked(ema={"rank": rank, "w": Tensor(b"", divided=True)}, odd=partial(lambda: 0)) for rank in range(2)]
    assert per_rank.differing(ranks) == set()


def test_entry_of_only_some_ranks_is_compared_among_them() -> None:
    assert per_rank.differing([{"log": "a"}, {}, {}]) == set()
    assert per_rank.differing([{"log": "a"}, {}, {"log": "b"}]) == {"log"}


def test_each_rank_reads_its_own_file_or_rank_0_in_a_resized_run() -> None:
    names = [per_rank.file_of(rank) for rank in range(2)]
    assert [per_rank.source(rank, 2, 2, names) for rank in range(2)] == [(names[0], False), (names[1], False)]
    assert [per_rank.source(rank, 4, 2, names) for rank in range(4)] == [(names[0], True)] * 4
    assert per_rank.source(0, 1, 2, names) == (names[0], True)
    assert per_rank.source(1, 2, 2, ["__0_0.distcp", ".metadata"])[0] == "", "of a checkpoint where all was the same"
