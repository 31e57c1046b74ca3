"""Labels of jobs, of tasks of arrays and of tasks that wait."""

from __future__ import annotations

import pytest

from headway.domain.slurm.job_label import job_label


@pytest.mark.parametrize(
    ("array_job_id", "array_task", "label"),
    [
        (0, "", "112"),
        (104, "", "112"),
        (104, "7", "104_7"),
        (104, "8-99", "104_[8-99]"),
        (104, "8-99%2", "104_[8-99%2]"),
    ],
)
def test_label_is_the_job_or_its_array_and_task(array_job_id: int, array_task: str, label: str) -> None:
    assert job_label(112, array_job_id, array_task) == label
