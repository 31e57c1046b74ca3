"""A new cluster is made in one flow: form, file, errors while typing, changes, apply and its progress."""

from __future__ import annotations

import re
import time

import pytest
from playwright.sync_api import Browser, Page, expect

from headway.domain.changeset import Disturbs
from headway.server.cluster_backend.cluster_lifecycle import LifecycleBackend
from headway.services.read_model.topic_hub import operation_topic
from headway.store import Operation
from tests.support.servers.server_fakes import changes
from tests.support.site.server import Site

pytestmark = pytest.mark.browser


@pytest.fixture
def real(demo: Site) -> Site:
    """Returns the demo with the real validation of cluster files."""
    demo.backend.lifecycle.resolve = LifecycleBackend(None).resolve  # type: ignore[method-assign,arg-type]
    demo.backend.answers["plan"] = lambda cluster: changes(
        Disturbs.NOTHING, Disturbs.CONTROLLER_RESTART, cluster=cluster.name
    )
    return demo


def test_new_cluster_form_and_file_stay_in_sync(real: Site, page: Page) -> None:
    real.goto(page, "/new", role="member")
    text, faults = page.locator("#text"), page.locator("#faults")
    page.fill("#i-nodes", "0")
    expect(page.locator("#f-nodes")).to_contain_text("add max, the largest number of nodes")
    expect(faults.locator("[data-line]")).to_have_text("line 3")
    expect(page.locator("#gutter .is-error")).to_have_text("3")
    expect(page.locator("#cost")).to_be_empty()
    page.fill("#i-nodes", "2")
    expect(faults).to_contain_text("no faults")
    expect(page.locator("#cost")).to_contain_text("$71.76 / hour for 2 nodes and 1 spare")
    page.fill("[name=team-0-name]", "vision")
    page.fill("[name=team-0-users]", "alice, bob")
    expect(text).to_have_value(text.input_value().split("teams:")[0].rstrip() + _TEAMS)
    expect(page.locator("[name=team-1-name]")).to_be_empty()  # another row was added by itself

    text.fill(text.input_value().replace("nodes: 2", "nodes: 5") + "partitions:\n  debug: {nodes: 1}\n")
    expect(page.locator("#i-nodes")).to_have_value("5")
    expect(page.locator("#waits")).to_contain_text("partitions")
    page.check("input[name=plan][value=a100-8]")
    expect(text).to_have_value(_matches("plan: a100-8", "debug:", "nodes: 5"))
    text.fill("name: [lab")
    expect(page.locator("#waits")).to_contain_text("The form waits")
    page.fill("#i-nodes", "7")
    expect(text).to_have_value("name: [lab")


_TEAMS = "\nteams:\n  vision:\n    users:\n      - alice\n      - bob\n"


def _matches(*words: str) -> re.Pattern[str]:
    return re.compile("".join(f"(?=[\\s\\S]*{re.escape(word)})" for word in words))


def test_new_cluster_changes_are_shown_confirmed_and_applied(real: Site, page: Page) -> None:
    real.goto(page, "/new")
    page.click("text=Show the changes")
    shown = page.locator("#changes")
    expect(shown).to_contain_text("controller restart, jobs keep running")
    shown.get_by_role("button", name="Apply").click()
    assert "/operations/" not in page.url, "what disturbs something is agreed to first"
    shown.get_by_role("checkbox").check()
    shown.get_by_role("button", name="Apply").click()
    expect(page.get_by_role("heading", name="Apply lab")).to_be_visible()
    operation = page.url.rpartition("/")[2]

    async def work() -> Operation | None:
        store = real.state.store
        taken = await store.operations.claim("test:1", time.time(), 60)
        await store.operations.add_event(operation, "lab-head", "is set up", done=True, seconds=4.2)
        real.state.live.hub.publish(operation_topic(operation))
        return taken

    assert real.run(work()) is not None
    expect(page.locator(".step")).to_contain_text("is set up")
    expect(page.locator(".step__time")).to_have_text("4.2 s")
    real.run(real.state.store.operations.finish(operation, "test:1", "done"))
    expect(page.get_by_role("link", name="Open lab")).to_be_visible()


def test_new_cluster_form_works_without_scripts(real: Site, browser: Browser) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    real.goto(page, "/new")
    page.fill("#i-nodes", "many")
    page.click("text=Check")
    expect(page.locator("#f-nodes")).to_have_text("must be a whole number")
    page.fill("#i-nodes", "3")
    page.click("text=Show the changes")
    expect(page.locator("#text")).to_have_value(_matches("nodes: 3"))
    page.get_by_role("checkbox", name="1 change disturbs").check()
    page.get_by_role("button", name="Apply").click()
    expect(page.get_by_role("heading", name="Apply lab")).to_be_visible()
    context.close()


def test_member_can_plan_but_not_apply(real: Site, page: Page) -> None:
    real.goto(page, "/new", role="member")
    page.click("text=Show the changes")
    expect(page.locator("#changes")).to_contain_text("Only an admin may apply it")
    expect(page.get_by_role("button", name="Apply")).to_have_count(0)


def test_failed_operation_page_shows_hint_and_failed_step(demo: Site, page: Page) -> None:
    demo.goto(page, "/operations/op-failed", role="viewer")
    expect(page.get_by_role("alert")).to_contain_text("free space on the server's disk")
    expect(page.locator(".step.is-failed")).to_contain_text("no space left on device")
    expect(page.locator(".others")).to_contain_text("running")
