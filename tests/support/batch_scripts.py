"""Batch scripts for the tests of lint."""

from __future__ import annotations

from headway.lint.findings import Finding, apply_edits
from headway.lint.rules import lint_script
from headway.lint.site_rules import Site


def script(*lines: str) -> str:
    """Returns a bash script with a time limit and these lines."""
    return "".join(f"{line}\n" for line in ("#!/bin/bash", "#SBATCH --time=10", *lines))


def found(text: str, site: Site | None = None) -> dict[str, int]:
    """Returns the line of each rule's first finding."""
    rows: dict[str, int] = {}
    for finding in lint_script(text, site):
        rows.setdefault(finding.rule, finding.line)
    return rows


def finding_of(rule: str, text: str, site: Site | None = None) -> Finding:
    """Returns the first finding of a rule."""
    return next(finding for finding in lint_script(text, site) if finding.rule == rule)


def fixed(rule: str, text: str, site: Site | None = None) -> str:
    """Returns the script as corrected by one rule, until it finds nothing more."""
    for _ in range(5):
        mine = [finding for finding in lint_script(text, site) if finding.rule == rule]
        text, applied = apply_edits(text, mine)
        if not applied:
            return text
    raise AssertionError(f"{rule} does not end")
