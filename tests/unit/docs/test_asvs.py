"""The page of security requirements has each requirement of OWASP ASVS 5.0.0, levels 1 and 2, and names tests that exist."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.unit.docs.test_docs import DOCS, ROOT

PAGE = DOCS / "reference" / "asvs.md"
STATES = ("met", "not applicable", "open")
# Requirements of level 1, and of level 2, of each chapter of ASVS 5.0.0
COUNTS = {
    1: (8, 19), 2: (4, 7), 3: (8, 11), 4: (2, 8), 5: (4, 5), 6: (13, 22), 7: (6, 12), 8: (4, 3), 9: (4, 3), 10: (5, 24),
    11: (3, 11), 12: (3, 6), 13: (1, 12), 14: (2, 7), 15: (3, 10), 16: (0, 16), 17: (0, 7),
}  # fmt: skip


@dataclass(frozen=True)
class Row:
    """A requirement's row of the page."""

    number: str
    level: int
    state: str
    evidence: str

    @property
    def chapter(self) -> int:
        return int(self.number.partition(".")[0])

    @property
    def tests(self) -> list[tuple[str, str]]:
        """(path, test) of each test that the row names."""
        return re.findall(r"`(tests/[\w/.]+)::(\w+)`", self.evidence)

    @property
    def fault(self) -> str:
        """What is wrong with the row; "" if nothing is."""
        if self.state not in STATES:
            return f"no state {self.state!r}"
        if not self.evidence:
            return "no evidence"
        if self.state == "met" and not self.tests:
            return "met without a test"
        for path, test in self.tests:
            if test not in names_of_tests(ROOT / path):
                return f"no test {test} in {path}"
        missing = [path for path in self.paths if not (ROOT / path).exists()]
        return f"no {missing[0]}" if missing else ""

    @property
    def paths(self) -> list[str]:
        """Files and folders of the source tree that the row names, other than tests."""
        return re.findall(r"`((?:src|node|requirements)/[\w/.-]+)`", self.evidence)


@cache
def names_of_tests(path: Path) -> frozenset[str]:
    """Names of the tests in a file; empty if there is no such file."""
    if not path.is_file():
        return frozenset()
    return frozenset(re.findall(r"^ *(?:async )?def (test_\w+)\(", path.read_text(encoding="utf-8"), re.MULTILINE))


def rows(text: str) -> list[Row]:
    found = re.findall(r"^\| (\d+\.\d+\.\d+) \| (\d) \| [^|]+ \| ([^|]+) \| ([^|]*) \|$", text, re.MULTILINE)
    return [Row(number, int(level), state, evidence) for number, level, state, evidence in found]


ROWS = rows(PAGE.read_text(encoding="utf-8"))


def test_every_row_has_a_state_and_existing_tests() -> None:
    assert {row.number: row.fault for row in ROWS if row.fault} == {}


def test_each_requirement_is_listed_once() -> None:
    numbers = [row.number for row in ROWS]
    assert [number for number, count in Counter(numbers).items() if count > 1] == []
    assert numbers == sorted(numbers, key=lambda number: [int(part) for part in number.split(".")])
    counted = Counter((row.chapter, row.level) for row in ROWS)
    assert {chapter: (counted[chapter, 1], counted[chapter, 2]) for chapter in COUNTS} == COUNTS
    assert len(ROWS) == sum(map(sum, COUNTS.values())) == 253


def test_summary_counts_the_rows() -> None:
    text = PAGE.read_text(encoding="utf-8")
    counted = Counter((row.chapter, row.state) for row in ROWS)
    for chapter in COUNTS:
        by_state = [counted[chapter, state] for state in STATES]
        shown = re.search(rf"^\| \[{chapter} [^|]+\| ([\d |]+) \|$", text, re.MULTILINE)
        assert shown
        assert [int(cell) for cell in shown[1].split("|")] == [*by_state, sum(by_state)], chapter
    totals = [sum(row.state == state for row in ROWS) for state in STATES]
    assert "| **All** | " + " | ".join(f"**{count}**" for count in [*totals, len(ROWS)]) + " |" in text


def test_check_detects_wrong_rows() -> None:
    good = "`tests/unit/docs/test_asvs.py::test_check_detects_wrong_rows`"
    wrong = {
        "done": good,
        "met": "`src/headway/errors.py`",
        "met, no test": "`src/headway/errors.py`",
        "open": "",
        "not applicable": "`src/headway/no_such_module.py`",
    }
    text = "".join(f"| 1.1.{number} | 1 | x | {state} | {wrong[state]} |\n" for number, state in enumerate(wrong))
    assert len(rows(text)) == 5
    assert [row.number for row in rows(text) if not row.fault] == []
    assert Row("1.1.1", 1, "met", good).fault == ""
    assert Row("1.1.1", 1, "met", good.replace("wrong", "all")).fault
    assert Row("1.1.1", 1, "met", good.replace("asvs.py", "none.py")).fault
