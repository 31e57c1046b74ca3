"""The page of a model shows its versions, and its promotions with what each gate wants and saw."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from headway.store.jobs.promotions import ApprovalRow
from tests.support.site.server import Site

pytestmark = pytest.mark.browser


def test_model_shows_versions_and_gates_of_its_promotions(demo: Site, page: Page) -> None:
    demo.goto(page, "/clusters/demo/trainings", role="member")
    page.get_by_role("link", name="Models", exact=True).click()
    expect(page.get_by_role("row", name="street-signs vision")).to_contain_text("production is version 3")
    page.get_by_role("link", name="street-signs", exact=True).click()
    versions = page.get_by_role("region", name="Versions")
    expect(versions.get_by_role("row", name="3 production")).to_contain_text("licence by lena")
    expect(versions.get_by_role("row", name="3 production")).to_contain_text("accuracy 0.953")
    refused = page.get_by_role("region", name="Version 2 to production")
    expect(refused).to_contain_text("refused")
    expect(refused.get_by_role("row", name="accuracy failed")).to_contain_text("accuracy at least 0.9")
    expect(page.get_by_role("region", name="Version 3 to production")).to_contain_text("headway model manifest")
    expect(page.get_by_role("region", name="Version 4 to production")).to_contain_text("running")


def test_versions_are_updated_with_the_promotions(demo: Site, page: Page) -> None:
    page.clock.install()
    demo.goto(page, "/clusters/demo/models/vision/street-signs", role="member")
    row = page.get_by_role("region", name="Versions").get_by_role("row", name="4 staging")
    expect(row).not_to_contain_text("licence by lena")
    approval = ApprovalRow("demo", "vision", "street-signs", 4, "licence", "lena", ("lead",), "f", "CC BY 4.0", 1.0)
    demo.run(demo.state.store.promotions.approve(approval))
    page.clock.fast_forward(6_000)
    expect(row).to_contain_text("licence by lena")


def test_cluster_without_mlflow_says_how_to_get_models(demo: Site, page: Page) -> None:
    demo.goto(page, "/clusters/prod/models", role="admin")
    expect(page.locator("main")).to_contain_text("mlflow: true in the cluster file")
