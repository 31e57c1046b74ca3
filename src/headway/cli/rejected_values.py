"""Messages for command lines whose values a request does not accept. Imported only after an error."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

OPTION_OF_FIELD = {
    "idle_minutes": "idle",
    "in_s": "in",
    "label": "name",
}  # field of a request -> option, where the names differ
_FORM = ("string_pattern_mismatch", "string_unicode")


def invalid_request_lines(error: Exception, argv: Sequence[str]) -> list[str]:
    """Returns a line for each invalid value that was typed; [] when the error is a bug."""
    kind = type(error).__name__  # pydantic is not imported for this
    if kind == "ValidationError" and str(getattr(error, "title", "")).endswith("In"):  # a request, never an answer
        faults: Any = error
        return _no_text(argv) or [_line(fault, argv) for fault in faults.errors(include_url=False)]
    if kind in ("UnicodeEncodeError", "PydanticSerializationError"):
        return _no_text(argv)
    return []


def _no_text(argv: Sequence[str]) -> list[str]:
    return [f"{word!a} is not UTF-8" for word in argv if not _utf8(word)]


def _line(fault: Any, argv: Sequence[str]) -> str:
    why = fault["msg"].removeprefix("Value error, ").removeprefix("Input ").removeprefix("String ")
    if fault["type"] in _FORM:
        why = "has the wrong format"
    path = [str(part) for part in fault["loc"] if isinstance(part, str)]
    name = "_".join(path[:2] if path[:1] == ["container"] else path[:1])
    option = f"--{OPTION_OF_FIELD.get(name, name).replace('_', '-')}"
    typed = bool(name) and any(word.partition("=")[0] == option for word in argv)
    given = fault["input"]
    plain = isinstance(given, str | int | float) and any(str(given) in word for word in argv)  # else it may be a secret
    shown = ascii(given)[:200] if plain else ""
    return f"{' '.join(filter(None, (option if typed else name.replace('_', ' '), shown)))}: {why}".removeprefix(": ")


def _utf8(word: str) -> bool:
    try:
        word.encode()
    except UnicodeEncodeError:
        return False
    return True
