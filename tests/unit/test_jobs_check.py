"""What sbatch --test-only says of a job's start."""

from __future__ import annotations

import pytest

from headway.jobs.check import start_of

NOW = 1_790_000_000.0
SAID = "sbatch: Job 9 to start at {} using 8 processors on nodes lab-1-[1-2] in partition train"


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (SAID.format(int(NOW) + 60), (int(NOW) + 60, "lab-1-[1-2]", "train")),
        (SAID.format(3_145_000_000), (0, "", "train")),  # the end of the spare nodes' reservation
        (SAID.format("2026-11-21T10:00:00"), (0, "lab-1-[1-2]", "train")),  # an old Slurm, which knows no %s
        ("Submitted batch job 9", (0, "", "")),
    ],
)
def test_a_start_is_taken_from_the_answer_where_it_is_one(said: str, expected: tuple[int, str, str]) -> None:
    assert start_of(said, NOW) == expected
