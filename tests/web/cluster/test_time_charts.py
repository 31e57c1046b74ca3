"""Charts over time: zoom, lines that can be hidden, marks of events, and tables with the same values."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Locator, Page, expect

from headway.cluster.monitoring.metric_queries import MetricRow
from tests.support.site.server import Site

pytestmark = pytest.mark.browser
NODE = "/clusters/demo/nodes/demo-1-1"
JOB = "/clusters/demo/jobs/104"


def chart(page: Page, title: str) -> Locator:
    return page.locator(".fig", has=page.get_by_text(title, exact=True))


SPAN = "(() => { const [start, end] = document.querySelector('[data-charts]').dataset.shown.split(' '); return end - start; })()"


def shown_span_s(page: Page) -> float:
    return float(page.evaluate(SPAN))


def test_dragging_zooms_all_charts_and_a_double_click_shows_the_whole_time(demo: Site, page: Page) -> None:
    demo.goto(page, NODE, role="viewer")
    expect(page.locator("[data-charts]")).to_have_attribute("data-state", "drawn")
    whole_s = shown_span_s(page)
    over = chart(page, "GPU power").locator(".u-over")
    over.scroll_into_view_if_needed()
    box = over.bounding_box()
    assert box is not None
    y = box["y"] + box["height"] / 2
    zooms: list[str] = []
    page.on("request", lambda request: zooms.append(request.url) if "end=" in request.url else None)
    with page.expect_request(lambda request: "/metrics?" in request.url and "end=" in request.url) as asked:
        page.mouse.move(box["x"] + box["width"] * 0.25, y)
        page.mouse.down()
        page.mouse.move(box["x"] + box["width"] * 0.5, y, steps=5)
        page.mouse.up()
    words = parse_qs(urlsplit(asked.value.url).query)
    assert 0.2 * whole_s < float(words["end"][0]) - float(words["start"][0]) < 0.3 * whole_s
    page.wait_for_function(f"() => {SPAN} < {whole_s / 2}")
    assert len(zooms) == 1, "the charts share one request"
    expect(page.get_by_role("button", name="Whole time")).to_be_visible()
    over.dblclick()
    expect(page.get_by_role("button", name="Whole time")).to_be_hidden()
    page.wait_for_function(f"() => {SPAN} >= {whole_s * 0.9}")


def test_keys_zoom_in_and_show_the_whole_time(demo: Site, page: Page) -> None:
    demo.goto(page, NODE, role="viewer")
    expect(page.locator("[data-charts]")).to_have_attribute("data-state", "drawn")
    chart(page, "Memory").locator(".fig__canvas").focus()
    page.keyboard.press("+")
    expect(page.get_by_role("button", name="Whole time")).to_be_visible()
    page.keyboard.press("0")
    expect(page.get_by_role("button", name="Whole time")).to_be_hidden()


def test_a_chip_hides_its_line_in_all_charts(demo: Site, page: Page) -> None:
    demo.goto(page, NODE, role="viewer")
    chip = page.locator(".charts__legend").get_by_role("button", name="GPU 7")
    expect(chip).to_have_attribute("aria-pressed", "true")
    expect(chart(page, "Network").get_by_role("button", name="received")).to_be_visible()
    expect(chart(page, "Disk space in use").locator(".fig__readout")).to_contain_text("limit 97 %")
    chip.click()
    expect(chip).to_have_attribute("aria-pressed", "false")
    page.get_by_role("button", name="Tables").click()
    for title in ("GPU power", "GPU temperature"):
        expect(chart(page, title).locator("thead th")).to_have_count(8)  # the time and seven GPUs
    chip.click()
    expect(chart(page, "GPU power").locator("thead th")).to_have_count(9)


def test_tables_have_the_values_of_the_charts(demo: Site, page: Page) -> None:
    demo.goto(page, NODE, role="viewer")
    expect(page.locator("[data-charts]")).to_have_attribute("data-state", "drawn")
    page.get_by_role("button", name="Tables").click()
    cpus = chart(page, "CPUs").locator("table")
    assert cpus.locator("thead th").all_inner_texts() == ["Time", "busy, %", "waiting for disks, %"]
    expect(cpus.locator("tbody tr").first).to_be_visible()
    page.get_by_role("button", name="Charts", exact=True).click()
    expect(cpus).to_have_count(0)


def test_table_of_many_points_has_each_peak(demo: Site, page: Page) -> None:
    def change(row: MetricRow) -> MetricRow:
        (at, _), last = row.values[-2:]
        return replace(row, values=(*row.values[:-2], (at, 4321.0), last)) if row.key == "gpu_power" else row

    change_rows(demo, change)
    demo.goto(page, NODE, role="viewer")
    page.get_by_role("button", name="Tables").click()
    power = chart(page, "GPU power").locator("table")
    expect(power).to_contain_text("4,321")
    expect(power.locator("caption")).to_have_text(
        re.compile(r"GPU power; each row has the lowest and highest of \d values")
    )


def test_sample_between_gaps_is_drawn_as_a_point(demo: Site, page: Page) -> None:
    demo.goto(page, NODE, role="viewer")
    assert page.evaluate("headwayCharts.lone([1, null, 2, null, 3, 4, null, 0])") == [0, 2, 7]
    assert page.evaluate("headwayCharts.lone([1, 2, null])") is None


def refresh(page: Page) -> None:
    """Lets the charts be read again, and waits until they are drawn."""
    page.evaluate("() => { document.querySelector('[data-charts]').dataset.state = 'before'; }")
    page.clock.fast_forward(16_000)
    expect(page.locator("[data-charts]")).to_have_attribute("data-state", "drawn")


def test_refreshes_leave_the_focus_and_say_nothing(demo: Site, page: Page) -> None:
    page.clock.install()
    demo.goto(page, "/clusters/demo/nodes", role="viewer")
    link = page.locator(".charts__events").get_by_role("link").first
    link.focus()
    refresh(page)
    expect(link).to_be_focused()
    demo.goto(page, NODE, role="viewer")
    power = chart(page, "GPU power")
    expect(power.locator(".fig__readout")).not_to_have_attribute("aria-live", "polite")
    power.locator(".fig__canvas").focus()
    expect(power.locator(".fig__readout")).to_have_attribute("aria-live", "polite")
    page.get_by_role("button", name="Tables").click()
    table = power.locator(".fig__table")
    table.focus()
    table.evaluate("table => { table.scrollTop = 40; }")
    refresh(page)
    expect(table).to_be_focused()
    assert table.evaluate("table => table.scrollTop") == 40


def test_heat_maps_promise_no_keys(demo: Site, page: Page) -> None:
    demo.goto(page, NODE, role="viewer")
    used = chart(page, "GPU utilisation").locator(".fig__canvas")
    expect(used).to_have_attribute("aria-label", re.compile("Arrow keys"))
    page.get_by_role("button", name="Heat maps").click()
    expect(used).not_to_have_attribute("aria-label", re.compile("Arrow keys"))


def test_charts_mark_incidents_and_drains_with_links(demo: Site, page: Page) -> None:
    demo.run(demo.state.store.audit.record("olga", "node.drain", "demo/demo-1-1", {"reason": "disk swap"}))
    demo.goto(page, NODE, role="viewer")
    expect(page.locator(".charts__events")).to_contain_text("olga drained demo-1-1: disk swap")
    page.locator(".charts__legend").get_by_role("button", name="drained").click()
    expect(page.locator(".charts__events")).not_to_contain_text("disk swap")
    demo.goto(page, "/clusters/demo/nodes", role="viewer")
    events = page.locator(".charts__events")
    expect(events).to_contain_text("disk swap")
    events.get_by_role("link").first.click()
    page.wait_for_url("**/clusters/demo/incidents/*")


def change_rows(demo: Site, change: Callable[[MetricRow], MetricRow]) -> None:
    """Changes each line that Prometheus returns."""
    metrics = demo.backend.answers["query_metrics"]
    demo.backend.answers["query_metrics"] = lambda *ask: tuple(change(row) for row in metrics(*ask))


def with_one_gpu_at(demo: Site, percent: float, others: float | None = None) -> None:
    """Lets GPU 3 of demo-1-1 have this utilisation all the time, and the others another one."""

    def change(row: MetricRow) -> MetricRow:
        here = (row.labels.get("node"), row.labels.get("gpu")) == ("demo-1-1", "3")
        value = percent if here else others
        if row.key != "gpu_utilisation" or value is None:
            return row
        return replace(row, values=tuple((at, value) for at, _ in row.values))

    change_rows(demo, change)


def test_heat_map_shows_each_gpu(demo: Site, page: Page) -> None:
    with_one_gpu_at(demo, 31.0)
    demo.goto(page, NODE, role="viewer")
    used = chart(page, "GPU utilisation")
    page.get_by_role("button", name="Heat maps").click()
    expect(used.locator("canvas.heat")).to_be_visible()
    expect(used.locator(".fig__note")).to_be_hidden()  # its GPUs may have different jobs
    expect(chart(page, "Memory").locator(".uplot")).to_be_visible()
    box = used.locator("canvas.heat").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] * 3.5 / 8)
    expect(used.locator(".fig__readout")).to_contain_text("GPU 3: 31 %")


def test_note_names_the_gpu_of_a_job_that_differs(demo: Site, page: Page) -> None:
    with_one_gpu_at(demo, 31.0)
    demo.goto(page, JOB, role="viewer")
    expect(chart(page, "GPU utilisation").locator(".fig__note")).to_contain_text(
        "demo-1-1 GPU 3 differs: 31 % on average, the others"
    )
    expect(chart(page, "GPU power").locator(".fig__note")).to_be_hidden()


def test_small_differences_have_no_note(demo: Site, page: Page) -> None:
    with_one_gpu_at(demo, 1.0, others=0.0)
    demo.goto(page, JOB, role="viewer")
    expect(chart(page, "GPU utilisation").locator(".fig__readout")).to_contain_text("1 %")
    expect(chart(page, "GPU utilisation").locator(".fig__note")).to_be_hidden()
