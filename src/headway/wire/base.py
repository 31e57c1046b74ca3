"""What every message of the API is made of, and its errors."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

API_PREFIX = "/api/v1"


class Wire(BaseModel):
    """Answers: lenient, so that an older client reads a newer server's."""

    model_config = ConfigDict(extra="ignore")


class Ask(BaseModel):
    """Requests: strict."""

    model_config = ConfigDict(extra="forbid")


# --- errors


class FaultOut(Wire):
    path: str = ""
    message: str
    hint: str = ""
    level: str = "error"


class ErrorOut(Wire):
    """What went wrong, inside another answer: an operation's end, a stream's last word."""

    kind: str
    message: str
    hint: str = ""
    faults: list[FaultOut] = []


class Problem(Wire):
    """Body of every answer that is not 2xx (RFC 9457, application/problem+json). `kind` is what programs tell errors apart
    by, `detail` what happened and where, `hint` what to do, `faults` every one found in what was sent."""

    type: str  # where this kind is explained
    title: str
    status: int
    detail: str
    kind: str
    hint: str = ""
    faults: list[FaultOut] = []


PROBLEM_JSON = "application/problem+json"
IDEMPOTENCY_KEY = "idempotency-key"  # header of a POST that is to be done once
