"""The hash of an audit line covers the line and the hash before it."""

from __future__ import annotations

from typing import Any

import pytest

from headway.domain.access.audit_chain import CHAINED_FIELDS, START, ChainCheck, check_line, line_hash


def chain(count: int) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = []
    previous = START
    for number in range(1, count + 1):
        line: dict[str, Any] = {
            "number": number, "at": 1_790_000_000.5 + number, "person": "ann", "action": "cancel", "target": "lab",
            "detail": {"job": number, "of": "bob"}, "address": "127.0.0.1", "result": "ok",
        }  # fmt: skip
        previous = line_hash(previous, line)
        lines.append(line | {"hash": previous})
    return lines


def check(lines: list[dict[str, Any]]) -> ChainCheck:
    state = ChainCheck()
    for line in lines:
        state = check_line(state, line)
        if state.broken_at:
            break
    return state


def test_hash_is_sha256_of_a_json_array() -> None:
    """The form is documented, so that other programs can check an export."""
    line = {
        "number": 1, "at": 2.5, "person": "ann", "action": "apply", "target": "lab", "detail": {"b": 1, "a": "é"},
        "address": "", "result": "ok",
    }  # fmt: skip
    # Computed by sha256sum from ["000...",1,2.5,"ann","apply","lab",{"a":"\\u00e9","b":1},"","ok"]
    assert line_hash(START, line) == "6345ca27994dd8fe5a0a5370fe4c3fb6694465de018bc45d9a9de06660afe7ef"


def test_intact_chain_matches() -> None:
    lines = chain(5)
    assert check(lines) == ChainCheck(5, 5, lines[-1]["hash"])


@pytest.mark.parametrize("name", [name for name in CHAINED_FIELDS if name != "number"])
def test_changed_field_breaks_the_chain_at_its_line(name: str) -> None:
    lines = chain(5)
    lines[2][name] = {"job": 99} if name == "detail" else 1.0 if name == "at" else "other"
    found = check(lines)
    assert (found.broken_at, found.fault) == (3, "line 3 was changed, or a line before it was replaced")


def test_replaced_hash_breaks_the_chain_at_the_next_line() -> None:
    lines = chain(5)
    lines[2]["detail"] = {"job": 99}
    lines[2]["hash"] = line_hash(lines[1]["hash"], lines[2])
    assert check(lines).broken_at == 4


def test_removed_line_breaks_the_chain() -> None:
    lines = chain(5)
    found = check([*lines[:1], *lines[2:]])
    assert (found.broken_at, found.fault) == (3, "line 2 is missing")
    assert check(lines[1:]).fault == "line 1 is missing"
