import csv
import io

import pytest

from headway.schemas.billing import models_as_csv
from headway.schemas.billing.usage import UsageOut, UsageRow

FORMULA_STARTS = ["=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20"]


@pytest.mark.parametrize("start", FORMULA_STARTS)
def test_names_in_reports_are_quoted(start: str) -> None:
    fields = {name: 0 for name in UsageRow.model_fields if name != "by"}
    row = UsageRow.model_validate({**fields, "by": {"user": f"{start}x"}})
    found = UsageOut.model_construct(rows=[row])
    _, cells = csv.reader(io.StringIO(models_as_csv.to_csv(found), newline=""))
    assert cells[0] == f"'{start}x"
