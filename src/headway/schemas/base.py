"""Base classes of API messages, and error responses."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, model_validator

API_PREFIX = "/api/v1"


class Wire(BaseModel):
    """Answers: lenient, so that an older client reads a newer server's."""

    model_config = ConfigDict(extra="ignore", from_attributes=True)


class Ask(BaseModel):
    """Requests: strict. No text of theirs holds what a database, a file's name or a program's argument can't."""

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _texts(cls, sent: Any) -> Any:
        left = [("", sent)]
        while left:
            place, value = left.pop()
            if isinstance(value, str):
                if fault := text_fault(value):
                    raise ValueError(f"{place or 'it'} {fault}")
            elif isinstance(value, dict):
                if fault := next(filter(None, map(text_fault, map(str, value))), ""):
                    raise ValueError(f"a name in {place or 'it'} {fault}")
                left += [(f"{place}.{name}" if place else str(name), one) for name, one in value.items()]
            elif isinstance(value, list):
                left += [(place, one) for one in value]
        return sent


def text_fault(text: str) -> str:
    """Why a text can't be kept or handed on; "" for one that can."""
    if "\0" in text:
        return "holds a NUL byte"
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            return "holds half a character (a surrogate alone)"
    return ""


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
