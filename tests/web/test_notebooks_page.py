"""The notebooks page; and what a page on the notebooks' origin can't do to the API."""

from __future__ import annotations

import pytest
from conftest import Site
from playwright.sync_api import Page, expect

from headway.wire.work import SubmitOut

pytestmark = pytest.mark.browser
FETCH = """async ([url, how]) => {
  try { const answer = await fetch(url, how); return [answer.type, await answer.text()]; }
  catch (error) { return ["refused", ""]; }
}"""


def test_one_is_started_and_says_how_it_stands(demo: Site, page: Page) -> None:
    object.__setattr__(demo.state.settings, "notebooks", "http://notebooks.localhost:7879")
    demo.work.answers["submit"] = SubmitOut(job_id=105, cluster="demo", user="alice", workdir="~")
    demo.goto(page, "/clusters/demo/notebooks", role="member")
    books = page.locator("#notebooks")
    expect(books.locator("li.is-running")).to_contain_text("simulated GPUs")
    expect(books.locator("li.is-waiting")).to_contain_text("waiting")
    opens = books.get_by_role("link", name="Open")
    assert (opens.get_attribute("rel"), opens.get_attribute("target")) == ("noopener", "_blank")
    page.fill("#nb-gpus", "99")
    page.click("text=Start >> nth=-1")
    expect(page.get_by_role("alert").or_(page.locator(".field__fault"))).to_be_visible()
    page.fill("#nb-gpus", "2")
    page.get_by_role("button", name="Start").click()
    expect(books.locator("li")).to_have_count(3)
    assert "--gpus-per-node=2" in demo.work.named("submit")[0][1].args


@pytest.mark.parametrize("origin", ["http://notebooks.localhost:9", "http://127.0.0.1:9"])
def test_a_notebooks_page_can_neither_read_the_api_nor_write_to_it(demo: Site, page: Page, origin: str) -> None:
    """On the other host name, and on a port of the same name, where browsers do send our cookie."""
    before = demo.run(demo.state.store.operations("demo"))
    demo.goto(page, "/clusters/demo", role="admin")
    page.route(
        f"{origin}/**",
        lambda route: route.fulfill(body="<!doctype html><title>notebook</title>", content_type="text/html"),
    )
    page.goto(f"{origin}/n/x/lab")
    api = f"{demo.url}/api/v1/clusters"
    for how in ({"credentials": "include"}, {"credentials": "include", "mode": "no-cors"}):
        assert page.evaluate(FETCH, [api, how])[1] == ""
    write = {"credentials": "include", "mode": "no-cors", "method": "POST"}
    for path in ("/signout", "/new/apply", "/api/v1/clusters/demo/down"):
        page.evaluate(FETCH, [f"{demo.url}{path}", write])
    assert page.evaluate(FETCH, [f"{api}/demo/jobs/104", {"credentials": "include", "method": "DELETE"}])[1] == ""
    assert demo.work.named("cancel") == []
    assert demo.run(demo.state.store.operations("demo")) == before
    page.goto(f"{demo.url}/clusters/demo")
    expect(page.get_by_role("heading", name="Sign in")).to_have_count(0)
