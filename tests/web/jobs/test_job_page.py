"""An open job page updates its state, charts and array task count."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from headway.domain.slurm.nodes_and_jobs import JobState
from tests.support.clusters import builders
from tests.support.site import demo_state
from tests.support.site.server import Site

pytestmark = pytest.mark.browser


def shows(site: Site, *jobs: JobState) -> None:
    async def put() -> None:
        known = site.state.live.snapshot("demo")
        others = [job for job in known.jobs if job.id not in {job.id for job in jobs}]
        demo_state.SHOWN["demo"] = replace(
            known, jobs=(*others, *jobs), as_of=time.time()
        )  # a new reading has them too
        site.state.live.store_snapshot(demo_state.SHOWN["demo"])

    site.run(put())


def test_starting_job_gets_its_charts_on_an_open_page(demo: Site, page: Page) -> None:
    expected = int(time.time()) + 600
    job = builders.job(300, "PENDING", user="alice", gpus=8, node_count=1, start_time=expected, reason="Priority")
    shows(demo, job)
    demo.goto(page, "/clusters/demo/jobs/300")
    expect(page.locator("#job-state")).to_have_text("pending")
    expect(page.locator("#use")).to_be_empty()
    assert page.locator("#use").bounding_box() is None, "and takes no room"
    shows(demo, replace(job, state="RUNNING", start_time=int(time.time()) - 60, nodes=("demo-1-1",), reason=""))
    expect(page.locator("#job-state")).to_have_text("running")
    expect(page.locator("#use [data-charts]")).to_have_attribute("data-state", "drawn")
    expect(page.locator("#use figure")).to_have_count(8)


def test_array_task_count_updates_on_an_open_page(demo: Site, page: Page) -> None:
    states: dict[str, Any] = {"0": "RUNNING", "1": "PENDING"}
    demo.backend.answers["array_states"] = lambda *_: dict(states)
    task = replace(builders.job(300, "RUNNING", user="alice"), array_job_id=300, array_task="0")
    other = replace(builders.job(301, "PENDING", user="alice"), array_job_id=300, array_task="1")
    shows(demo, task, other)
    demo.goto(page, "/clusters/demo/jobs/300_0", role="viewer")
    expect(page.locator("#tasks")).to_contain_text("0 of 2 done, 1 running, 1 pending")
    states |= {"0": "RUNNING", "1": "FAILED"}
    demo.state.cache.forget_cluster("demo")
    shows(demo, task, replace(other, state="FAILED"))
    expect(page.locator("#tasks")).to_contain_text("0 of 2 done, 1 running, 1 failed")
    expect(page.locator("#tasks")).to_contain_text("failed: 1")


def test_array_is_one_row_that_opens_and_has_a_page_with_its_tasks(demo: Site, page: Page) -> None:
    states = {"0": "COMPLETED", "1": "FAILED", "2": "RUNNING", "3": "CANCELLED"}
    demo.backend.answers["array_states"] = lambda *_: dict(states)
    tasks = [
        replace(builders.job(300 + int(task), state, user="alice", gpus=1), array_job_id=300, array_task=task)
        for task, state in states.items()
    ]
    shows(demo, *tasks)
    demo.goto(page, "/clusters/demo/queue?show=running,waiting,ended&q=300", role="viewer")
    expect(page.locator("#rows tr")).to_have_count(1)
    expect(page.locator("#job-300")).to_contain_text("1 of 4 done, 1 running, 1 failed, 1 cancelled")
    page.locator("#open-300").click()
    expect(page.locator("#rows tr")).to_have_count(6)  # the array, four tasks, the link to all
    expect(page.locator("#open-300")).to_have_attribute("aria-expanded", "true")
    assert page.locator("#rows .q-task .q-jobarrayid").all_inner_texts() == ["300_2", "300_1", "300_0", "300_3"]
    page.locator("#jobarrayid-300").click()
    expect(page.locator("h1")).to_have_text(tasks[0].name)
    expect(page.locator("#tasks tbody tr")).to_have_count(4)
    page.locator("#show-failed").click()
    expect(page.locator("#tasks tbody tr")).to_have_count(1)
    page.get_by_role("link", name="300_1").click()
    page.wait_for_url("**/jobs/300_1")
    expect(page.locator("#job-state")).to_have_text("failed")


def test_charts_are_not_reloaded_by_an_unchanged_update(demo: Site, page: Page) -> None:
    asked: list[str] = []
    page.on("request", lambda one: asked.append(one.url) if "/clusters/demo/metrics?" in one.url else None)
    page.add_init_script(
        "document.addEventListener('htmx:sseBeforeMessage', (one) => { if (one.target.id === 'use') window.told = 'yes'; })"
    )
    demo.goto(page, "/clusters/demo/jobs/104")
    expect(page.locator("#use [data-charts]")).to_have_attribute("data-state", "drawn")
    page.wait_for_function("() => window.told")
    assert len(asked) == 1


def test_efficiency_says_what_to_change(demo: Site, page: Page) -> None:
    demo.goto(page, "/clusters/demo/jobs/104", role="viewer")
    verdict = page.locator("#efficiency")
    expect(verdict).to_contain_text("Efficiency")
    expect(verdict).to_contain_text(re.compile(r"GPUs\s*\d+ % busy on average"))
