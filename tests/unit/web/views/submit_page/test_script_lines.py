"""Which line of a script the submit page marks for a fault."""

from __future__ import annotations

import pytest

from headway.schemas.base import FaultOut
from headway.schemas.submission.submission_check import LintFindingOut
from headway.web.views.submit_page.script_lines import fault_line, marked_lines

SCRIPT = "#!/bin/bash\n#SBATCH --time=10\n#SBATCH -N 2\n#SBATCH --nodes=99 --gres=gpu:8\n#SBATCH --fast\nsrun a -p b\n"


@pytest.mark.parametrize(
    ("path", "message", "line"),
    [
        ("nodes", "the job wants 99 nodes", 4),
        ("time", "too long", 2),
        ("gpus", "a node has 4", 4),
        ("partition", "partition b does not exist", 0),  # -p in a line of the program is no option of sbatch
        ("script", "sbatch: unrecognized option '--fast'", 5),
        ("script", "line 6: the value of KEY was removed", 6),
        ("script", "line 60: beyond the end", 0),
        ("script", "the first line must name an interpreter", 1),
        ("args", "a quote may be missing", 0),
    ],
)
def test_line_of_a_fault(path: str, message: str, line: int) -> None:
    assert fault_line(SCRIPT, FaultOut(path=path, message=message), {}) == line


def test_a_value_of_the_form_has_no_line() -> None:
    assert fault_line(SCRIPT, FaultOut(path="nodes", message="too many"), {"nodes": "99"}) == 0


def test_faults_and_errors_of_lint_hide_warnings_and_notes_are_not_marked() -> None:
    def finding(line: int, level: str) -> LintFindingOut:
        return LintFindingOut.model_validate({"rule": "x", "level": level, "line": line, "message": "m", "why": "w"})

    findings = [
        finding(1, "note"),
        finding(3, "warning"),
        finding(4, "warning"),
        finding(6, "error"),
        finding(6, "warning"),
    ]
    marks = marked_lines(SCRIPT, [FaultOut(path="nodes", message="too many")], findings, {})
    assert marks == {3: "warning", 4: "error", 6: "error"}
