"""Text that a spreadsheet would take for a formula is quoted; other cells stay as they are."""

import pytest

from headway.schemas import csv_cells

FORMULA_STARTS = ["=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20"]


@pytest.mark.parametrize("start", FORMULA_STARTS)
def test_text_that_a_spreadsheet_takes_for_a_formula_is_quoted(start: str) -> None:
    assert csv_cells.safe_cell(f"{start}1+1") == f"'{start}1+1"


@pytest.mark.parametrize("value", ["", "lab", "a=b", "'=1", -1.5, 0, None])
def test_other_cells_stay_as_they_are(value: object) -> None:
    assert csv_cells.safe_cell(value) == value
