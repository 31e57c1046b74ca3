"""--period: the month that a report covers."""

from __future__ import annotations

from typing import Annotated

import typer

Month = Annotated[str, typer.Option("--period", "-p", metavar="YYYY-MM", help="Month (default: the current one).")]
