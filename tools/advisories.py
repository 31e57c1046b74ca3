"""What advisories say about packages: Debian's security tracker, reports of pip-audit and `npm audit`, and the list of
ignored advisories. No network: values in, findings out."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import yaml
from packaging.utils import canonicalize_name

# Debian's urgencies of issues that need no update.
_UNIMPORTANT = ("unimportant", "end-of-life")


class Unavailable(Exception):
    """A source can't say anything about the packages; the message is one sentence with the reason."""


class InvalidIgnoreList(Exception):
    """The list of ignored advisories has a fault; the message says which."""


@dataclass(frozen=True, order=True)
class Finding:
    """An advisory that applies to an installed package. `fixed` is "" if there is no fix yet."""

    source: str  # "Debian" | "Python" | "npm"
    package: str
    installed: str
    advisory: str
    fixed: str = ""
    severity: str = "unknown"
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True)
class Ignored:
    """An advisory that is not reported up to and including a day."""

    advisory: str
    package: str
    reason: str
    until: datetime.date

    def matches(self, finding: Finding) -> bool:
        return self.package == finding.package and self.advisory in (finding.advisory, *finding.aliases)


def debian_sources(sbom: Mapping[str, Any]) -> tuple[str, set[tuple[str, str]]]:
    """Returns the suite of an image and its source packages with versions, from the bill of materials. Raises
    Unavailable."""
    about = _properties(sbom.get("metadata", {}).get("component", {}))
    found = set()
    for component in sbom.get("components", []):
        fields = _properties(component)
        if "debian:source" in fields:
            found.add((fields["debian:source"], fields["debian:source-version"]))
    if not found or "debian:suite" not in about:
        raise Unavailable("the bill of materials lists no Debian packages: it is not of a node image")
    return about["debian:suite"], found


def _properties(component: Mapping[str, Any]) -> dict[str, str]:
    return {row["name"]: row["value"] for row in component.get("properties", [])}


def debian_findings(
    tracker: Any, suite: str, sources: Iterable[tuple[str, str]], is_older: Callable[[str, str], bool]
) -> list[Finding]:
    """Returns the open issues of source packages in `suite`. `is_older(a, b)`: whether version a is older than b. Raises
    Unavailable if the data is not that of the tracker, or knows nothing of the suite."""
    if not isinstance(tracker, dict) or not all(isinstance(issues, dict) for issues in tracker.values()):
        raise Unavailable("Debian's security tracker sent no JSON in its format")
    if not any(suite in issue.get("releases", {}) for issues in tracker.values() for issue in issues.values()):
        raise Unavailable(f"the data of Debian's security tracker has no issue of {suite}")
    found = []
    for source, version in sorted(sources):
        for name, issue in tracker.get(source, {}).items():
            state = issue.get("releases", {}).get(suite, {})
            fixed, severity = state.get("fixed_version", ""), state.get("urgency", "unknown")
            solved = state.get("status") == "resolved"
            if severity in _UNIMPORTANT or state.get("status") not in ("open", "resolved") or fixed == "0":
                continue
            if solved and not is_older(version, fixed):
                continue
            found.append(Finding("Debian", source, version, name, fixed if solved else "", severity))
    return found


def python_findings(report: Any, pinned: Mapping[str, set[str]]) -> list[Finding]:
    """Returns the findings of a report of pip-audit (`--format json`). `pinned`: versions by name; the report must have
    audited one of them of every package. Raises Unavailable."""
    rows = report.get("dependencies") if isinstance(report, dict) else None
    if not isinstance(rows, list):
        raise Unavailable("the report on Python packages is not one of pip-audit --format json")
    audited = {(canonicalize_name(row["name"]), row["version"]): row for row in rows if "version" in row}
    missing = [name for name, versions in pinned.items() if not any((name, one) in audited for one in versions)]
    if missing:
        reasons = {canonicalize_name(row["name"]): row.get("skip_reason", "") for row in rows}
        said = reasons.get(canonicalize_name(missing[0])) or "it is not in the report"
        raise Unavailable(
            f"{len(missing)} of {len(pinned)} Python packages were not audited, for example {missing[0]}: {said}"
        )
    return [
        Finding(
            "Python",
            name,
            version,
            issue["id"],
            ", ".join(issue.get("fix_versions", [])),
            aliases=tuple(issue.get("aliases", [])),
        )
        for (name, version), row in audited.items()
        if version in pinned.get(name, ())
        for issue in row.get("vulns", [])
    ]


def npm_findings(report: Any, lock: Mapping[str, Any]) -> list[Finding]:
    """Returns the findings of a report of `npm audit --json` on the packages of a package-lock.json. Raises
    Unavailable."""
    if not isinstance(report, dict) or not isinstance(report.get("vulnerabilities"), dict):
        said = report.get("message", "") if isinstance(report, dict) else ""
        raise Unavailable(f"npm's registry did not answer the audit: {said or 'no report of npm audit --json'}")
    found = []
    for name, row in report["vulnerabilities"].items():
        issues = [issue for issue in row.get("via", []) if isinstance(issue, dict)]
        fix = row.get("fixAvailable")
        fixed = str(fix.get("version", "yes")) if isinstance(fix, dict) else "yes" if fix else ""
        for place in row.get("nodes", []):
            version = lock.get("packages", {}).get(place, {}).get("version")
            if version is None:
                raise Unavailable(f"the report of npm audit is about another package-lock.json: {place} is not in it")
            for issue in issues:
                advisory = str(issue.get("url", issue.get("source", "?"))).rpartition("/")[2]
                found.append(Finding("npm", name, version, advisory, fixed, str(issue.get("severity", "unknown"))))
    return found


def read_ignore_list(text: str) -> list[Ignored]:
    """Returns the entries of the list. Raises InvalidIgnoreList: each needs advisory, package, reason and until."""
    data = yaml.safe_load(text)
    rows = data.get("ignore") if isinstance(data, dict) else None
    if not isinstance(rows, list):
        raise InvalidIgnoreList("it has no list `ignore`")
    found = []
    for number, row in enumerate(rows, start=1):
        if not isinstance(row, dict) or set(row) != {"advisory", "package", "reason", "until"}:
            raise InvalidIgnoreList(f"entry {number} needs advisory, package, reason and until, and nothing else")
        if not isinstance(row["until"], datetime.date):
            raise InvalidIgnoreList(f"entry {number}: until is a date such as 2027-01-31")
        if not str(row["reason"] or "").strip():
            raise InvalidIgnoreList(f"entry {number} has no reason")
        found.append(Ignored(str(row["advisory"]), str(row["package"]), str(row["reason"]), row["until"]))
    return found
