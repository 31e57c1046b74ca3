"""Several jobs of the queue are selected, named in one question, and acted on; failures are told job by job."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from headway.errors import Refused
from tests.support.site.server import Site

pytestmark = pytest.mark.browser
AT = "/clusters/demo/queue"


def test_selected_jobs_are_named_and_failures_are_told_job_by_job(demo: Site, page: Page) -> None:
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text) if message.type in ("error", "warning") else None)

    def cancel(_cluster: object, job: str, *_: object, **__: object) -> None:
        if job == "105":
            raise Refused("Slurm is busy", hint="try again")

    demo.backend.answers |= {"cancel": cancel}
    demo.goto(page, AT, role="member")
    bar = page.locator(".q-bulk")
    expect(bar).to_be_hidden()
    expect(page.get_by_label("Select job 107")).to_be_disabled()  # carol's
    page.get_by_label("Select job 104").check()
    expect(bar).to_contain_text("1 job selected")
    bar.get_by_role("button", name="Select all shown").click()
    expect(bar).to_contain_text("2 jobs selected")
    bar.get_by_role("button", name="Cancel").click()
    question = page.get_by_role("dialog", name="Cancel 2 jobs?")
    expect(question.locator("li")).to_have_text(
        ["104 train_ddp of alice, running", "105 eval_checkpoint of alice, pending"]
    )
    question.get_by_role("button", name="Keep them").click()
    expect(bar).to_contain_text("2 jobs selected")
    bar.get_by_role("button", name="Cancel").click()
    question.get_by_role("button", name="Cancel 2 jobs").click()
    told = page.get_by_role("dialog", name="1 job cancelled")
    expect(told).to_contain_text("1 could not be cancelled; it stays selected:")
    expect(told.locator("li")).to_have_text(["105: Slurm is busy (try again)"])
    told.get_by_role("button", name="Close").click()
    expect(bar).to_contain_text("1 job selected")
    expect(page.get_by_label("Select job 105")).to_be_checked()
    assert sorted(call[1] for call in demo.backend.named("cancel")) == ["104", "105"]
    assert said == []


def test_viewers_select_nothing(demo: Site, page: Page) -> None:
    demo.goto(page, AT, role="viewer")
    expect(page.locator("#job-104")).to_be_visible()
    expect(page.locator(".q-pick").first).to_be_hidden()
    expect(page.locator(".q-bulk")).to_have_count(0)
