"""The submit page checks what is typed: it shows what lint finds in the script, and corrects it."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.support.site.server import Site

pytestmark = pytest.mark.browser
SCRIPT = "#!/bin/bash\n#SBATCH --time=10\ncd /scratch\n#SBATCH --nodes=1\nexport NCCL_DEBUG=INFO\nsrun hostname\n"


def test_correction_changes_the_script(demo: Site, page: Page) -> None:
    demo.goto(page, "/clusters/demo/submit", role="member")
    text = page.locator("#f-script")
    text.fill(SCRIPT)
    text.dispatch_event("change")
    finding = page.locator(".s-findings li").first
    expect(finding).to_contain_text("Line 4 sbatch ignores this line")
    expect(finding.locator("pre")).to_contain_text("+ #SBATCH --nodes=1\n- #SBATCH --nodes=1")
    expect(page.locator(".s-notes > summary")).to_have_text("1 note on the script")
    finding.get_by_role("button", name="Correct it").click()
    expect(page.locator(".s-findings li", has_text="sbatch ignores")).to_have_count(0)
    expect(text).to_have_value(
        "#!/bin/bash\n#SBATCH --time=10\n#SBATCH --nodes=1\ncd /scratch\nexport NCCL_DEBUG=INFO\nsrun hostname\n"
    )


def test_a_fault_marks_its_line_and_leads_to_it(demo: Site, page: Page) -> None:
    demo.goto(page, "/clusters/demo/submit", role="member")
    text = page.locator("#f-script")
    text.fill("#!/bin/bash\n#SBATCH --time=10\n\n#SBATCH --nodes=99\nsrun hostname\n")
    text.dispatch_event("change")
    expect(page.locator("#script-lines .is-error")).to_have_text("4")
    page.get_by_role("button", name="Go to line 4").click()
    chosen = "(e) => e.value.slice(e.selectionStart, e.selectionEnd)"
    assert text.evaluate(chosen) == "#SBATCH --nodes=99"
    text.press("End")
    text.press("Enter")
    expect(page.locator("#script-lines span")).to_have_count(7)


def test_an_empty_form_offers_a_first_training_and_the_own_jobs(demo: Site, page: Page) -> None:
    demo.goto(page, "/clusters/demo/submit", role="member")
    page.get_by_role("link", name="Try a 1-minute training").click()
    expect(page.locator("#f-script")).to_have_value(re.compile("job-name=first-training"))
    expect(page.locator("#verdict")).to_contain_text("It fits.")
    expect(page.get_by_role("link", name="Try a 1-minute training")).to_have_count(0)


def test_correction_waits_for_the_check_of_a_changed_script(demo: Site, page: Page) -> None:
    demo.goto(page, "/clusters/demo/submit", role="member")
    text = page.locator("#f-script")
    text.fill(SCRIPT)
    text.dispatch_event("change")
    button = page.get_by_role("button", name="Correct it").first
    expect(button).to_be_enabled()
    page.route("**/submit/check", lambda route: None)  # the next check does not end
    text.press("End")
    text.press_sequentially("x")
    expect(button).to_be_disabled()


def test_submit_button_stays_readable_while_a_changed_script_is_checked(demo: Site, page: Page) -> None:
    demo.goto(page, "/clusters/demo/submit", role="member")
    page.route("**/submit/check", lambda route: None)  # the check does not end
    with page.expect_request("**/submit/check"):
        page.fill("#f-args", "--epochs 3")
        page.locator("#f-args").blur()
    page.wait_for_function("document.querySelector('.htmx-request')")
    assert page.locator("#send").evaluate("e => getComputedStyle(e).opacity") == "1"


def test_script_of_another_scheduler_is_converted_and_its_losses_stay(demo: Site, page: Page) -> None:
    demo.goto(page, "/clusters/demo/submit", role="member")
    text, part = page.locator("#f-script"), page.locator("#conversion")
    text.fill(
        "#!/bin/bash\n#PBS -N heat\n#PBS -l walltime=1:00:00\n#PBS -W depend=afterok:12\ncd $PBS_O_WORKDIR\nsrun ./heat\n"
    )
    text.dispatch_event("change")
    expect(part).to_contain_text("This is a PBS script")
    expect(page.locator("#lint li")).to_have_count(0)  # findings about lines that the conversion replaces
    expect(part.locator("li")).to_contain_text("Line 4 lost")
    part.get_by_role("button", name="Convert to Slurm").click()
    expect(text).to_have_value(
        "#!/bin/bash\n#SBATCH --job-name=heat\n#SBATCH --time=01:00:00\n\ncd $SLURM_SUBMIT_DIR\nsrun ./heat\n"
    )
    expect(part.get_by_text("Converted from a PBS script.")).to_be_visible()
    expect(part.get_by_role("button", name="Convert to Slurm")).to_be_hidden()
    expect(page.locator("#verdict")).to_contain_text("It fits.")
    expect(part.locator("li")).to_contain_text("Line 4 lost")
    text.fill("#!/bin/bash\n#SBATCH --time=1\nhostname\n")
    expect(part.locator("li")).to_have_count(0)


def test_resubmission_shows_its_changes_before_it_is_sent(demo: Site, page: Page) -> None:
    demo.goto(page, "/clusters/demo/jobs/104", role="member")
    page.get_by_role("link", name="Edit and resubmit").click()
    verdict = page.locator("#verdict")
    expect(verdict).to_contain_text("No change from job 104")
    text = page.locator("#f-script")
    text.fill(text.input_value().replace("--lr", "--warmup 100 --lr"))
    page.get_by_label("Nodes", exact=True).fill("2")
    text.dispatch_event("change")
    expect(verdict).to_contain_text("Changes from job 104")
    expect(verdict.locator(".is-removed")).to_contain_text(["srun python train.py --lr"])
    expect(verdict.locator(".is-added")).to_contain_text(["2", "srun python train.py --warmup 100 --lr"])
