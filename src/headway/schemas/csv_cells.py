"""Cells and lines of CSV that are safe in spreadsheets."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable

_FORMULA_STARTS = tuple("=+-@\t\r\n\uff1d\uff0b\uff0d\uff20")  # also the full-width forms


def safe_cell(value: object) -> object:
    """Returns the value of a CSV cell. Text that a spreadsheet would take for a formula gets an apostrophe in front,
    because names come from users."""
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA_STARTS) else value


def csv_line(cells: Iterable[object]) -> str:
    """Returns one CSV line that ends with CR LF. With that line end the writer quotes cells that contain CR or LF."""
    out = io.StringIO()
    csv.writer(out).writerow(cells)
    return out.getvalue()
