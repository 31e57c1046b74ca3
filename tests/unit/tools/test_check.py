"""The quick checks run every unit test once, in parts of about the same size."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools import check

from tests.support.paths import ROOT


@pytest.mark.parametrize("count", [1, 2, 8])
def test_every_file_of_unit_tests_is_in_one_part(count: int) -> None:
    parts = check.parts_of_tests(count)
    files = [file for part in parts for file in part]
    assert sorted(files) == sorted(str(path.relative_to(ROOT)) for path in Path(ROOT, "tests/unit").rglob("test_*.py"))
    assert len(parts) == count
    assert max(map(len, parts)) < 2 * min(map(len, parts))


def test_numbers_of_all_parts_are_added() -> None:
    outputs = [
        ".....\n3000 passed, 1 skipped in 40.20s",
        "..\n2806 passed, 1 skipped in 41.00s (0:00:41)",
        "F\n1 failed, 2 passed in 1.00s",
    ]
    assert check.summary(outputs) == "5808 passed, 2 skipped, 1 failed"
