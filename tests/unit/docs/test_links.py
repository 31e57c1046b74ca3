"""Links of pages resolve, all pages are in the navigation, and files that pages and comments name exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.unit.docs.test_docs import ALL, DOCS, ROOT, name_of


def anchors(path: Path) -> set[str]:
    """Anchors of a page's headings, as code hosts and MkDocs make them."""
    found = set()
    for title in re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), flags=re.MULTILINE):
        plain = re.sub(r"[^\w\s-]", "", title.lower()).strip()
        found.add(re.sub(r"[\s]+", "-", plain))
    return found


@pytest.mark.parametrize("path", ALL, ids=name_of)
def test_links_resolve_to_files_and_headings(path: Path) -> None:
    wrong = []
    for target in re.findall(r"\]\(([^)\s]+)\)", path.read_text(encoding="utf-8")):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = target.partition("#")
        place = (path.parent / file).resolve() if file else path
        if not place.exists() or (anchor and anchor not in anchors(place)):
            wrong.append(target)
    assert wrong == []


def test_all_pages_are_in_the_navigation() -> None:
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert {name for name in (str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md")) if name not in text} == set()


@pytest.mark.parametrize("name", ["ARCHITECTURE.md", "CONTRIBUTING.md", "STYLE.md"])
def test_paths_in_developer_pages_exist(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    paths = re.findall(r"`((?:src|node|tests|tools|docs|bench|requirements)/[\w./-]+)`", text)
    paths += [
        f"src/headway/{path}"
        for path in re.findall(r"`(\w+/\w+\.(?:py|yaml))`", text)
        if path.split("/")[0] not in ("node", "tools", "tests")
    ]
    assert [path for path in paths if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("name", ["ARCHITECTURE.md", "CONTRIBUTING.md", "STYLE.md"])
def test_file_names_in_developer_pages_exist(name: str) -> None:
    names = {path.name for tree in ("src", "node", "tests", "tools") for path in (ROOT / tree).rglob("*.*")}
    text = (ROOT / name).read_text(encoding="utf-8")
    assert {file for file in re.findall(r"`([\w-]+\.(?:py|sh|yaml))`", text) if file not in names} <= {"cluster.yaml"}


def test_paths_in_comments_exist() -> None:
    wrong = {}
    for tree in ("src/headway", "node"):
        for path in (ROOT / tree).rglob("*.py"):
            named = re.findall(r"(?<![\w./])node/[a-z_/]+\.(?:py|sh)\b", path.read_text(encoding="utf-8"))
            if missing := {file for file in named if not (ROOT / file).exists()}:
                wrong[name_of(path)] = missing
    assert wrong == {}


def test_measurements_that_pages_name_exist() -> None:
    pages = [*DOCS.rglob("*.md"), ROOT / "Makefile", *(ROOT / "bench").rglob("*.py")]
    named = {
        name for page in pages for name in re.findall(r"python bench ([a-z_/]+)", page.read_text(encoding="utf-8"))
    }
    assert len(named) >= 20
    assert {name for name in named if not (ROOT / "bench" / f"{name}.py").is_file()} == set()
    text = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    assert re.findall(r"python bench/", text) == []
