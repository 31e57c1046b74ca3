"""The page of trainings sorts, filters and compares."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.support.site.server import Site

pytestmark = pytest.mark.browser
TRAININGS = "/clusters/demo/trainings"


def jobs(page: Page) -> list[str]:
    return page.locator("tbody th .num").all_inner_texts()


def test_trainings_are_sorted_filtered_and_compared(demo: Site, page: Page) -> None:
    demo.goto(page, TRAININGS, role="admin")
    rows = page.locator("tbody tr")
    expect(rows).to_have_count(4)
    page.get_by_role("link", name="val/loss").click()
    expect(page.locator("th[aria-sort=ascending]")).to_have_text("val/loss")
    assert [text for text in jobs(page) if text.isdigit() and len(text) < 4] == ["104", "98", "91", "97"]
    page.get_by_label("Conditions on metrics").fill("loss<2, loss:highest>10")
    page.get_by_role("button", name="Search").click()
    expect(rows).to_have_count(2)
    for box in page.get_by_role("checkbox").all():
        box.check()
    page.get_by_role("button", name="Compare two").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Jobs 104 and 98")
    expect(page.locator(".diff__add")).to_have_text("+srun python train.py --lr 0.00098")


def test_condition_that_is_none_is_explained(demo: Site, page: Page) -> None:
    demo.goto(page, f"{TRAININGS}?where=loss", role="viewer")
    expect(page.get_by_role("status").filter(has_text="is no condition on a metric")).to_be_visible()
    expect(page.get_by_role("button", name="Compare two")).to_have_count(0)
    demo.goto(page, f"{TRAININGS}/compare?job=104", role="admin")
    expect(page.get_by_text("Choose two trainings to compare them.").first).to_be_visible()
