"""The pages of daily work (the queue, a job, a submission) stay fast and show hostile texts as text."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Page, expect

from headway.domain.slurm.nodes_and_jobs import JobState
from headway.errors import Refused
from headway.jobs.submission.lineage import stored_request
from headway.jobs.submission.prepare_job import prepare_run
from headway.schemas.submission.run_request import RunIn
from headway.schemas.submission.submit_request import SubmitOut
from tests.support.clusters import builders
from tests.support.site import demo_state, snapshots
from tests.support.site.server import PEOPLE, Site

pytestmark = pytest.mark.browser
EVIL = "\"><img src=x onerror='window.hit=1'><script>window.hit=1</script>"
ROW = "#rows tr"


@pytest.fixture
def complaints(page: Page) -> list[str]:
    """Returns a list of the errors and warnings on the browser's console."""
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: said.append(str(error)))
    return said


def labels(page: Page) -> list[str]:
    return page.locator("#rows .q-jobarrayid a").all_inner_texts()


def test_queue_view_is_stored_in_its_url(demo: Site, page: Page, complaints: list[str]) -> None:
    demo.goto(page, "/clusters/demo/queue", role="member")
    assert labels(page) == ["104", "105", "107", "108"]
    expect(page.locator("#job-107")).to_contain_text("waits until enough nodes or GPUs are free")
    page.locator("#filters [name=user]").select_option("carol")
    expect(page.locator(ROW)).to_have_count(1)
    assert "user=carol" in page.url
    page.get_by_role("link", name="Clear").click()
    page.get_by_label("Search", exact=True).fill("SWEEP")
    page.keyboard.press("Enter")
    expect(page.locator(ROW)).to_have_count(1)
    page.goto(f"{demo.url}/clusters/demo/queue?sort=-jobarrayid&show=running,waiting,ended&cols=jobarrayid,qos,numcpus")
    assert labels(page) == ["108", "107", "105", "104", "101"]
    assert page.locator("thead th").all_inner_texts() == ["Job", "QOS", "CPUs"]
    page.locator("thead").get_by_role("link", name="Job").click()
    expect(page.locator("#rows .q-jobarrayid a").first).to_have_text("101")
    page.get_by_role("button", name=re.compile("Columns")).click()
    page.locator("#columns").get_by_label("Restarts").check()
    page.locator("#columns").get_by_role("button", name="Show these").click()
    expect(page.locator("thead th")).to_have_count(4)
    assert "restartcnt" in page.url
    assert complaints == []


def test_keyboard_selection_in_a_filter_sends_nothing_until_confirmed(demo: Site, page: Page) -> None:
    demo.goto(page, "/clusters/demo/queue", role="member")
    user = page.locator("#filters [name=user]")
    people = user.locator("option").all_inner_texts()[1:]
    asked: list[str] = []
    page.on("request", lambda one: asked.append(one.url) if one.is_navigation_request() else None)
    user.focus()
    for person in people:
        page.keyboard.press("ArrowDown")
        expect(user).to_have_value(person)
    assert len(people) > 1
    assert asked == []
    page.locator("#filters").get_by_role("button", name="Search").press("Enter")
    page.wait_for_url(f"**user={people[-1]}*")


