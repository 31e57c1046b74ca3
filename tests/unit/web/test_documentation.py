"""Every page of the dashboard links to an existing page of the documentation."""

from __future__ import annotations

from pathlib import Path

import pytest

from headway.web import documentation, navigation
from headway.web.documentation import PAGE_TO_DOC, doc_address

ROOT = Path(__file__).resolve().parents[3]


def test_every_page_links_to_existing_documentation() -> None:
    keys = {tab.key for tab in navigation.CLUSTER + navigation.SERVER}
    assert keys == set(PAGE_TO_DOC)
    for target in PAGE_TO_DOC.values():
        assert (ROOT / "docs" / f"{target}.md").is_file(), target
        if documentation.site_is_built():
            assert (documentation.SITE / target / "index.html").is_file(), target


def test_doc_address_is_empty_without_built_site(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(documentation, "SITE", tmp_path)
    assert doc_address("queue") == ""
    (tmp_path / "index.html").touch()
    assert doc_address("queue") == "/docs/howto/jobs/"
    assert doc_address("a page that has no documentation") == "/docs/"
