"""The audit reports what advisories say about installed versions, and never takes a silent source for good news."""

from __future__ import annotations

import datetime
import importlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
TODAY = datetime.date(2026, 11, 26)
NOTHING = "ignore: []\n"
MODULES = ("advisories", "assets", "audit", "sbom")
TRACKER: dict[str, Any] = {
    "openssl": {
        "CVE-1": {
            "releases": {"trixie": {"status": "resolved", "fixed_version": "3.5.4-1~deb13u1", "urgency": "high"}}
        },
        "CVE-2": {"releases": {"trixie": {"status": "resolved", "fixed_version": "3.5.0-1", "urgency": "low"}}},
        "CVE-3": {"releases": {"trixie": {"status": "open", "urgency": "medium"}}},
        "CVE-4": {"releases": {"trixie": {"status": "open", "urgency": "unimportant"}}},
        "CVE-5": {"releases": {"trixie": {"status": "resolved", "fixed_version": "0", "urgency": "high"}}},
        "CVE-6": {"releases": {"bookworm": {"status": "open", "urgency": "high"}}},
        "CVE-7": {"releases": {"trixie": {"status": "undetermined", "urgency": "high"}}},
    },
    "slurm-wlm": {
        "CVE-8": {"releases": {"trixie": {"status": "resolved", "fixed_version": "1:1-1", "urgency": "high"}}}
    },
    "not-installed": {"CVE-9": {"releases": {"trixie": {"status": "open", "urgency": "high"}}}},
}
SBOM = {
    "metadata": {"component": {"properties": [{"name": "debian:suite", "value": "trixie"}]}},
    "components": [
        {
            "name": binary,
            "properties": [
                {"name": "debian:source", "value": source},
                {"name": "debian:source-version", "value": version},
            ],
        }
        for binary, source, version in (
            ("libssl3t64", "openssl", "3.5.4-1~deb13u1~1"),
            ("openssl", "openssl", "3.5.4-1~deb13u1~1"),
            ("slurmd", "slurm-wlm", "24.11.5-4"),
        )
    ]
    + [{"name": "/usr/lib/headway/x"}],
}


@pytest.fixture
def tools(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, ModuleType]]:
    """The modules of the audit by name, as `python tools/audit.py` imports them."""
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    yield {name: importlib.import_module(name) for name in MODULES}
    for name in MODULES:
        sys.modules.pop(name, None)


def run(
    tools: dict[str, ModuleType], ignored: str = NOTHING, everything: bool = False, **sources: Callable[[], list[Any]]
) -> int:
    return int(tools["audit"].audit(sources, ignored, TODAY, everything=everything))


def finding(tools: dict[str, ModuleType], **more: Any) -> Any:
    fields = {"source": "Python", "package": "x", "installed": "1", "advisory": "GHSA-1", "fixed": "2"}
    return tools["advisories"].Finding(**{**fields, **more})


# ---- Debian


def test_debian_issues_are_compared_by_source_version(tools: dict[str, ModuleType], tmp_path: Path) -> None:
    (tmp_path / "tracker").write_text(json.dumps(TRACKER))
    (tmp_path / "sbom").write_text(json.dumps(SBOM))
    found = tools["audit"].audit_debian(str(tmp_path / "tracker"), str(tmp_path / "sbom"))
    assert [(one.package, one.installed, one.advisory, one.fixed, one.severity) for one in found] == [
        ("openssl", "3.5.4-1~deb13u1~1", "CVE-1", "3.5.4-1~deb13u1", "high"),
        ("openssl", "3.5.4-1~deb13u1~1", "CVE-3", "", "medium"),
        ("slurm-wlm", "24.11.5-4", "CVE-8", "1:1-1", "high"),
    ]


@pytest.mark.parametrize(
    ("version", "other", "older"),
    [
        ("1.0", "1.0", False),
        ("1.0~rc1", "1.0", True),
        ("1:0.1", "2", False),
        ("1.9", "1.10", True),
        ("2-1+b1", "2-1", False),
    ],
)
def test_versions_are_compared_as_dpkg_does(
    tools: dict[str, ModuleType], version: str, other: str, older: bool
) -> None:
    assert tools["audit"].is_older(version, other) is older


