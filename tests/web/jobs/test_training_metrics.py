"""The job's page draws the metrics that the training reports."""

from __future__ import annotations

import time
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.support.clusters import builders
from tests.support.site import training_metrics
from tests.support.site.server import Site
from tests.web.jobs.test_job_page import shows

pytestmark = pytest.mark.browser
JOB = "/clusters/demo/jobs/104"


def metrics(page: Page) -> Locator:
    return page.locator("[data-training]")


def titles(page: Page) -> list[str]:
    return metrics(page).locator("figure .fig__title").all_inner_texts()


def curves(page: Page) -> Any:
    """The drawn pixels of all charts."""
    return page.evaluate("[...document.querySelectorAll('[data-grid] canvas')].map((canvas) => canvas.toDataURL())")


def test_metrics_are_drawn_picked_and_remembered(demo: Site, page: Page) -> None:
    demo.goto(page, JOB, role="viewer")
    expect(metrics(page)).to_have_attribute("data-drawn", "loss lr grad_norm val/loss")
    assert titles(page) == ["loss", "lr", "grad_norm", "val/loss"]
    expect(metrics(page).locator("figure").first).to_contain_text("nan near step 3,0")
    metrics(page).get_by_role("button", name="grad_norm").click()
    metrics(page).get_by_role("button", name="val/accuracy").click()
    expect(metrics(page)).to_have_attribute("data-drawn", "loss lr val/loss val/accuracy")
    page.reload()
    expect(metrics(page)).to_have_attribute("data-drawn", "loss lr val/loss val/accuracy")
    expect(metrics(page).get_by_role("button", name="grad_norm")).to_have_attribute("aria-pressed", "false")


def test_overlay_smoothing_log_axis_and_time_change_the_charts(demo: Site, page: Page) -> None:
    demo.goto(page, JOB, role="viewer")
    expect(metrics(page)).to_have_attribute("data-drawn", "loss lr grad_norm val/loss")
    before = curves(page)
    for name in ("Log axis", "Time"):
        metrics(page).get_by_role("button", name=name).click()
        expect(metrics(page).get_by_role("button", name=name)).to_have_attribute("aria-pressed", "true")
        now = curves(page)
        assert now != before
        before = now
    metrics(page).get_by_label("Smoothing").fill("0.9")
    expect(metrics(page).locator("[data-amount]")).to_have_text("0.90")
    assert curves(page) != before
    metrics(page).get_by_role("button", name="Overlay").click()
    expect(metrics(page).locator("figure")).to_have_count(1)
    expect(metrics(page).locator("figcaption")).to_contain_text("val/loss")


def test_arrow_keys_read_the_values(demo: Site, page: Page) -> None:
    demo.goto(page, JOB, role="viewer")
    loss = metrics(page).get_by_role("img", name="loss over steps").first
    expect(loss).to_be_visible()
    loss.focus()
    page.keyboard.press("ArrowRight")
    expect(metrics(page).locator("figure .fig__readout").first).to_contain_text("step")


def test_dragging_zooms_all_charts_until_everything_is_shown_again(demo: Site, page: Page) -> None:
    demo.goto(page, JOB, role="viewer")
    expect(metrics(page)).to_have_attribute("data-drawn", "loss lr grad_norm val/loss")
    before = curves(page)
    over = metrics(page).locator(".u-over").first
    over.scroll_into_view_if_needed()
    box = over.bounding_box()
    assert box is not None
    y = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + box["width"] * 0.2, y)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.6, y, steps=5)
    page.mouse.up()
    everything = metrics(page).get_by_role("button", name="Show all")
    expect(everything).to_be_visible()
    page.wait_for_function(
        "(before) => [...document.querySelectorAll('[data-grid] canvas')].every((one, i) => one.toDataURL() !== before[i])",
        arg=before,
    )
    everything.click()
    expect(everything).to_be_hidden()


def test_metrics_are_a_table_on_request(demo: Site, page: Page) -> None:
    demo.goto(page, JOB, role="viewer")
    metrics(page).get_by_role("button", name="Tables").click()
    loss = metrics(page).locator("figure").first
    expect(loss.locator("thead th")).to_have_text(["Step", "loss"])
    expect(loss.locator("tbody tr").first).to_be_visible()


def test_metrics_appear_on_an_open_page_when_the_training_reports(demo: Site, page: Page) -> None:
    shows(demo, builders.job(300, user="alice", start_time=int(time.time()) - 60))
    page.clock.install()
    demo.goto(page, "/clusters/demo/jobs/300", role="viewer")
    expect(page.locator("#job-state")).to_have_text("running")
    assert not metrics(page).is_visible()
    training_metrics.put_metrics(demo.state, "demo", 300)
    page.clock.fast_forward(11_000)
    expect(metrics(page).locator("figure")).to_have_count(4)
