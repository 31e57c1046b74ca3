"""In the browser on a real cluster, a cluster is created by the form, a job is watched and cancelled, a node is
drained and returned, and each role sees its rights."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from playwright.sync_api import Browser, Page, expect
from tests.cluster.lab import Lab
from tests.cluster.web.browser import Dashboard, chromium, number_in

SCRIPT = """#!/bin/bash
#SBATCH --job-name=<b>watched</b>
#SBATCH --partition=nope
#SBATCH --time=00:05:00
#SBATCH --gpus-per-node=1
for i in $(seq 1 20000); do echo line $i; done
for i in $(seq 1 2000); do echo step $i loss 1.$i; sleep 0.1; done
"""


@pytest.fixture(scope="module")
def chrome() -> Iterator[Browser]:
    with chromium() as made:
        yield made


@pytest.fixture
def dashboard(lab: Lab, chrome: Browser) -> Iterator[Dashboard]:
    made = Dashboard(lab, chrome)
    yield made
    made.close()


def test_job_can_be_submitted_followed_searched_and_cancelled_in_the_browser(dashboard: Dashboard) -> None:
    queue, page = dashboard.as_("alice", "member"), dashboard.as_("alice", "member")
    dashboard.go(queue, "/clusters/lab/queue")
    dashboard.go(page, "/clusters/lab/submit")
    page.fill("#f-script", SCRIPT)
    page.locator("#f-script").blur()
    expect(page.locator("#fault-partition")).to_contain_text("has no partition 'nope'")
    page.fill("#f-script", SCRIPT.replace("nope", "train"))
    page.locator("#f-script").blur()
    expect(page.locator("#verdict")).to_contain_text("Slurm expects to start it")
    page.click("#send")
    job = number_in(page, "jobs")
    row = queue.locator(f"#job-{job}")
    expect(row).to_contain_text("<b>watched</b>")  # without a reload, and as text
    log = page.locator("#log-text")
    expect(log).to_contain_text("step 1 loss")
    expect(log).to_contain_text("step 9 loss")  # without a reload
    expect(page.locator("#log-state")).to_have_text("live")
    expect(page.locator("#chart canvas")).to_be_visible()
    page.get_by_role("searchbox", name="Search the whole log").fill("line 17777")
    page.keyboard.press("Enter")
    page.locator("#log-found").get_by_role("button", name="line 17777").click()
    expect(log.locator("mark")).to_have_text("line 17777")
    expect(row.locator(".word")).to_have_text("running")
    page.click("#do-cancel")
    page.locator("#ask-cancel").get_by_role("button", name="Cancel").click()
    expect(page.locator("#job-state")).to_have_text("cancelled")
    expect(row).to_have_count(0)  # the queue shows running and waiting jobs only
    assert dashboard.lab.wait_job(job) == "CANCELLED"


def test_node_can_be_drained_and_returned_in_the_browser(dashboard: Dashboard) -> None:
    page, other = dashboard.as_("olga", "operator"), dashboard.as_("victor", "viewer")
    dashboard.go(other, "/clusters/lab")
    node = other.locator("#node-lab-2-2")
    expect(node).to_have_class(re.compile("is-idle"))
    dashboard.go(page, "/clusters/lab/nodes/lab-2-2")
    page.get_by_role("button", name="Drain", exact=True).click()
    page.get_by_label("Reason").fill("disk swap; rm -rf '<i>'")
    page.locator("#ask-drain").get_by_role("button", name="Drain").click()
    expect(page.locator("#node .pill").first).to_have_text("drained")
    expect(node).to_have_class(re.compile("is-drain"))
    expect(node).to_contain_text("disk swap; rm -rf '<i>'")
    assert "disk swap; rm -rf '<i>'" in dashboard.lab.head("sinfo", "-h", "-R", "-o", "%E|%n").out
    page.get_by_role("button", name="Return to service").click()
    page.locator("#ask-return").get_by_role("button", name="Return").click()
    expect(page.locator("#node .pill").first).to_have_text("idle")
    expect(node).to_have_class(re.compile("is-idle"))
    dashboard.go(other, "/clusters/lab/events?show=action")
    events = other.locator(".events li")
    expect(events.nth(0)).to_contain_text("lab-2-2 returned to service by olga")
    expect(events.nth(1)).to_contain_text("lab-2-2 drained: disk swap")


@dataclass(frozen=True)
class May:
    """The rights of a role on a cluster where alice (of vision) and sam (of speech) have a job each; vera leads
    vision."""

    person: str
    role: str
    submit: bool = False
    cancel_alices: bool = False
    cancel_sams: bool = False
    nodes: bool = False
    people: bool = False


MAY = (
    May("victor", "viewer"),
    May("alice", "member", submit=True, cancel_alices=True),
    May("vera", "lead", submit=True, cancel_alices=True),
    May("olga", "operator", submit=True, nodes=True),
    May("", "admin", submit=True, cancel_alices=True, cancel_sams=True, nodes=True, people=True),
)
POST = "path => fetch(path, { method: 'POST', redirect: 'manual' }).then(answer => answer.status || 303)"


def test_each_role_sees_and_has_exactly_its_rights_in_the_browser(dashboard: Dashboard) -> None:
    lab = dashboard.lab
    alices, sams = (lab.sbatch(user, "-o", "/dev/null", wrap="sleep 600") for user in ("alice", "sam"))
    try:
        lab.wait_job(alices, "RUNNING")
        lab.wait_job(sams, "RUNNING")
        for may in MAY:
            _goes_through(dashboard, dashboard.as_(may.person, may.role), may, alices, sams)
        assert (lab.state_of(alices), lab.state_of(sams)) == ("RUNNING", "RUNNING")
    finally:
        lab.head("scancel", str(alices), str(sams))


def _goes_through(dashboard: Dashboard, page: Page, may: May, alices: int, sams: int) -> None:
    admin = page.get_by_role("link", name="Admin", exact=True)
    expect(admin).to_have_count(int(may.people))
    if may.people:
        admin.click()
        expect(page.get_by_role("link", name="People", exact=True)).to_have_attribute("aria-current", "page")
    for job, cancels in ((alices, may.cancel_alices), (sams, may.cancel_sams)):
        dashboard.go(page, f"/clusters/lab/jobs/{job}")
        expect(page.get_by_role("link", name="Submit", exact=True)).to_have_count(int(may.submit))
        expect(page.locator("#job-state")).to_have_text("running")
        expect(page.locator("#do-cancel")).to_have_count(int(cancels))
        expect(page.locator("#log-text")).to_have_count(int(cancels))
        if not cancels:  # an action without a button is refused all the same
            assert page.evaluate(POST, f"/clusters/lab/jobs/{job}/cancel") == 403
    dashboard.go(page, "/clusters/lab/nodes/lab-1-1")
    expect(page.get_by_role("button", name="Drain", exact=True)).to_have_count(int(may.nodes))
    if not may.nodes:
        assert page.evaluate(POST, "/clusters/lab/nodes/lab-1-1/return") == 403
    if not may.people:
        assert page.evaluate(POST, "/people") in (403, 405)
        dashboard.go(page, "/people")
        expect(page.get_by_role("heading", level=1)).to_contain_text("may not")
    if not may.submit:
        assert page.evaluate(POST, "/clusters/lab/submit") == 403


def test_cluster_can_be_created_and_its_apply_watched_in_the_browser(dashboard: Dashboard) -> None:
    """Creates its own head and node: on the shared cluster no machine would be created."""
    lab, page = dashboard.lab, dashboard.as_()
    page.get_by_role("link", name="New cluster").first.click()
    page.fill("#i-name", "mini")
    page.fill("#i-nodes", "1")
    page.fill("#i-spares", "0")
    expect(page.locator("#text")).to_have_value(re.compile(r"name: mini\n(.*\n)*nodes: 1\n"))
    expect(page.locator("#faults")).to_contain_text("no faults")
    page.get_by_role("button", name="Show the changes").click()
    expect(page.locator("#changes")).to_contain_text("mini-1-1")
    try:
        page.locator("#changes").get_by_role("button", name="Apply").click()
        expect(page.get_by_role("heading", name="Apply mini")).to_be_visible()
        expect(page.locator(".step.is-running")).not_to_have_count(0)
        expect(page.locator(".step.is-done")).not_to_have_count(0)
        page.get_by_role("link", name="Open mini").click()
        expect(page.locator("#place .pill")).to_have_text("ready")
        expect(page.locator("#fabric")).to_contain_text("mini-1-1")
        expect(page.locator("#place .sim")).to_have_text("simulated GPUs")
        dashboard.go(page, "/clusters/mini/events")
        expect(page.locator(".events li").first).to_contain_text("apply: done")
    finally:
        lab.cli("down", "mini", "--yes", "--delete-data", check=False)
    dashboard.go(page, "/")
    expect(page.locator("#cluster-lab")).to_be_visible()
    expect(page.locator("#cluster-mini")).to_have_count(0)