@pytest.mark.parametrize("tracker", [[], {}, {"openssl": 7}, {"openssl": {"CVE-6": TRACKER["openssl"]["CVE-6"]}}])
def test_debian_data_without_the_suite_is_no_good_news(tools: dict[str, ModuleType], tracker: Any) -> None:
    module = tools["advisories"]
    with pytest.raises(module.Unavailable, match="security tracker"):
        module.debian_findings(tracker, "trixie", {("openssl", "1")}, lambda *_: False)


def test_bill_of_materials_of_something_else_is_refused(tools: dict[str, ModuleType]) -> None:
    for sbom in ({}, {**SBOM, "components": []}, {**SBOM, "metadata": {}}):
        with pytest.raises(tools["advisories"].Unavailable, match="not of a node image"):
            tools["advisories"].debian_sources(sbom)


# ---- Python and npm


def test_python_report_must_cover_every_pinned_package(tools: dict[str, ModuleType]) -> None:
    module = tools["advisories"]
    issue = {"id": "PYSEC-1", "fix_versions": ["1.1", "2.0"], "aliases": ["CVE-1"]}
    row = {"name": "Some.Name", "version": "1.0", "vulns": [issue]}
    (found,) = module.python_findings({"dependencies": [row]}, {"some-name": {"0.9", "1.0"}})
    assert (found.package, found.installed, found.fixed) == ("some-name", "1.0", "1.1, 2.0")
    assert found.aliases == ("CVE-1",)
    skipped = {"name": "other", "skip_reason": "Dependency not found on PyPI"}
    for rows, says in (
        ([row, skipped], "1 of 2 Python packages were not audited, for example other: Dependency not found"),
        ([row], "other: it is not in the report"),
        ([{"name": "other", "version": "3", "vulns": []}, row], "for example other"),
    ):
        with pytest.raises(module.Unavailable, match=says):
            module.python_findings({"dependencies": rows}, {"some-name": {"1.0"}, "other": {"2"}})
    for report in ([], {}, {"dependencies": None}):
        with pytest.raises(module.Unavailable, match="not one of pip-audit"):
            module.python_findings(report, {})


def test_npm_report_names_installed_version_and_fix(tools: dict[str, ModuleType]) -> None:
    module = tools["advisories"]
    lock = {"packages": {"": {}, "node_modules/uplot": {"version": "1.6.32"}}}
    via = {"url": "https://github.com/advisories/GHSA-2", "severity": "high", "source": 7}
    row = {
        "nodes": ["node_modules/uplot"],
        "via": [via, "other"],
        "fixAvailable": {"name": "uplot", "version": "1.7.0"},
    }
    (found,) = module.npm_findings({"vulnerabilities": {"uplot": row}}, lock)
    assert (found.package, found.installed, found.fixed) == ("uplot", "1.6.32", "1.7.0")
    assert (found.advisory, found.severity) == ("GHSA-2", "high")
    for fix, fixed in ((True, "yes"), (False, "")):
        assert module.npm_findings({"vulnerabilities": {"uplot": {**row, "fixAvailable": fix}}}, lock)[0].fixed == fixed
    with pytest.raises(module.Unavailable, match="another package-lock"):
        module.npm_findings({"vulnerabilities": {"uplot": {**row, "nodes": ["node_modules/x"]}}}, lock)
    for report in ({"message": "405 Method Not Allowed"}, [], None):
        with pytest.raises(module.Unavailable, match="did not answer the audit"):
            module.npm_findings(report, lock)


# ---- the whole audit