def test_queue_with_10000_tasks_is_fast_and_escapes_names(demo: Site, page: Page, complaints: list[str]) -> None:
    tasks = tuple(
        builders.job(
            5000 + i, "PENDING", name=EVIL, user="alice", account="vision", reason="Priority", array_job_id=5000,
            array_task=str(i), gpus=1, node_count=1, submit_time=int(time.time()) - 60, priority=10,
            start_time=0,
        )
        for i in range(10_000)
    )  # fmt: skip
    _queued(demo, tasks)
    demo.backend.answers["array_states"] = {task.array_task: task.state for task in tasks}
    began = time.monotonic()
    assert "10,000 tasks" in _get(demo, "/clusters/demo/queue").text
    answer = _get(demo, "/clusters/demo/queue?size=250&array=5000")
    took_s = time.monotonic() - began
    assert "1 to 250 of 10,000" in answer.text
    assert answer.num_bytes_downloaded < 150_000
    assert took_s < 60, took_s  # half a second on an idle machine
    demo.goto(page, "/clusters/demo/queue?show=waiting&array=5000")
    expect(page.locator(ROW)).to_have_count(50)
    expect(page.locator("#name-5000")).to_have_text(EVIL)
    page.get_by_role("link", name="Next").click()
    expect(page.locator("#jobarrayid-5050")).to_have_text("5000_50")
    page.goto(f"{demo.url}/clusters/demo/jobs/5000_7")
    expect(page.locator("h1")).to_have_text(EVIL)
    expect(page.locator("#head")).to_contain_text("jobs go before it")
    expect(page.locator("[aria-labelledby=tasks-title]")).to_contain_text("0 of 10,000 done, 10,000 pending")
    page.get_by_role("link", name="All tasks").click()
    expect(page.locator("#tasks tbody tr")).to_have_count(100)
    expect(page.locator("#tasks")).to_contain_text("1 to 100 of 10,000 tasks")
    page.goto(f"{demo.url}/clusters/demo")
    assert page.evaluate("window.hit") is None
    assert complaints == []


def _queued(demo: Site, tasks: tuple[JobState, ...]) -> None:
    known = demo.state.live.snapshot("demo")
    demo_state.SHOWN["demo"] = replace(known, jobs=(known.jobs[0], *tasks))
    demo.loop.call_soon_threadsafe(demo.state.live.store_snapshot, demo_state.SHOWN["demo"])


def _get(demo: Site, path: str) -> httpx.Response:
    cookie = demo.run(demo._sign_in(PEOPLE["viewer"], "viewer"))
    return httpx.get(f"{demo.url}{path}", cookies={demo.state.settings.cookie: cookie}, timeout=60)


