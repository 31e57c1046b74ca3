"""The overview of a cluster in a browser: live updates, content policy, keyboard, theme, stale data and lost servers."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from playwright.sync_api import Browser, Page, expect

from headway.services.read_model.snapshot import RecentEvent
from tests.support.site import snapshots
from tests.support.site.server import Site

pytestmark = pytest.mark.browser

# Runs before any script of the page: records refused content and the events that the server sent.
WATCH = """
window.refused = []; window.events = [];
const note = () => document.documentElement.dataset.seen = [...window.events, ...window.refused].join(' ');
document.addEventListener('securitypolicyviolation', e => {
  window.refused.push('refused:' + e.violatedDirective); note();
});
document.addEventListener('htmx:sseBeforeMessage', e => { window.events.push(e.detail.type); note(); });
"""


@pytest.fixture
def complaints(page: Page) -> list[str]:
    """Returns a list of the errors and warnings on the browser's console."""
    said: list[str] = []
    page.add_init_script(WATCH)
    page.on("console", lambda message: said.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: said.append(str(error)))
    return said


def live(page: Page, site: Site) -> None:
    """Opens the cluster and waits until its stream has delivered every part once."""
    site.goto(page, "/clusters/demo")
    seen(page, r"\bpulse\b")


def seen(page: Page, pattern: str) -> None:
    """Waits until the events (and refused content) match; the policy forbids Playwright's own polling in the page."""
    expect(page.locator("html")).to_have_attribute("data-seen", re.compile(pattern))


def test_cluster_page_shows_figures_and_marks_simulated_gpus(site: Site, page: Page, complaints: list[str]) -> None:
    site.put(snapshots.happy())
    live(page, site)
    assert page.url == f"{site.url}/clusters/demo"
    expect(page.locator("h1")).to_have_text("demo")
    expect(page.locator("#summary")).to_contain_text("$119.60")
    for part in ("#place", "#summary"):
        expect(page.locator(f"{part} .sim").first).to_have_text("simulated GPUs")
    expect(page.locator("#node-demo-1-1 .gpu[data-job='104']")).to_have_count(8)
    expect(page.locator("#node-demo-2-1")).to_have_class(re.compile("is-spare"))
    expect(page.locator("#job-107")).to_contain_text("waits until enough nodes or GPUs are free")
    expect(page.locator("#chart canvas")).to_be_visible()
    expect(page.locator("#chart")).to_have_attribute("aria-label", re.compile("Loss of job 104: from 4.1 at step 0 to"))


def test_cluster_page_states_fit_policy_and_phone_width(site: Site, page: Page, complaints: list[str]) -> None:
    for state, make in snapshots.STATES.items():
        site.put(make())
        live(page, site)
        page.locator("#theme").click()
        page.mouse.move(1100, 500)
        assert page.evaluate("window.refused") == [], state
        page.set_viewport_size({"width": 360, "height": 780})
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, state
        page.set_viewport_size({"width": 1280, "height": 720})
    assert complaints == []


def test_content_security_policy_blocks_inline_scripts_and_styles(
    site: Site, page: Page, complaints: list[str]
) -> None:
    site.put(snapshots.happy())
    live(page, site)
    page.evaluate(
        """() => { const s = document.createElement('script'); s.textContent = 'window.ran = 1';
        document.body.append(s); document.body.insertAdjacentHTML('beforeend', '<i style="color:red"></i>'); }"""
    )
    seen(page, "refused:script-src-elem.*refused:style-src-attr|refused:style-src-attr.*refused:script-src-elem")
    assert page.evaluate("window.ran") is None


def test_killed_node_appears_without_reload(site: Site, page: Page, complaints: list[str]) -> None:
    site.put(snapshots.happy())
    live(page, site)
    page.evaluate("window.mark = 'same page'; window.events = []")
    expect(page.locator("#chart")).to_have_attribute("data-points", re.compile("^[1-9]"))  # a script has drawn it
    points = int(page.locator("#chart").get_attribute("data-points") or 0)
    site.put(snapshots.broken())
    down = page.locator("#node-demo-1-3")
    expect(down).to_have_class(re.compile("is-down"))
    expect(down).to_contain_text("machine stopped; not responding since")
    expect(down.locator(".gpu[data-job]")).to_have_count(0)
    expect(page.locator("#node-demo-2-1 .gpu[data-job='104']")).to_have_count(8)
    expect(page.locator("#down-banners")).to_contain_text("1 node is down.")
    expect(page.locator("#history li").first).to_contain_text("goes on from step 400")
    expect(page.locator("#chart")).to_have_attribute("data-points", str(points + 8))
    assert page.evaluate("window.mark") == "same page"


