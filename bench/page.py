"""Measures the dashboard in a real Chromium, with 1,024 nodes, 10,000 queued jobs and 100,000 jobs in accounting.

    python bench page [--loads 5] [--jobs 100000] [--queued 10000] [--no-limits]

For each page: the first byte of the first load, when the server has nothing of it in memory; and medians of all loads without the
browser's cache: the first byte, the largest paint, kilobytes of the first load as they are transmitted, and the longest of a few
interactions (the list of keys, the search, the theme) from the key to the next paint.
Slurm and Prometheus are stand-ins that answer at once: this measures the work of the server and the browser.
Ends with 1 if a page misses a limit."""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1]), str(Path(__file__).resolve().parents[1] / "node")]

from playwright.sync_api import Browser, sync_playwright  # noqa: E402
from tests.support.site import demo_state, snapshots  # noqa: E402
from tests.support.site.browser import CHROMIUM, wait_until_still  # noqa: E402
from tests.support.site.server import Site, serve  # noqa: E402

from headway.billing.periods import Period  # noqa: E402
from headway.services.billing.ledger.daily_rollups import sum_days  # noqa: E402
from headway.store import open_store  # noqa: E402
from server import billing_reports  # noqa: E402

PAINT_S, INTERACTION_MS, FIRST_LOAD_KB, STORAGE_BYTE_S = 0.5, 100, 150, 0.15
DAYS = 28
AT = "/clusters/demo"
PAGES = {
    "home": "/",
    "overview": AT,
    "queue": f"{AT}/queue",
    "job": f"{AT}/jobs/200",
    "submit": f"{AT}/submit",
    "nodes": f"{AT}/nodes",
    "node": f"{AT}/nodes/demo-1-5",
    "storage": f"{AT}/storage",
    "spending": f"{AT}/costs",
    "runs": f"{AT}/costs/runs",
    "goodput": f"{AT}/costs/goodput",
}
OBSERVE = """
  window.seen = {paint: 0, slowest: 0};
  const observe = (options, take) => {
    new PerformanceObserver((list) => list.getEntries().forEach(take)).observe({...options, buffered: true});
  };
  observe({type: "largest-contentful-paint"}, (one) => { window.seen.paint = one.startTime; });
  const slower = (one) => { window.seen.slowest = Math.max(window.seen.slowest, one.duration); };
  observe({type: "event", durationThreshold: 16}, slower);
"""


@dataclass(frozen=True)
class Load:
    """One load of a page. The interaction is in milliseconds."""

    first_byte_s: float
    paint_s: float
    kb: float
    interaction_ms: float


async def seeded(folder: Path, jobs: int, names: tuple[str, ...]) -> None:
    """Fills accounting with the runs of the last DAYS days."""
    now = int(time.time())
    billing_reports.MONTH = Period("bench", now - DAYS * 86_400, now)
    billing_reports.NODES = len(names)
    store = await open_store(folder)
    part = []
    for run in billing_reports.made(jobs, names):
        part.append(run)
        if len(part) == billing_reports.CHUNK:
            await store.runs.save("demo", part)
            part = []
    await store.runs.save("demo", part, collected_to=now)
    while await sum_days(store, "demo", now):  # a running server sums a few days each minute
        pass
    await store.close()


def large_cluster(queued: int) -> snapshots.Snapshot:
    """Returns the cluster of 1,024 nodes, with pending jobs."""
    shown = snapshots.large()
    waiting = tuple(
        snapshots.pending(1000 + i, f"train_{i % 97}", "alice" if i % 3 else "carol", "Priority", ago=60 + i)
        for i in range(queued)
    )
    return replace(shown, jobs=(*shown.jobs, *waiting))


def loaded(site: Site, browser: Browser, path: str) -> Load:
    """Loads the page in a new profile of the browser, and uses it."""
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    page = context.new_page()
    page.add_init_script(OBSERVE)
    devtools = context.new_cdp_session(page)
    devtools.send("Network.enable")
    received: list[float] = []
    devtools.on("Network.loadingFinished", lambda event: received.append(event["encodedDataLength"]))
    site.goto(page, path)
    wait_until_still(page)
    kb = sum(received) / 1000
    timing = page.evaluate(
        "(() => { const [t] = performance.getEntriesByType('navigation'); return t.responseStart - t.requestStart; })()"
    )
    paint = page.evaluate("window.seen.paint")
    for keys in ("?", "Escape", "Control+k", "n", "Escape", "Escape"):
        page.keyboard.press(keys)
    page.locator("#theme").click()
    page.evaluate("new Promise((drawn) => requestAnimationFrame(() => setTimeout(drawn, 50)))")
    slowest = page.evaluate("window.seen.slowest")
    context.close()
    return Load(timing / 1000, paint / 1000, kb, slowest)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--loads", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--queued", type=int, default=10_000)
    parser.add_argument("--pages", nargs="*", default=list(PAGES), choices=list(PAGES))
    parser.add_argument("--no-limits", action="store_true", help="print only")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder, shown, missed = Path(name), large_cluster(options.queued), list[str]()
        names = tuple(node.name for node in shown.status.nodes if node.role != "head")
        asyncio.run(seeded(folder, options.jobs, names))
        site = next(serving := serve(folder))
        site.run(demo_state.furnish(site.state, site.backend))
        site.put(shown)
        load = os.getloadavg()[0]
        print(
            f"{len(names)} nodes, {options.queued} queued jobs, {options.jobs} in accounting, load average {load:.0f}"
        )
        print(
            f"{'page':<10} {'first time':>11} {'first byte':>11} {'largest paint':>14} {'first load':>11} {'interaction':>12}"
        )
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
            for page in options.pages:
                loads = [loaded(site, browser, PAGES[page]) for _ in range(options.loads)]
                byte_s, paint_s, kb, interaction_ms = (
                    statistics.median(getattr(load, key) for load in loads)
                    for key in ("first_byte_s", "paint_s", "kb", "interaction_ms")
                )
                print(
                    f"{page:<10} {loads[0].first_byte_s:>9.3f} s {byte_s:>9.3f} s {paint_s:>12.2f} s {kb:>8.0f} kB "
                    f"{interaction_ms:>9.0f} ms",
                    flush=True,
                )
                limits = [
                    ("largest paint", paint_s, PAINT_S),
                    ("first load", kb, FIRST_LOAD_KB),
                    ("interaction", interaction_ms, INTERACTION_MS),
                ]
                limits += [("first byte", byte_s, STORAGE_BYTE_S)] if page == "storage" else []
                missed += [
                    f"{page}: {what} {value:.3g} over {limit:g}" for what, value, limit in limits if value > limit
                ]
            browser.close()
        next(serving, None)
    for line in missed:
        print(line)
    return 1 if missed and not options.no_limits else 0


if __name__ == "__main__":
    sys.exit(main())
