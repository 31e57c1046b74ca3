"""What a rule finds in a script, and how a script is corrected."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

# error: sbatch refuses the script. warning: the job does something else than the script says. note: worth knowing.
Level = Literal["error", "warning", "note"]
LEVELS: tuple[Level, ...] = ("error", "warning", "note")
_OPENS = re.compile(r"(?:\b(?:then|do|else|in)|[({)\\]|&&|\|\|)$")


@dataclass(frozen=True, slots=True)
class Edit:
    """Replaces the lines `first` to `last` (from 1, both included) by `lines`. With `last` = `first` - 1 the lines are
    inserted before `first`."""

    first: int
    last: int
    lines: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding of one rule."""

    rule: str  # name of the rule: "late-directive"
    level: Level
    line: int  # from 1
    message: str
    why: str
    edits: tuple[Edit, ...] = ()


def replace_line(number: int, text: str) -> tuple[Edit, ...]:
    """Returns the edit that replaces one line."""
    return (Edit(number, number, (text,)),)


def delete_line(number: int) -> tuple[Edit, ...]:
    """Returns the edit that deletes one line."""
    return (Edit(number, number),)


def delete_command(lines: Sequence[str], number: int) -> tuple[Edit, ...]:
    """Returns the edit that deletes a line with one command. () where it follows a line that opens a branch, a loop or a
    list: it may be the only command there, and the shell does not allow none."""
    before = (line.split("#")[0].strip() for line in reversed(lines[: number - 1]))
    return () if _OPENS.search(next(filter(None, before), "")) else delete_line(number)


def insert_before(number: int, *lines: str) -> tuple[Edit, ...]:
    """Returns the edit that inserts lines before a line."""
    return (Edit(number, number - 1, lines),)


def apply_edits(script: str, findings: Iterable[Finding]) -> tuple[str, list[Finding]]:
    """Returns the corrected script, and the findings whose edits were applied. Of two findings that change the same
    lines only the first is applied; the next run applies the other."""
    lines, ending = script.split("\n"), "\n" if script.endswith("\n") else ""
    if ending:
        lines.pop()
    chosen: list[Finding] = []
    taken: set[int] = set()
    for finding in findings:
        touched = {number for edit in finding.edits for number in range(edit.first, edit.last + 1)}
        if finding.edits and not touched & taken:
            chosen.append(finding)
            taken |= touched
    edits = [edit for finding in chosen for edit in finding.edits]
    # From the end to the beginning, so that line numbers stay valid. At one line it is replaced before others are
    # inserted before it, the last one first, so that they keep their order.
    order = sorted(range(len(edits)), key=lambda at: (edits[at].first, edits[at].last, at), reverse=True)
    for edit in (edits[at] for at in order):
        lines[edit.first - 1 : edit.last] = edit.lines
    return "\n".join(lines) + (ending or ("\n" if chosen else "")), chosen


def unified_diff(name: str, before: str, after: str) -> str:
    """Returns the change of a script as a unified diff, "" if there is none."""
    old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    return "".join(
        line if line.endswith("\n") else f"{line}\n" for line in difflib.unified_diff(old, new, name, f"{name} (fixed)")
    )


def in_order(findings: Iterable[Finding]) -> list[Finding]:
    """Returns the findings by line, errors first within a line."""
    return sorted(findings, key=lambda finding: (finding.line, LEVELS.index(finding.level), finding.rule))


def worst_level(findings: Sequence[Finding]) -> Level | None:
    """Returns the most serious level among the findings, None without findings."""
    return min((finding.level for finding in findings), key=LEVELS.index, default=None)
