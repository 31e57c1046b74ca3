"""Numbers in the path or query of a request: jobs, incidents, versions."""

from __future__ import annotations

import re
from typing import Annotated

from fastapi import Path
from pydantic import BeforeValidator

MAX_PATH_NUMBER = 2**31 - 1  # the largest integer that the database's columns hold; Slurm's own numbers are far below


def require_digits(word: object) -> object:
    """Returns the value unchanged. Raises ValueError for text that is not plain digits: Pydantic would read 8_3, the
    third task of job 8, as 83."""
    if isinstance(word, str) and not re.fullmatch(r"0|[1-9][0-9]{0,18}", word):
        raise ValueError("not a number; for a task of an array use the job id and ?task=")
    return word


PathNumber = Annotated[int, BeforeValidator(require_digits), Path(ge=0, le=MAX_PATH_NUMBER)]  # of a job or an incident