def test_stream_sends_only_changed_parts(site: Site, page: Page, complaints: list[str]) -> None:
    before = snapshots.happy()
    site.put(before)
    live(page, site)
    page.evaluate("() => { window.events = []; delete document.documentElement.dataset.seen; }")
    job = snapshots.training(before.jobs[0].nodes, steps=440, start_time=before.jobs[0].start_time)
    job = job.model_copy(update={"submit_time": before.jobs[0].submit_time})
    site.put(replace(before, jobs=(job, *before.jobs[1:])))
    expect(page.locator(".figures")).to_contain_text("440")
    seen(page, r"\bpulse\b")
    assert sorted(page.evaluate("window.events")) == ["chart", "pulse", "training_panel"]


def test_gpu_cells_follow_their_job_and_its_colour(site: Site, page: Page, complaints: list[str]) -> None:
    base = snapshots.happy()
    site.put(base)
    live(page, site)
    cell = page.locator("#node-demo-1-1 .gpu").first
    colour = "e => getComputedStyle(e).backgroundColor"
    letter, first = cell.inner_text(), cell.evaluate(colour)
    nodes = [base.status.nodes[0], snapshots.node("demo-1-1", "leaf1", held=[107] * 8)]
    nodes += [snapshots.node(f"demo-1-{i}", "leaf1", held=[104] * 8) for i in (2, 3)]
    asr = snapshots.training(["demo-1-1"], id=107, name="asr_large", user="carol", nodelist="demo-1-1")
    jobs = (snapshots.training(["demo-1-2", "demo-1-3"]), asr)
    site.put(replace(base, status=base.status.model_copy(update={"nodes": nodes}), jobs=jobs))
    expect(cell).to_have_attribute("data-job", "107")
    expect(cell).not_to_have_text(letter)
    expect(cell).not_to_have_css("background-color", first)
    other = page.locator("#node-demo-1-2 .gpu").first
    expect(other).to_have_text(letter)
    expect(other).to_have_css("background-color", first)
    assert page.locator("#job-107 .key").inner_text() == cell.inner_text()


def test_another_job_can_be_selected_for_the_chart(site: Site, page: Page, complaints: list[str]) -> None:
    site.put(snapshots.mixed())
    live(page, site)
    page.locator("#pick-112").click()
    expect(page.locator("#chart")).to_have_attribute("data-job", "112")
    expect(page.locator("#training")).to_contain_text("sweep_112")
    expect(page).to_have_url(f"{site.url}/clusters/demo?job=112")


def test_durations_count_up_by_themselves(site: Site, page: Page, complaints: list[str]) -> None:
    site.put(snapshots.happy())
    live(page, site)
    first = page.locator("#job-104 [data-since]").inner_text()
    expect(page.locator("#job-104 [data-since]")).not_to_have_text(first)


def test_cluster_page_reports_a_lost_server(site: Site, page: Page) -> None:
    site.put(snapshots.happy())
    page.add_init_script(WATCH)
    live(page, site)
    expect(page.locator("#server-down")).to_be_hidden()
    site.stop()
    expect(page.locator("#server-down")).to_be_visible()
    expect(page.locator("#server-down")).to_contain_text("The server does not answer.")
    expect(page.locator("#node-demo-1-1")).to_be_visible()


def test_stale_figures_are_reported_with_their_reason(site: Site, page: Page, complaints: list[str]) -> None:
    site.put(snapshots.happy())
    live(page, site)
    expect(page.locator("#cluster-banners")).to_be_empty()
    site.put(snapshots.stale(snapshots.happy()))
    expect(page.locator("#cluster-banners")).to_contain_text(
        "These figures are old: the head demo-head does not answer"
    )
    expect(page.locator("#pulse")).to_contain_text("6m")


