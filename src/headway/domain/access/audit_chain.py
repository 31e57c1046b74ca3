"""The hash chain of the audit trail. The hash of a line covers the line and the hash of the line before it, so a line
that is changed, inserted or removed later no longer matches the lines after it. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

START = "0" * 64  # stands for the hash before the first line
CHAINED_FIELDS = ("number", "at", "person", "action", "target", "detail", "address", "result")


@dataclass(frozen=True, slots=True)
class ChainCheck:
    """The result of a check of the chain. `number` and `hash` are of the last line that was read (0 and START without
    lines); `broken_at` is the first line that does not match, 0 if all do, and `fault` says what is wrong with it."""

    lines: int = 0
    number: int = 0
    hash: str = START
    broken_at: int = 0
    fault: str = ""


def line_hash(previous: str, line: Mapping[str, Any]) -> str:
    """Returns the SHA-256, in hexadecimal, of `previous` (the hash of the line before) and the CHAINED_FIELDS of a line
    as a JSON array with sorted keys and without spaces."""
    values = [line[name] for name in CHAINED_FIELDS]
    text = json.dumps([previous, *values], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def check_line(before: ChainCheck, line: Mapping[str, Any]) -> ChainCheck:
    """Returns the state of the check after one more line, which has CHAINED_FIELDS and `hash`."""
    number, found = int(line["number"]), str(line["hash"])
    fault = ""
    if number != before.number + 1:
        fault = f"line {before.number + 1} is missing"
    elif line_hash(before.hash, line) != found:
        fault = f"line {number} was changed, or a line before it was replaced"
    return ChainCheck(before.lines + 1, number, found, number if fault else 0, fault)
