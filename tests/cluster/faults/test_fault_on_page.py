"""A fault and its incident appear on open dashboard pages until the node is returned."""

from __future__ import annotations

from playwright.sync_api import expect
from tests.cluster.lab import Lab
from tests.cluster.web.browser import Dashboard, chromium, number_in


def test_fault_and_incident_appear_on_open_pages_until_returned(lab: Lab) -> None:
    job = lab.sbatch("ann", "--gpus-per-node=1", "--nodelist=flt-1-1", "-o", "/dev/null", "--requeue", wrap="sleep 600")
    lab.wait_job(job, "RUNNING")
    with chromium() as browser:
        dashboard = Dashboard(lab, browser)
        page = dashboard.as_("victor", "viewer")
        dashboard.go(page, "/clusters/flt")
        node = page.locator("#node-flt-1-1")
        expect(node.locator(f"[data-job='{job}']")).to_have_count(1)
        lab.cli("fault", "xid", "46", "flt-1-1", "--gpu", "0")
        expect(node).to_contain_text("incident")
        expect(node.locator(f"[data-job='{job}']")).to_have_count(0)
        incident = page.locator("#incidents .incident.is-open")
        expect(incident).to_contain_text("flt-1-1")
        expect(incident).to_contain_text("XID 46")
        incident.get_by_role("link").last.click()
        number = number_in(page, "incidents")
        expect(page.get_by_role("heading", level=1)).to_contain_text("XID 46")
        expect(page.locator("#incident .pill").first).to_have_text("returned", timeout=240_000)
        course = page.locator(".steps > li")
        states = [text.split()[0] for text in course.locator("strong").all_inner_texts()]
        assert states[0] == "seen"
        assert states[-1] == "returned"
        assert {"draining", "repairing", "testing"} <= set(states)
        expect(page.locator("#incident")).to_contain_text(str(job))
        dashboard.go(page, "/clusters/flt/events?show=incident")
        expect(page.locator(".events li").filter(has_text=f"Incident {number}").first).to_contain_text("returned")
        dashboard.go(page, "/clusters/flt")
        expect(node).not_to_contain_text("incident")
        dashboard.close()