def test_exit_code_tells_fixable_unfixed_and_unknown_apart(
    tools: dict[str, ModuleType], capsys: pytest.CaptureFixture[str]
) -> None:
    fixable, unfixed = finding(tools), finding(tools, advisory="GHSA-2", fixed="")

    def silent() -> list[Any]:
        raise tools["advisories"].Unavailable("npm's registry did not answer the audit: 405")

    assert run(tools, Python=list) == 0
    assert capsys.readouterr().out == "Python: 0 to fix by an update, 0 without a fix, 0 ignored\n"
    assert run(tools, Python=lambda: [unfixed]) == 0
    assert "1 without a fix (--all lists them)" in capsys.readouterr().out
    assert run(tools, Python=lambda: [fixable, unfixed]) == 1
    said = capsys.readouterr().out
    assert "GHSA-1" in said
    assert "GHSA-2" not in said
    assert run(tools, Python=lambda: [fixable, unfixed], everything=True) == 1
    assert "GHSA-2" in capsys.readouterr().out
    assert run(tools, npm=silent) == 3
    said_of = capsys.readouterr()
    assert said_of.out == ""
    assert said_of.err == "audit: npm not audited: npm's registry did not answer the audit: 405\n"
    assert run(tools, Python=list, npm=silent) == 3
    assert run(tools, Python=lambda: [fixable], npm=silent) == 1


def test_table_has_package_versions_advisory_and_severity(tools: dict[str, ModuleType]) -> None:
    lines = tools["audit"].report_lines([finding(tools, severity="high"), finding(tools, package="longer", fixed="")])
    assert [line.split() for line in lines] == [
        ["PACKAGE", "INSTALLED", "FIXED", "IN", "ADVISORY", "SEVERITY", "SOURCE"],
        ["x", "1", "2", "GHSA-1", "high", "Python"],
        ["longer", "1", "-", "GHSA-1", "unknown", "Python"],
    ]
    assert tools["audit"].report_lines([]) == []


def test_ignored_advisory_is_reported_again_after_its_last_day(
    tools: dict[str, ModuleType], capsys: pytest.CaptureFixture[str]
) -> None:
    text = "ignore: [{advisory: %s, package: %s, reason: not reachable, until: %s}]"
    row = finding(tools, aliases=("CVE-1",))
    for advisory, package, until, code in (
        ("GHSA-1", "x", "2026-11-26", 0),
        ("CVE-1", "x", "2026-11-26", 0),
        ("GHSA-1", "y", "2026-11-26", 1),
        ("GHSA-1", "x", "2026-11-25", 1),
    ):
        assert run(tools, text % (advisory, package, until), Python=lambda: [row]) == code
    assert "GHSA-1 of x is no longer ignored: its entry ended on 2026-11-25" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[]", "no list"),
        ("ignore: [{advisory: A, package: x, until: 2026-01-01}]", "entry 1 needs"),
        ("ignore: [{advisory: A, package: x, reason: r, until: soon}]", "until is a date"),
        ('ignore: [{advisory: A, package: x, reason: " ", until: 2026-01-01}]', "has no reason"),
    ],
)
def test_ignore_list_without_reason_or_date_is_refused(tools: dict[str, ModuleType], text: str, says: str) -> None:
    with pytest.raises(tools["advisories"].InvalidIgnoreList, match=says):
        tools["advisories"].read_ignore_list(text)


def test_ignore_list_of_the_repository_is_valid(tools: dict[str, ModuleType]) -> None:
    tools["advisories"].read_ignore_list((ROOT / "requirements/audit-ignore.yaml").read_text())


@pytest.mark.parametrize("place", ["/no/such/file", "http://127.0.0.1:9/tracker"])
def test_missing_file_or_host_is_named(tools: dict[str, ModuleType], place: str) -> None:
    with pytest.raises(tools["advisories"].Unavailable, match=f"the tracker did not answer: {place}"):
        tools["audit"].read_json(place, "the tracker")


def test_program_without_a_report_is_named(tools: dict[str, ModuleType]) -> None:
    for script, says in (("print('Oops')", "Oops"), ("", "it printed nothing")):
        with pytest.raises(tools["advisories"].Unavailable, match=f"pip-audit printed no report: {says}"):
            tools["audit"]._report_of([sys.executable, "-c", script], "pip-audit")
    with pytest.raises(tools["advisories"].Unavailable, match="pip-audit did not end"):
        tools["audit"]._report_of(["/no/such/program"], "pip-audit")
