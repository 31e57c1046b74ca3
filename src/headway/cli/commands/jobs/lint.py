"""lint: finds mistakes in batch scripts, and corrects them. No server is needed without --on."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headway.cli import common
from headway.cli.output import formatting
from headway.cli.output.output_formats import Format, Output, print_json
from headway.cli.output.terminal import Terminal, detect_terminal, paint, without_control_characters, wrap_text
from headway.errors import NotFound, Refused

if TYPE_CHECKING:
    from headway.lint.findings import Finding
    from headway.schemas.base import FaultOut

_STYLES = {"error": "bad", "warning": "warn", "note": "dim"}
_INDENT = "    "


def lint(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Batch scripts; - for standard input.")],
    on: Annotated[
        str,
        typer.Option(
            "--on", metavar="CLUSTER", autocompletion=common.complete_cluster,
            help="Also check partitions, limits, folders and environments of this cluster, and ask its sbatch.",
        ),
    ] = "",
    fix: Annotated[bool, typer.Option("--fix", help="Write the corrected scripts.")] = False,
    output: Output = Format.table,
) -> None:  # fmt: skip
    """Find mistakes in batch scripts: lines that sbatch ignores, requests that contradict each other, lost work.

    Each finding has its line, its reason, and a correction where there is one. The exit code is 1 if there are errors or
    warnings.

    headway lint train.sbatch --on lab --fix"""
    from headway.lint.findings import apply_edits, unified_diff

    terminal = detect_terminal()
    rows: list[dict[str, Any]] = []
    left: list[Finding] = []
    fixable = 0
    for file in files:
        name, text = _read(file)
        findings, faults = _findings(text, on)
        if fix:
            better = text
            while (changed := apply_edits(better, findings)[0]) != better:
                better = changed
                findings, faults = _findings(better, on)
            if better != text and str(file) == "-":
                sys.stdout.write(better)
            elif better != text:
                file.write_text(better)
                if output is not Format.json:
                    _print_diff(unified_diff(name, text, better), terminal)
        left += findings
        fixable += sum(1 for finding in findings if finding.edits)
        rows.append({"file": name, "findings": [asdict(finding) for finding in findings],
                     "faults": [fault.model_dump() for fault in faults]})  # fmt: skip
        if output is not Format.json and not (fix and str(file) == "-"):
            for line in _lines(name, text if not fix else better, findings, faults, terminal):
                common.print_line(line)
    if output is Format.json:
        print_json(rows)
    elif not (fix and "-" in map(str, files)):
        common.print_line(_summary(left, fixable, sum(len(row["faults"]) for row in rows), len(files)))
    if any(row["faults"] for row in rows) or any(finding.level != "note" for finding in left):
        raise typer.Exit(1)


def _read(file: Path) -> tuple[str, str]:
    """Returns name and text of a script. Raises NotFound, and Refused for a file that is no text."""
    try:
        # Bytes first: reading as text would hide DOS line ends.
        data = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
    except OSError as error:
        raise NotFound(f"{file}: {error.strerror}", hint="name a batch script of this machine") from None
    try:
        return str(file), data.decode()
    except UnicodeDecodeError:
        raise Refused(f"{file}: not a text file", hint="lint reads the script, not the program") from None


def _findings(text: str, cluster: str) -> tuple[list[Finding], list[FaultOut]]:
    """Returns the findings in a script, and the faults that the cluster found. Faults are left out while the script
    has errors of its own, because they would be the same."""
    from headway.lint.findings import Edit, Finding, in_order, worst_level
    from headway.lint.rules import lint_script

    here = lint_script(text, folder_exists=lambda folder: Path(folder).is_dir())
    if not cluster or not text.strip():
        return here, []
    from headway.schemas.submission.submission_check import CheckJobIn
    from headway.schemas.submission.submit_request import SubmitIn

    answer = common.connect().jobs.check(cluster, CheckJobIn(submit=SubmitIn(script=text)))
    found = [
        Finding(
            one.rule, one.level, one.line, one.message, one.why,
            tuple(Edit(edit.first, edit.last, tuple(edit.lines)) for edit in one.edits),
        )
        for one in answer.findings
    ]  # fmt: skip
    return in_order(found), [] if worst_level(found) == "error" else answer.faults


def _lines(
    name: str, text: str, findings: Sequence[Finding], faults: Sequence[FaultOut], terminal: Terminal
) -> list[str]:
    out: list[str] = []
    for fault in faults:
        hint = f" ({fault.hint})" if fault.hint else ""
        out += [f"{name}: {paint('error', 'bad', terminal)}: {fault.path}: {fault.message}{hint}", ""]
    lines = text.split("\n")
    for finding in findings:
        rule = paint(f"[{finding.rule}]", "dim", terminal)
        message = without_control_characters(finding.message)
        out.append(f"{name}:{finding.line}: {paint(finding.level, _STYLES[finding.level], terminal)}: {message} {rule}")
        out += [
            paint(f"{_INDENT}{line}", "dim", terminal) for line in wrap_text(finding.why, terminal, indent=len(_INDENT))
        ]
        for edit in finding.edits:
            old = [f"- {line}" for line in lines[edit.first - 1 : edit.last]]
            for line in [*old, *(f"+ {line}" for line in edit.lines)][:12]:
                shown = without_control_characters(line)
                out.append(f"{_INDENT}{paint(shown, 'good' if line.startswith('+') else 'bad', terminal)}")
        out.append("")
    return out


def _print_diff(diff: str, terminal: Terminal) -> None:
    styles = {"+": "good", "-": "bad"}
    for line in diff.splitlines():
        common.print_line(paint(without_control_characters(line), styles.get(line[:1], "dim"), terminal))
    common.print_line()


def _summary(findings: Sequence[Finding], fixable: int, faults: int, files: int) -> str:
    counts = {level: sum(1 for finding in findings if finding.level == level) for level in _STYLES}
    counts["error"] += faults
    words = [formatting.plural(count, level) for level, count in counts.items() if count]
    if not words:
        return f"no findings in {formatting.plural(files, 'script')}"
    hint = f"; {fixable} can be corrected: --fix" if fixable else ""
    return f"{', '.join(words)}{hint}"