def test_log_with_100000_lines_stays_usable_and_escapes_text(
    demo: Site, page: Page, complaints: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [f"line {i} {EVIL}" if i % 1000 == 0 else f"line {i}" for i in range(100_000)]
    monkeypatch.setattr(demo_state, "LOG", lines)
    more = [f"live {i}\n" for i in range(100_000)]
    demo.backend.answers["follow_log"] = ["".join(more[i : i + 500]).encode() for i in range(0, 100_000, 500)]
    began = time.monotonic()
    demo.goto(page, "/clusters/demo/jobs/104", role="member")
    text = page.locator("#log-text")
    expect(text).to_contain_text("live 99999")
    assert time.monotonic() - began < 120
    assert int(text.get_attribute("data-lines") or 0) <= 5000
    expect(page.locator("#log-state")).to_have_text("complete")
    page.get_by_label("Search the whole log").fill("line 97777")
    page.get_by_role("button", name="Search").click()
    hit = page.locator("#log-found button")
    expect(hit).to_have_count(1)
    hit.click()
    expect(text.locator("mark")).to_have_text("line 97777")
    with page.expect_download() as got:
        page.get_by_role("link", name="Download").click()
    assert got.value.suggested_filename == "job-104.log"
    assert page.evaluate("window.hit") is None
    assert complaints == []


def test_owner_can_requeue_cancel_hold_and_clone_jobs(demo: Site, page: Page, complaints: list[str]) -> None:
    demo.backend.answers |= {"cancel": None, "control": None}
    demo.goto(page, "/clusters/demo/jobs/104", role="member")
    course = page.locator("#timeline")
    expect(course).to_contain_text("Submitted")
    expect(course).to_contain_text("Incident 2 on demo-1-3")
    assert page.locator("#timeline a").first.get_attribute("href") == "/clusters/demo/incidents/2"
    expect(page.locator("#facts")).to_contain_text("2 leaf switches (optimal)")
    page.locator("#do-requeue").click()
    page.locator("#ask-requeue").get_by_role("button", name="Requeue").click()
    expect(page.locator("#toasts")).to_contain_text("Job 104 goes back to the queue")
    page.locator("#do-cancel").click()
    page.locator("#ask-cancel").get_by_role("button", name="Cancel").click()
    expect(page.locator("#toasts")).to_contain_text("Job 104 is cancelled")
    assert [args[1:] for args in demo.backend.named("cancel")] == [("104", "alice", False)]
    assert [args[1:3] for args in demo.backend.named("control")] == [("104", "requeue")]
    page.goto(f"{demo.url}/clusters/demo/jobs/105")
    page.get_by_role("button", name="Hold").click()
    expect(page.locator("#toasts")).to_contain_text("Job 105 is held")
    page.get_by_role("link", name="Edit and resubmit").click()
    expect(page.locator("#f-script")).to_have_value(demo_state.SCRIPT.decode())
    expect(page.locator("#verdict")).to_contain_text("It fits.")
    demo.goto(page, "/clusters/demo/jobs/104", role="viewer")
    expect(page.locator("#do-cancel")).to_have_count(0)
    expect(page.locator("#log-text")).to_have_count(0)
    assert complaints == []


def test_open_dialog_survives_page_updates(demo: Site, page: Page, complaints: list[str]) -> None:
    demo.put(snapshots.happy())
    demo.goto(page, "/clusters/demo/jobs/104", role="member")
    expect(page.locator("#head")).not_to_contain_text("requeued")
    page.locator("#do-cancel").click()
    demo.put(snapshots.broken())
    expect(page.locator("#facts")).to_contain_text("demo-2-1")  # the update has arrived
    question = page.locator("#ask-cancel")
    expect(question).to_be_visible()
    question.get_by_role("button", name="Keep it").click()
    expect(page.locator("#head")).to_contain_text("requeued 1")
    assert complaints == []


def test_update_while_a_dialog_opens_is_applied_after_it_closes(demo: Site, page: Page) -> None:
    demo.put(snapshots.happy())
    page.route(
        "**/live*", lambda route: route.abort()
    )  # no other update: the stream sends every part once when it begins
    demo.goto(page, "/clusters/demo/jobs/104", role="member")
    expect(page.locator("#head")).not_to_contain_text("requeued")
    # A browser reports "toggle" one task after the opening: the update is put between the two.
    page.evaluate("""() => {
        const question = document.getElementById("ask-cancel"), part = question.closest("[sse-swap]");
        question.showPopover();
        part.dispatchEvent(new CustomEvent("htmx:sseBeforeMessage", {
            bubbles: true, cancelable: true, detail: { data: "<p id='news'>news</p>" },
        }));
        return new Promise((done) => setTimeout(done, 50));
    }""")
    question = page.locator("#ask-cancel")
    expect(question).to_be_visible()
    question.get_by_role("button", name="Keep it").click()
    expect(page.locator("#news")).to_have_text("news")


def test_submit_form_shows_faults_at_their_fields_and_submits(demo: Site, page: Page, tmp_path: Path) -> None:
    demo.goto(page, "/clusters/demo/submit", role="member")
    script = tmp_path / "mine.sbatch"
    script.write_text("#!/bin/bash\n#SBATCH --nodes=2 --gpus-per-node=8\nsrun hostname\n")
    page.locator("#f-file").set_input_files(script)
    verdict = page.locator("#verdict")
    expect(verdict).to_contain_text("It fits. Slurm expects to start it in 14 min on demo-1-1, partition train")
    for field, value, said in (
        ("GPUs per node", "9", "the job requests 9 GPUs per node; a node of demo has 8"),
        ("Time limit", "30-0", "the job requests 30 days; train allows 7 days"),
        ("Nodes", "99", "the job requests 99 nodes; train has 5"),
    ):
        box = page.get_by_label(field, exact=True)
        box.fill(value)
        box.press("Tab")
        expect(page.locator(".field.is-bad").filter(has_text=said)).to_have_count(1)
        box.fill("")
        box.press("Tab")
        expect(page.locator(".field.is-bad")).to_have_count(0)
    page.locator("#f-partition").select_option("train")
    demo.backend.answers["submit"] = Refused("sbatch: error: QOSMaxSubmitJobPerUserLimit", hint="wait")
    page.get_by_role("button", name="Submit").click()
    expect(page.locator(".field.is-bad")).to_contain_text("QOSMaxSubmitJobPerUserLimit")
    expect(page.locator("#verdict")).to_contain_text("1 thing to correct")
    expect(page.locator("#f-partition")).to_have_value("train")
    demo.backend.answers["submit"] = SubmitOut(job_id=105, cluster="demo", user="alice", workdir="~", message="")
    page.get_by_role("button", name="Submit").click()
    page.wait_for_url("**/jobs/105")
    sent = demo.backend.named("submit")[-1][1]
    assert (sent.script_name, sent.args) == ("mine.sbatch", ["--partition=train"])
    expect(page.locator("#toasts")).to_contain_text("Job 105 is submitted")


def test_command_is_turned_into_a_script(demo: Site, page: Page) -> None:
    demo.goto(page, "/clusters/demo/submit?how=command", role="member")
    page.locator("#f-command").fill("torchrun train.py --lr '1e-3")
    page.locator("#f-command").press("Tab")
    expect(page.locator(".field.is-bad")).to_contain_text("a quote may be missing")
    page.locator("#f-command").fill("torchrun train.py --lr '1e-3'")
    page.locator("#f-gpus").fill("8")
    page.locator("#f-gpus").press("Tab")
    expect(page.locator("#verdict")).to_contain_text("It fits.")
    expect(page.locator(".s-made pre")).to_contain_text("torchrun")


def test_clone_gets_its_own_folder_and_asks_for_secrets(demo: Site, page: Page, complaints: list[str]) -> None:
    run = RunIn(
        argv=["torchrun", "train.py", "--tokenizer", "gpt2"], nodes=2, gpus=8, env={"HF_TOKEN": "s3cret", "A": "1"}
    )
    _, cluster = demo.run(demo.state.clusters.get("demo"))
    first = prepare_run(run, cluster, "alice", "20260101-000000-abcd")
    keeping = demo.state.store.jobs.record("demo", 104, person="alice", user="alice", kind="run",
                                        request=stored_request(first), facts={}, audit={})  # fmt: skip
    demo.run(keeping)
    demo.goto(page, "/clusters/demo/jobs/104", role="member")
    page.get_by_role("link", name="Edit and resubmit").click()
    expect(page.locator("#f-args")).to_have_value("train.py --tokenizer gpt2")
    expect(page.locator("#f-script")).to_have_value(re.compile(re.escape(first.job_folder)))
    expect(page.locator("#origin")).to_contain_text(f"The new folder replaces {first.job_folder}")
    expect(page.locator("#f-chdir")).to_have_count(0)
    expect(page.locator(".field.is-bad")).to_contain_text("HF_TOKEN is a secret and was not stored")
    page.get_by_label("HF_TOKEN").fill("again")
    page.get_by_label("HF_TOKEN").press("Tab")
    expect(page.locator("#verdict")).to_contain_text("It fits.")
    expect(page.locator(".field.is-bad")).to_have_count(0)
    demo.backend.answers["submit"] = SubmitOut(job_id=105, cluster="demo", user="alice", workdir="~", message="")
    page.get_by_role("button", name="Submit").click()
    page.wait_for_url("**/jobs/105")
    _, sent, _, stage = next(call for call in demo.backend.named("submit")[::-1] if "--test-only" not in call[1].args)
    assert (sent.env, sent.script_args) == (run.env | {"HF_TOKEN": "again"}, ["train.py", "--tokenizer", "gpt2"])
    assert stage.work == sent.chdir != first.job_folder
    assert first.job_folder not in sent.script
    assert complaints == []
