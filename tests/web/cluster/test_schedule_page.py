"""The chart of the schedule: dragging fills the form, keys move over it, and 1,000 nodes are drawn row by row."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from playwright.sync_api import Page, expect

from headway.services.cluster_backend import SlurmReading
from tests.support.site import demo_state, schedule, snapshots
from tests.support.site.server import Site

pytestmark = pytest.mark.browser
AT = "/clusters/demo/schedule"


def shown(demo: Site, page: Page, role: str = "admin") -> None:
    demo_state.SHOWN["demo"] = schedule.planned(demo_state.SHOWN["demo"])
    demo.state.live.store_snapshot(demo_state.SHOWN["demo"])
    demo.goto(page, AT, role=role)
    expect(page.locator("[data-schedule]")).to_have_attribute("data-rows", re.compile(r"\d+"))


def test_drag_over_nodes_and_hours_fills_the_form(demo: Site, page: Page) -> None:
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text) if message.type in ("error", "warning") else None)
    shown(demo, page)
    box = page.locator(".sch canvas").bounding_box()
    assert box is not None
    x, y = box["x"] + box["width"] * 0.6, box["y"] + 26 + 24 + 11  # the first node, below the axis and the leaf
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + 60, y + 22, steps=4)
    page.mouse.move(x + 120, y + 22, steps=4)
    page.mouse.up()
    form = page.locator("#window-form")
    expect(form.locator("[name=nodes]")).to_have_value("demo-1-[1-2]")
    assert 1 < float(form.locator("[name=hours]").input_value()) < 6
    expect(form.locator("[name=window]")).to_be_focused()
    expect(page.locator(".sch__said")).to_contain_text("2 nodes, from ")
    assert said == []


def test_keys_read_rows_and_jobs_and_open_them(demo: Site, page: Page) -> None:
    shown(demo, page, "member")
    canvas, said = page.locator(".sch canvas"), page.locator(".sch__said")
    canvas.focus()
    page.keyboard.press("ArrowDown")
    expect(said).to_contain_text("leaf1, 4 nodes")
    page.keyboard.press("ArrowDown")
    expect(said).to_contain_text("demo-1-1, 2 jobs")
    page.keyboard.press("ArrowRight")
    expect(said).to_contain_text("Job 104 train_ddp of alice, 32 GPUs, since")
    page.keyboard.press("ArrowRight")
    expect(said).to_contain_text("Job 107 asr_large of carol, 16 GPUs: Slurm plans to start it")
    page.keyboard.press("Enter")
    page.wait_for_url("**/jobs/107")


def test_thousand_nodes_are_folded_by_leaf_and_drawn_row_by_row(demo: Site, page: Page) -> None:
    demo.put(snapshots.renamed(snapshots.large(), "demo"))
    demo.goto(page, AT, role="member")
    box = page.locator("[data-schedule]")
    expect(box).to_have_attribute("data-rows", "32")
    page.get_by_role("button", name="Unfold all").click()
    expect(box).to_have_attribute("data-rows", str(32 + 1024))
    assert int(box.get_attribute("data-drawn") or 0) < 60
    assert float(box.get_attribute("data-draw-ms") or 0) < 100
    page.locator(".sch__scroll").evaluate("(one) => { one.scrollTop = 20000; }")
    page.get_by_role("button", name="Fold all", exact=True).click()
    expect(box).to_have_attribute("data-rows", "32")


def test_table_follows_the_schedule(demo: Site, page: Page) -> None:
    shown(demo, page, "viewer")
    table = page.locator("#schedule-table")
    expect(table).to_contain_text("Slurm has planned the start of 2 jobs.")
    known = demo_state.SHOWN["demo"]
    reading = SlurmReading(known.nodes, (), reservations=())
    demo.backend.answers["read"] = reading
    demo_state.SHOWN["demo"] = replace(known, jobs=(), reservations=())
    demo.loop.call_soon_threadsafe(demo.state.live.store_snapshot, demo_state.SHOWN["demo"])
    expect(table).to_contain_text("Nothing is planned to start.")
    expect(table.locator("tr")).to_have_count(0)
