"""Chromium and the accessibility checker axe."""

from __future__ import annotations

import os
import shutil
import time
from typing import Any

from playwright.sync_api import Page

CHROMIUM = os.environ.get("HEADWAY_CHROMIUM") or shutil.which("chromium") or "/usr/bin/chromium"


EVALUATION_S = 120


def evaluate(page: Page, function: str, argument: Any = None) -> Any:
    """Returns the result of an asynchronous JavaScript function. Fails after EVALUATION_S: Playwright's own `evaluate` would
    wait for ever for a request that is not answered."""
    ends = f'setTimeout(() => fail(new Error("no result within {EVALUATION_S} s")), {EVALUATION_S * 1000})'
    guarded = f"argument => Promise.race([({function})(argument), new Promise((_, fail) => {ends})])"
    return page.evaluate(guarded, argument)


RULES = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice")


def faults(page: Page, *rules: str) -> list[str]:
    """Returns the violations that axe, which the page's context must provide, finds on the page by these rules or
    groups of rules."""
    answer = evaluate(page, "rules => axe.run(document, {runOnly: rules, resultTypes: ['violations']})", list(rules))
    return [
        f"{v['id']}: {node['html'][:90]}: {node['failureSummary'][-160:]}"
        for v in answer["violations"]
        for node in v["nodes"]
    ]


STILL_S = 60  # generous: it only limits a failing test
STILL = """() => document.readyState === 'complete' && !document.querySelector('.htmx-request, .loading')
  && document.getAnimations().every(a => a.playState !== 'running' || a.effect.getTiming().iterations === Infinity)"""


def wait_until_still(page: Page) -> None:
    """Waits until the page no longer draws or requests anything but open streams, which keep a page from ever being idle on the
    network. Raises AssertionError for a page that goes on drawing."""
    ends = time.monotonic() + STILL_S
    while not page.evaluate(STILL):
        assert time.monotonic() < ends, f"{page.url} still draws or requests something after {STILL_S} s"
        time.sleep(0.05)
