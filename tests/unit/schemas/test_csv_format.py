import csv
import io

import pytest

from headway.schemas import csv_format
from headway.schemas.billing import UsageOut, UsageRow

FORMULA_STARTS = ["=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20"]


@pytest.mark.parametrize("start", FORMULA_STARTS)
def test_text_that_a_spreadsheet_takes_for_a_formula_is_quoted(start: str) -> None:
    assert csv_format.safe_cell(f"{start}1+1") == f"'{start}1+1"


@pytest.mark.parametrize("value", ["", "lab", "a=b", "'=1", -1.5, 0, None])
def test_other_cells_stay_as_they_are(value: object) -> None:
    assert csv_format.safe_cell(value) == value


@pytest.mark.parametrize("start", FORMULA_STARTS)
def test_names_in_reports_are_quoted(start: str) -> None:
    fields = {name: 0 for name in UsageRow.model_fields if name != "by"}
    row = UsageRow.model_validate({**fields, "by": {"user": f"{start}x"}})
    found = UsageOut.model_construct(rows=[row])
    _, cells = csv.reader(io.StringIO(csv_format.to_csv(found), newline=""))
    assert cells[0] == f"'{start}x"
