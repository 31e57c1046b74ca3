"""Base classes of API messages, and error responses."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, model_validator

API_PREFIX = "/api/v1"


# Bounds of every request, checked before anything in it is
MOST_NAMES = 50_000  # of a mapping
MOST_ITEMS = 100_000  # of a list
MOST_VALUES = 400_000  # of the whole request


class ResponseModel(BaseModel):
    """Base class of responses. Unknown fields are ignored, so that an older client can read a newer server's responses."""

    model_config = ConfigDict(extra="ignore", from_attributes=True)


class RequestModel(BaseModel):
    """Base class of requests. Unknown fields are refused, and so is text that a database, a file name or a program
    argument cannot hold."""

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _texts(cls, sent: Any) -> Any:
        left, count = [("", sent)], 0
        while left:
            place, value = left.pop()
            if isinstance(value, dict | list):
                most = MOST_NAMES if isinstance(value, dict) else MOST_ITEMS
                count += len(value)
                if len(value) > most or count > MOST_VALUES:
                    what = f"{most} entries" if len(value) > most else f"{MOST_VALUES} values together"
                    raise ValueError(f"{place or 'it'} has more than {what}")
            if isinstance(value, str):
                if fault := text_fault(value):
                    raise ValueError(f"{place or 'it'} {fault}")
            elif isinstance(value, dict):
                if fault := next(filter(None, map(text_fault, map(str, value))), ""):
                    raise ValueError(f"a name in {place or 'it'} {fault}")
                left += [(f"{place}.{name}" if place else str(name), item) for name, item in value.items()]
            elif isinstance(value, list):
                left += [(place, item) for item in value]
        return sent


def text_fault(text: str) -> str:
    """Returns why the text cannot be stored or passed on (a NUL byte, or a lone surrogate), or "" if it can."""
    if "\0" in text:
        return "contains a NUL byte"
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            return "contains invalid Unicode (a lone surrogate)"
    return ""


# --- errors


class FaultOut(ResponseModel):
    """One fault in a request or file: where it is, what is wrong, and what to do."""

    path: str = ""
    message: str
    hint: str = ""
    level: str = "error"


class ErrorOut(ResponseModel):
    """An error inside another response, such as the result of an operation or the last frame of a stream."""

    kind: str
    message: str
    hint: str = ""
    faults: list[FaultOut] = []

    @property
    def first_line(self) -> str:
        """Returns the first non-blank line of the message, or the kind of error if the message is blank; never ""."""
        return next((line for line in self.message.splitlines() if line.strip()), self.kind)


class Problem(ResponseModel):
    """Body of every response that is not 2xx (RFC 9457, application/problem+json). Programs tell errors apart by
    `kind`. `detail` says what happened and where, `hint` what to do, and `faults` lists all faults found in the
    request."""

    type: str  # address of the page that explains this kind
    title: str
    status: int
    detail: str
    kind: str
    hint: str = ""
    faults: list[FaultOut] = []


PROBLEM_JSON = "application/problem+json"
IDEMPOTENCY_KEY = "idempotency-key"  # header of a POST that must be carried out only once
