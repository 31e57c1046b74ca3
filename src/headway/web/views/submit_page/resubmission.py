"""What a resubmission changes: the lines of its script and its options, compared with those of the job that it was copied from.
Pure."""

from __future__ import annotations

import difflib
import json
from dataclasses import dataclass
from typing import Literal

from headway.web.views.submit_page.submit_form import SubmitForm

_CONTEXT = 2  # unchanged lines around a change
_MOST_LINES = 400
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
    except ValueError:
        return None
    if not isinstance(before, dict):
        return None
    found = list(_of_script(str(before.get("script", "")), draft.script))
    for name, title in _OPTIONS.items():
        old, new = str(before.get(name, "")), getattr(draft, name)
        if old != new:
            found += [DiffLine("place", title)]
            found += [DiffLine("removed", old)] if old else []
            found += [DiffLine("added", new)] if new else []
    return tuple(found[:_MOST_LINES])


def _of_script(old: str, new: str) -> list[DiffLine]:
    before, after, found = old.split("\n"), new.split("\n"), list[DiffLine]()
    for group in difflib.SequenceMatcher(None, before, after, autojunk=False).get_grouped_opcodes(_CONTEXT):
        found.append(DiffLine("place", f"line {group[0][3] + 1}"))
        for tag, first, last, first_new, last_new in group:
            if tag == "equal":
                found += [DiffLine("same", line) for line in before[first:last]]
                continue
            found += [DiffLine("removed", line) for line in before[first:last]]
            found += [DiffLine("added", line) for line in after[first_new:last_new]]
    return found
