"""What a resubmission changes: the lines of its script and its options, compared with those of the job that it was copied from.
Pure."""

from __future__ import annotations

import difflib
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from headway.web.views.submit_page.submit_form import SubmitForm

_CONTEXT = 2  # unchanged lines around a change
_MOST_LINES = 400
_MOST_COMPARED = 2000  # lines, both scripts together
_MOST_PAIRS = 50_000  # of equal lines: the time of a comparison grows with them
_OPTIONS = {
    "args": "arguments", "flags": "sbatch flags", "chdir": "folder", "nodes": "nodes", "gpus": "GPUs per node",
    "time": "time limit", "partition": "partition", "account": "team", "job_name": "name",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class DiffLine:
    """A line of the comparison: added, removed, unchanged, or the place in the script ("line 12")."""

    kind: Literal["added", "removed", "same", "place"]
    text: str


def copied_from(draft: SubmitForm) -> str:
    """Returns the values to compare with later, as JSON for a hidden field."""
    return json.dumps({"script": draft.script, **{name: getattr(draft, name) for name in _OPTIONS}})


def changes(draft: SubmitForm) -> tuple[DiffLine, ...] | None:
    """Returns the changes of a form that was filled with another job, () if there are none; None for any other form, and if
    the values to compare with can't be read."""
    if not draft.before or draft.how != "script":
        return None
    try:
        before = json.loads(draft.before)
    except (ValueError, RecursionError):
        return None
    if not isinstance(before, dict):
        return None
    found = list[DiffLine]()
    for name, title in _OPTIONS.items():
        old, new = str(before.get(name, "")), getattr(draft, name)
        if old != new:
            found += [DiffLine("place", title)]
            found += [DiffLine("removed", old)] if old else []
            found += [DiffLine("added", new)] if new else []
    found += _of_script(str(before.get("script", "")).split("\n"), draft.script.split("\n"))
    left_out = len(found) - _MOST_LINES
    return (*found[:_MOST_LINES], DiffLine("place", f"and {left_out} more lines")) if left_out > 0 else tuple(found)


def _of_script(before: Sequence[str], after: Sequence[str]) -> list[DiffLine]:
    head = _equal_lines(before, after)
    tail = _equal_lines(before[head:][::-1], after[head:][::-1])
    first = max(0, head - _CONTEXT)
    before, after = (lines[first : len(lines) - max(0, tail - _CONTEXT)] for lines in (before, after))
    if len(before) + len(after) > _MOST_COMPARED or _equal_pairs(before, after) > _MOST_PAIRS:
        number = max(len(before), len(after)) - (head - first) - min(tail, _CONTEXT)
        return [DiffLine("place", f"the script differs in up to {number} lines, too many to compare")]
    found = list[DiffLine]()
    for group in difflib.SequenceMatcher(None, before, after, autojunk=False).get_grouped_opcodes(_CONTEXT):
        found.append(DiffLine("place", f"line {first + group[0][3] + 1}"))
        for tag, start, end, start_new, end_new in group:
            if tag == "equal":
                found += [DiffLine("same", line) for line in before[start:end]]
                continue
            found += [DiffLine("removed", line) for line in before[start:end]]
            found += [DiffLine("added", line) for line in after[start_new:end_new]]
    return found


def _equal_lines(before: Sequence[str], after: Sequence[str]) -> int:
    """Returns how many lines at the beginning are equal."""
    pairs = enumerate(zip(before, after, strict=False))
    return next((i for i, (old, new) in pairs if old != new), min(len(before), len(after)))


def _equal_pairs(before: Sequence[str], after: Sequence[str]) -> int:
    new = Counter(after)
    return sum(count * new[line] for line, count in Counter(before).items())
