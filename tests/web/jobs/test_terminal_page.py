"""The terminal's page runs a shell: typed keys, sizes, colours, the way out by keyboard, and words when it has ended."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from headway.errors import Unreachable
from tests.support.site import terminals
from tests.support.site.server import Site
from tests.support.waiting import wait_until

pytestmark = pytest.mark.browser
SCREEN = ".xterm-rows"


@pytest.fixture
def shell(demo: Site) -> Site:
    """Returns the site with a real shell behind its terminals."""
    demo.backend.answers["run_on_terminal"] = terminals.real_shell
    return demo


def type_line(page: Page, text: str) -> None:
    page.keyboard.type(text)
    page.keyboard.press("Enter")


def test_keys_reach_the_shell_and_its_output_the_page(shell: Site, page: Page) -> None:
    shell.goto(page, "/clusters/demo/terminal", role="member")
    expect(page.locator(SCREEN)).to_contain_text("ready>")
    expect(page.locator("#terminal-state")).to_have_text("Connected.")
    type_line(page, "echo $((6*7)) größer")
    expect(page.locator(SCREEN)).to_contain_text("42 größer")
    type_line(page, "printf '\\033[31m%s\\033[38;2;10;200;30m%s\\033[0m\\n' red green")
    expect(page.locator(f"{SCREEN} span", has_text=re.compile("^red$"))).to_be_visible()
    colour = page.locator(f"{SCREEN} span", has_text=re.compile("^green$")).evaluate("e => getComputedStyle(e).color")
    assert colour != page.locator("body").evaluate("e => getComputedStyle(e).color")
    type_line(page, "exit 3")
    expect(page.locator("#terminal-state")).to_have_text("The shell has ended with code 3.")
    page.get_by_role("button", name="Open again").click()
    expect(page.locator("#terminal-state")).to_have_text("Connected.")
    type_line(page, "echo second")
    expect(page.locator(SCREEN)).to_contain_text("second")


def test_control_c_interrupts_and_a_flood_ends(shell: Site, page: Page) -> None:
    shell.goto(page, "/clusters/demo/terminal", role="member")
    expect(page.locator(SCREEN)).to_contain_text("ready>")
    type_line(page, "yes flood")
    expect(page.locator(SCREEN)).to_contain_text("flood")
    page.keyboard.press("Control+c")
    type_line(page, "echo calm")
    expect(page.locator(SCREEN)).to_contain_text(re.compile("calm.*ready>"), timeout=60_000)


def test_shell_learns_the_size_of_the_page(shell: Site, page: Page) -> None:
    page.set_viewport_size({"width": 1200, "height": 900})
    shell.goto(page, "/clusters/demo/terminal", role="member")
    expect(page.locator(SCREEN)).to_contain_text("ready>")
    type_line(page, "echo first; stty size")
    expect(page.locator(SCREEN)).to_contain_text(re.compile(r"first\s*\d+ 1\d\d"))
    page.set_viewport_size({"width": 700, "height": 700})
    type_line(page, "sleep 1; echo later; stty size")
    expect(page.locator(SCREEN)).to_contain_text(re.compile(r"later\s*\d+ [678]\d\D"))


def test_terminal_can_be_left_by_the_keyboard(shell: Site, page: Page) -> None:
    shell.goto(page, "/clusters/demo/terminal", role="member")
    expect(page.locator(SCREEN)).to_contain_text("ready>")
    page.keyboard.press("Tab")  # goes to the shell
    assert page.evaluate("document.activeElement.closest('#terminal') !== null")
    page.keyboard.press("Shift+F6")
    assert page.evaluate("document.activeElement.closest('#terminal') === null")


def test_shell_ends_when_the_page_is_left(shell: Site, page: Page) -> None:
    shell.goto(page, "/clusters/demo/terminal", role="member")
    expect(page.locator(SCREEN)).to_contain_text("ready>")
    assert shell.state.command_inputs
    page.goto(f"{shell.url}/clusters/demo/queue")
    wait_until(lambda: not shell.state.command_inputs, "the shell to end", lambda: str(shell.state.command_inputs))


def test_error_of_the_cluster_is_said_with_what_to_do(demo: Site, page: Page) -> None:
    async def broken(*_: object):  # type: ignore[no-untyped-def]
        yield "out", b"begun"
        raise Unreachable("the head does not answer", hint="headway status demo")

    demo.backend.answers["run_on_terminal"] = broken
    demo.goto(page, "/clusters/demo/terminal", role="member")
    expect(page.locator("#terminal-state")).to_have_text("The head does not answer. Headway status demo.")


def test_running_job_links_to_a_terminal_on_one_of_its_nodes(shell: Site, page: Page) -> None:
    shell.goto(page, "/clusters/demo/jobs/104", role="member")
    page.get_by_role("link", name="Terminal", exact=True).and_(page.locator("#open-terminal")).click()
    expect(page.locator(SCREEN)).to_contain_text("ready>")
    page.get_by_label("Node", exact=True).select_option(index=1)
    page.get_by_role("button", name="Open there").click()
    expect(page.locator(SCREEN)).to_contain_text("ready>")
    calls = shell.backend.named("run_on_terminal")
    nodes = [[word for word in call[1] if word.startswith("--nodelist")] for call in calls]
    assert nodes[-2] == []
    assert nodes[-1] == [f"--nodelist={page.get_by_label('Node', exact=True).input_value()}"]


def test_person_without_a_right_to_a_job_has_no_terminal_in_it(shell: Site, page: Page) -> None:
    shell.goto(page, "/clusters/demo/jobs/104", role="operator")
    expect(page.locator("#open-terminal")).to_have_count(0)
