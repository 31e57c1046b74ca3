"""Looks for known vulnerabilities in what Headway installs: `make audit`, `python tools/audit.py --help`.

Python packages of requirements/constraints.txt (pip-audit), browser libraries of package-lock.json (npm audit), and
Debian packages of the node image (Debian's security tracker). requirements/audit-ignore.yaml lists what is not reported.

Ends with 0 if no advisory can be fixed by an update, 1 if one can, 2 for wrong input, and 3 if a source did not answer and
the others have nothing to fix: then it is not known whether there are vulnerabilities."""

from __future__ import annotations

import argparse
import asyncio
import datetime
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import httpx

sys.path.insert(0, str(Path(__file__).resolve().parent))
from packaging.utils import canonicalize_name

from advisories import (
    Finding,
    InvalidIgnoreList,
    Unavailable,
    debian_findings,
    debian_sources,
    npm_findings,
    python_findings,
    read_ignore_list,
)
from assets import AssetsError, npm_command
from headway.catalog.node_images import DEFAULT_IMAGE
from headway.errors import HeadwayError
from headway.images.image_sbom import image_sbom
from sbom import LOCK, NPM_LOCK, ROOT, locked_packages

TRACKER = "https://security-tracker.debian.org/tracker/data/json"
IGNORED = ROOT / "requirements" / "audit-ignore.yaml"
FIXABLE, WRONG_INPUT, INCOMPLETE = 1, 2, 3
_TIMEOUT_S = 300


def read_json(place: str, what: str) -> Any:
    """Returns the JSON of a file or URL. Raises Unavailable."""
    try:
        if place.startswith(("http://", "https://")):
            answer = httpx.get(place, follow_redirects=True, timeout=_TIMEOUT_S)
            answer.raise_for_status()
            return answer.json()
        return json.loads(Path(place).read_text(encoding="utf-8"))
    except (httpx.HTTPError, OSError) as error:
        raise Unavailable(f"{what} did not answer: {place}: {error}") from None
    except ValueError:
        raise Unavailable(f"{what} sent no JSON: {place}") from None


def _report_of(argv: Sequence[str], what: str, env: dict[str, str] | None = None) -> Any:
    """Returns the JSON that a program prints, whatever its exit code, which says whether there are findings. Raises
    Unavailable."""
    try:
        ran = subprocess.run(
            argv, cwd=ROOT, env={**os.environ, **(env or {})}, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False,
        )  # fmt: skip
        return json.loads(ran.stdout)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"{what} did not end: {error}") from None
    except ValueError:
        lines = (ran.stderr or ran.stdout).strip().splitlines() or ["it printed nothing"]
        raise Unavailable(f"{what} printed no report: {lines[-1][-300:]}") from None


def audit_python(report: str) -> list[Finding]:
    """Returns the findings on Python packages. `report`: a file or URL with the output of pip-audit, "" runs it."""
    locked = [found for found, _ in locked_packages(LOCK.read_text())]
    pinned: dict[str, set[str]] = {}
    for found in locked:
        pinned.setdefault(canonicalize_name(found.name), set()).add(str(found.specifier).removeprefix("=="))
    if report:
        return python_findings(read_json(report, "the report on Python packages"), pinned)
    needed_here = {canonicalize_name(found.name) for found in locked if found.marker is None or found.marker.evaluate()}
    argv = [sys.executable, "-m", "pip_audit", "--disable-pip", "--require-hashes", "--progress-spinner=off"]
    printed = _report_of([*argv, "--format=json", "--requirement", str(LOCK)], "pip-audit")
    return python_findings(printed, {name: versions for name, versions in pinned.items() if name in needed_here})


def audit_npm(report: str) -> list[Finding]:
    """Returns the findings on browser libraries. `report`: a file or URL with the output of npm audit, "" runs it."""
    lock = json.loads(NPM_LOCK.read_text())
    if report:
        return npm_findings(read_json(report, "the report of npm audit"), lock)
    try:
        argv, env = npm_command()
    except AssetsError as error:
        raise Unavailable(str(error)) from None
    with tempfile.TemporaryDirectory() as folder:
        for name in ("package.json", "package-lock.json"):
            (Path(folder) / name).write_bytes((ROOT / name).read_bytes())
        printed = _report_of([*argv, "audit", "--package-lock-only", "--json", "--prefix", folder], "npm audit", env)
    return npm_findings(printed, lock)


