"""Chromium and the accessibility checker axe."""

from __future__ import annotations

import os
import shutil

from playwright.sync_api import Page

CHROMIUM = os.environ.get("HEADWAY_CHROMIUM") or shutil.which("chromium") or "/usr/bin/chromium"


RULES = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice")


def faults(page: Page, *rules: str) -> list[str]:
    """Returns the violations that axe, which the page's context must provide, finds on the page by these rules or
    groups of rules."""
    answer = page.evaluate("rules => axe.run(document, {runOnly: rules, resultTypes: ['violations']})", list(rules))
    return [
        f"{v['id']}: {node['html'][:90]}: {node['failureSummary'][-160:]}"
        for v in answer["violations"]
        for node in v["nodes"]
    ]