def test_sign_out_sends_an_open_page_to_sign_in(site: Site, page: Page) -> None:
    page.add_init_script(WATCH)
    site.put(snapshots.happy())
    live(page, site)
    site.sign_out()
    site.put(snapshots.broken())
    expect(page.locator("h1")).to_have_text("Sign in")
    expect(page.locator("body")).to_contain_text("headway token link")
    assert "demo-1-1" not in page.content()


def test_deleted_cluster_is_reported_on_its_open_page(site: Site, page: Page) -> None:
    page.add_init_script(WATCH)
    site.put(snapshots.happy())
    live(page, site)
    site.put(None)
    expect(page.locator("h1")).to_have_text("no cluster 'demo'")


def test_names_are_rendered_as_text(site: Site, page: Page, complaints: list[str]) -> None:
    evil = "\"><img src=x onerror='window.hit=1'><script>window.hit=1</script>"
    base = snapshots.happy()
    jobs = (snapshots.training(base.jobs[0].nodes, name=evil, user=evil, nodelist=evil), *base.jobs[1:])
    nodes = [n.model_copy(update={"reason": evil, "states": ["DOWN"]}) for n in base.status.nodes]
    site.put(
        snapshots.Snapshot(base.status.model_copy(update={"nodes": nodes}), jobs, (RecentEvent(1.0, evil, where=evil),))
    )
    live(page, site)
    assert page.evaluate("window.hit") is None
    assert page.locator("main img").count() == 0
    expect(page.locator("#pick-104")).to_have_text(evil)
    assert complaints == []


def test_theme_choice_is_remembered(site: Site, browser: Browser) -> None:
    site.put(snapshots.happy())
    context = browser.new_context(color_scheme="light")
    page = context.new_page()
    site.goto(page, "/clusters/demo")
    ground = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(ground)
    page.locator("#theme").click()
    dark = page.evaluate(ground)
    assert dark != light
    page.reload()
    assert page.evaluate(ground) == dark
    context.close()


# The controls that can be used on the page as it is, in its order, without closed or hidden ones.
STOPS = """[...document.querySelectorAll('a[href], button, input, select, textarea, summary, [tabindex="0"]')]
  .filter(e => e.checkVisibility({ visibilityProperty: true }) && !e.disabled)
  .map((e, i) => (e.dataset.stop = String(i + 1)))"""


def test_keyboard_focus_follows_page_order(site: Site, page: Page, complaints: list[str]) -> None:
    site.put(snapshots.happy())
    live(page, site)
    stops = page.evaluate(STOPS)
    page.keyboard.press("Tab")
    expect(page.locator(".skip")).to_be_focused()
    seen = ["1"]
    for _ in stops[1:]:
        page.keyboard.press("Tab")
        seen.append(page.evaluate("document.activeElement.dataset.stop || document.activeElement.outerHTML"))
    assert seen == stops
    marked = page.evaluate("[...document.querySelectorAll('[data-stop]')].map(e => e.id)")
    assert {"theme", "pick-104", "pick-105", "pick-107", "pick-108"} <= set(marked)


def test_focus_stays_when_the_queue_changes(site: Site, page: Page, complaints: list[str]) -> None:
    site.put(snapshots.happy())
    live(page, site)
    page.locator("#pick-107").focus()
    site.put(snapshots.broken())
    expect(page.locator("#job-104")).to_contain_text("requeued 1")
    expect(page.locator("#pick-107")).to_be_focused()


def test_sign_out_button_posts_with_its_origin(site: Site, page: Page, complaints: list[str]) -> None:
    site.put(snapshots.happy())
    live(page, site)
    with page.expect_request(f"{site.url}/signout") as sent:
        page.get_by_role("button", name="ann").click()
        page.get_by_role("button", name="Sign out").click()
    assert sent.value.method == "POST"
    assert sent.value.headers["origin"] == site.url  # by which the server recognises its own pages
    assert not [text for text in complaints if "401" not in text]  # from the page that it leads to