def audit_debian(tracker: str, sbom: str) -> list[Finding]:
    """Returns the findings on the packages of a node image. `tracker`: file or URL with the JSON of Debian's security
    tracker; `sbom`: file or URL with the image's bill of materials, "" reads the image on this machine."""
    if sbom:
        suite, sources = debian_sources(read_json(sbom, "the bill of materials"))
    else:
        try:
            suite, sources = debian_sources(json.loads(asyncio.run(image_sbom(DEFAULT_IMAGE))))
        except HeadwayError as error:
            raise Unavailable(f"{error.message}; give --image-sbom FILE, or --skip debian") from None
    return debian_findings(read_json(tracker, "Debian's security tracker"), suite, sources, is_older)


@cache
def is_older(version: str, other: str) -> bool:
    """Returns whether a Debian version is older than another. Raises Unavailable."""
    try:
        ran = subprocess.run(["dpkg", "--compare-versions", version, "lt", other], check=False, timeout=60)
    except OSError as error:
        raise Unavailable(f"Debian versions can't be compared: dpkg: {error.strerror}") from None
    return ran.returncode == 0


def report_lines(findings: Sequence[Finding]) -> list[str]:
    """Returns the lines of the table, with its head; [] without findings."""
    head = ("PACKAGE", "INSTALLED", "FIXED IN", "ADVISORY", "SEVERITY", "SOURCE")
    rows = [(one.package, one.installed, one.fixed or "-", one.advisory, one.severity, one.source) for one in findings]
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    cells = ([word.ljust(width) for word, width in zip(row, widths, strict=True)] for row in (head, *rows))
    return ["  ".join(row).rstrip() for row in cells] if rows else []


def audit(
    sources: dict[str, Callable[[], list[Finding]]], ignore_list: str, today: datetime.date, *, everything: bool
) -> int:
    """Prints what the sources find and returns the exit code. Raises InvalidIgnoreList."""
    ignored = read_ignore_list(ignore_list)
    findings: list[Finding] = []
    audited, failures = [], []
    for name, find in sources.items():
        try:
            findings += find()
            audited.append(name)
        except Unavailable as error:
            failures.append(f"{name} not audited: {error}")
    active = [entry for entry in ignored if entry.until >= today]
    reported = sorted({one for one in findings if not any(entry.matches(one) for entry in active)})
    fixable = [one for one in reported if one.fixed]
    for line in report_lines(reported if everything else fixable):
        print(line)
    if audited:
        unfixed = len(reported) - len(fixable)
        hint = " (--all lists them)" if unfixed and not everything else ""
        numbers = f"{len(fixable)} to fix by an update, {unfixed} without a fix{hint}"
        print(f"{', '.join(audited)}: {numbers}, {len(set(findings)) - len(reported)} ignored")
    for entry in ignored:
        if entry not in active:
            what = f"{entry.advisory} of {entry.package} is no longer ignored"
            print(f"audit: {what}: its entry ended on {entry.until}", file=sys.stderr)
    for line in failures:
        print(f"audit: {line}", file=sys.stderr)
    return FIXABLE if fixable else INCOMPLETE if failures else 0


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="audit", description=__doc__.split("\n")[0])
    place = "FILE|URL"
    parser.add_argument("--debian-tracker", metavar=place, default=TRACKER, help="Debian's security tracker as JSON.")
    parser.add_argument(
        "--image-sbom", metavar=place, default="", help="Bill of materials of an image (default: the one here)."
    )
    parser.add_argument(
        "--python-report", metavar=place, default="", help="Output of pip-audit --format json (default: run it)."
    )
    parser.add_argument("--npm-report", metavar=place, default="", help="Output of npm audit --json (default: run it).")
    parser.add_argument(
        "--skip", action="append", default=[], choices=("python", "npm", "debian"), help="Leave out a source."
    )
    parser.add_argument("--all", action="store_true", help="List advisories without a fix too.")
    given = parser.parse_args(argv)
    sources: dict[str, Callable[[], list[Finding]]] = {
        "Python": lambda: audit_python(given.python_report),
        "npm": lambda: audit_npm(given.npm_report),
        "Debian": lambda: audit_debian(given.debian_tracker, given.image_sbom),
    }
    chosen = {name: find for name, find in sources.items() if name.lower() not in given.skip}
    try:
        return audit(chosen, IGNORED.read_text(), datetime.datetime.now(datetime.UTC).date(), everything=given.all)
    except InvalidIgnoreList as error:
        print(f"audit: {IGNORED.relative_to(ROOT)}: {error}", file=sys.stderr)
        return WRONG_INPUT


if __name__ == "__main__":
    sys.exit(main())
