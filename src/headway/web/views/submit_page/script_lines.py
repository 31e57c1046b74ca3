"""Lines of a script that the submit page marks: those with faults, and those that lint found."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from headway.schemas.base import FaultOut
from headway.schemas.submission.submission_check import LintFindingOut

# Field of a fault -> options of #SBATCH lines that set it.
_OPTIONS = {
    "partition": ("partition", "p"),
    "account": ("account", "A"),
    "nodes": ("nodes", "N"),
    "gpus": ("gpus-per-node", "gpus-per-task", "gpus", "gres", "G"),
    "cpus": ("cpus-per-task", "ntasks-per-node", "ntasks", "c", "n"),
    "memory": ("mem", "mem-per-cpu", "mem-per-gpu"),
    "time": ("time", "t"),
    "name": ("job-name", "J"),
    "after": ("dependency", "d"),
}
_NUMBERED = re.compile(r"line (\d+):")
_OPTION = re.compile(r"(?<![\w-])--?[A-Za-z][\w-]*")


def fault_line(script: str, fault: FaultOut, form: Mapping[str, str]) -> int:
    """Returns the number of the script's line that causes the fault, from 1; 0 if it is not known. `form`: options that
    the form's fields set, which replace those of the script."""
    lines = script.split("\n")
    if numbered := _NUMBERED.match(fault.message):
        return int(numbered[1]) if int(numbered[1]) <= len(lines) else 0
    if fault.path == "script":
        if "first line" in fault.message:
            return 1 if script.strip() else 0
        named = _OPTION.findall(fault.message)
        options = {number: [word.partition("=")[0] for word in line.split()] for number, line in _directives(lines)}
        return next((number for number, words in options.items() if any(name in words for name in named)), 0)
    if form.get(fault.path):
        return 0
    found = 0
    for option in _OPTIONS.get(fault.path, ()):
        spelled = re.compile(rf"(?<!\S)--{option}(?=[=\s]|$)" if len(option) > 1 else rf"(?<!\S)-{option}")
        found = found or max((n for n, line in _directives(lines) if spelled.search(line)), default=0)
    return found


def _directives(lines: Iterable[str]) -> list[tuple[int, str]]:
    return [(number, line) for number, line in enumerate(lines, start=1) if line.startswith("#SBATCH")]


def marked_lines(
    script: str, faults: Iterable[FaultOut], findings: Sequence[LintFindingOut], form: Mapping[str, str]
) -> dict[int, str]:
    """Returns the marked lines with their level: error or warning."""
    marks: dict[int, str] = {one.line: "warning" for one in findings if one.level == "warning"}
    marks |= {one.line: "error" for one in findings if one.level == "error"}
    marks |= {fault_line(script, fault, form): "error" for fault in faults}
    return {line: level for line, level in marks.items() if line}
