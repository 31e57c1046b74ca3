"""Each figure of the Costs page links to the runs or node states behind it, which sum to the figure."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from decimal import Decimal
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import httpx
import pytest

from headway.domain.billing.ledger import MachineLifetime, NodeSpan, SpanKind
from headway.domain.teams import Budget
from headway.services.billing.cost_notifications import summary
from headway.services.billing.priced_usage import ALL
from headway.services.billing.reports.goodput import load_goodput
from headway.services.billing.reports.report_scope import ReportScope, load_billed_cluster
from headway.services.billing.reports.usage import load_usage
from headway.services.cursors import encode_cursor
from headway.web.pages.billing.costs import SECTIONS
from tests.support.billing.billing_cluster import OCTOBER, TEAMS, Accounting, H, at, got, lab, machines, run
from tests.support.servers.server_fakes import Server


@pytest.fixture
def accounting() -> Accounting:
    return Accounting()


@pytest.fixture
async def server(tmp_path: Path, accounting: Accounting) -> AsyncIterator[Server]:
    """A day of two machines and a spare: jobs of two teams, one of them lost work, one had no GPU, a node was drained."""
    async with lab(tmp_path, accounting) as made:
        await machines(made, 3)
        accounting.runs = [
            run(1, H, 5 * H),
            run(2, H, 2 * H, nodes=("lab-1-2",), team="speech", user="sam", state="NODE_FAIL", partition="debug"),
            run(2, 3 * H, 0, nodes=("lab-1-2",), team="speech", user="sam", partition="debug", gpus=2),
            run(3, 2 * H, 3 * H, gpus=0, cpus=4),
        ]
        accounting.events = [
            NodeSpan("lab-1-2", SpanKind.DRAINED, OCTOBER.start + 4 * H, OCTOBER.start + 5 * H, "XID 79")
        ]
        await made.store.node_spans.save("lab", [NodeSpan("lab-1-3", SpanKind.SPARE, OCTOBER.start, 0)])
        made.backend.clusters["lab"]["teams"] = (
            TEAMS[0], TEAMS[1].__class__("speech", ("sam",), 1, budget=Budget("usd", Decimal(30), "week", 0.8, True))
        )  # fmt: skip
        await made.apply("lab", note="budget")
        at(made, 10 * H)
        yield made


class Table(HTMLParser):
    """The figures of a page's tables: (text, where it leads) of each cell that holds a number; "" for nowhere."""

    def __init__(self) -> None:
        super().__init__()
        self.figures: list[tuple[str, str]] = []
        self.titles: list[str] = []
        self._cell: list[str] | None = None
        self._href = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        known = dict(attrs)
        if tag == "td":
            self._cell, self._href = [], ""
            self.titles.append(known.get("data-label") or "")
        elif tag == "a" and self._cell is not None:
            self._href = known.get("href") or ""

    def handle_data(self, data: str) -> None:
        if self._cell is not None:
            self._cell.append(data)

    def handle_endtag(self, tag: str) -> None:
        if tag == "td" and self._cell is not None:
            text = " ".join("".join(self._cell).split())
            if re.search(r"\d", text):
                self.figures.append((f"{self.titles[-1]}: {text}", self._href))
            self._cell = None


async def shown(client: httpx.AsyncClient, query: str) -> str:
    answer = await client.get(f"/clusters/lab/costs{query}")
    assert answer.status_code == 200, answer.text
    return answer.text


async def figures(client: httpx.AsyncClient, query: str) -> list[tuple[str, str]]:
    reader = Table()
    reader.feed(await shown(client, query))
    return reader.figures


NO_QUANTITY = ("USD an hour", "Of: ", "Left: ")  # a price, a limit, and what is not there


# Lists themselves; and prices and what is to come, behind which there are no runs
NOT_COUNTED = ("runs", "nodes", "buy", "forecast")


@pytest.mark.parametrize("section", [key for key, _ in SECTIONS if key not in NOT_COUNTED])
async def test_every_cost_figure_links_to_its_details(server: Server, section: str) -> None:
    ann = await server.client()
    found = await figures(ann, f"?section={section}&period=2026-10")
    assert found
    assert [text for text, href in found if not href and not text.startswith(NO_QUANTITY)] == []
    for href in sorted({href for _, href in found if href.startswith("?")}):
        assert "section=" in href
        behind = await shown(ann, href)
        assert "No matching run" not in behind or "lossy" in href, href


@pytest.mark.parametrize("by", ["team", "user", "partition", "gpu", "group"])
async def test_runs_behind_a_usage_row_sum_to_it(server: Server, by: str) -> None:
    ann = await server.client()
    rows = (await got(ann, f"usage?by={by}&start=2026-10"))["rows"]
    assert rows
    page = await shown(ann, f"?section=usage&period=2026-10&by={by}")
    for row in rows:
        key = row["by"][by] or "-"
        link = f"?section=runs&period=2026-10&{by}={key}"
        assert link.replace("&", "&amp;") in page
        behind = await shown(ann, link)
        assert f"{row['runs']:,} runs · {row['gpu_hours']:,.2f} GPU-hours" in behind
        assert f"{row['usd']:,.2f} USD" in behind
        runs = (await got(ann, f"usage/runs?start=2026-10&{by}={key}"))["runs"]
        assert round(sum(one["usd"] for one in runs), 2) == row["usd"]


async def test_capacity_links_lead_to_runs_of_that_wait_size_and_day(server: Server) -> None:
    ann = await server.client()
    page = await shown(ann, "?section=capacity&period=2026-10")
    day = OCTOBER.start + 24 * H
    assert f"section=runs&amp;period=2026-10&amp;gpu=h100&amp;start={OCTOBER.start}&amp;end={day}" in page
    hour = OCTOBER.start + 3 * H
    behind = await shown(ann, f"?section=runs&gpu=h100&start={hour}&end={hour + H}")
    assert set(re.findall(r"/jobs/(\d+)\"", behind)) == {"1", "2"}
    runs = await got(ann, "usage/runs?start=2026-10&waited=true&least_gpus=2&most_gpus=8")
    assert [(one["job"], one["gpus"]) for one in runs["runs"]] == [(1, 8), (2, 8), (2, 2)]
    none = await got(ann, "usage/runs?start=2026-10&most_gpus=0")
    assert [one["job"] for one in none["runs"]] == [3]
    assert (await got(ann, "usage?start=2026-10&most_gpus=0"))["total"]["runs"] == 1


@pytest.mark.parametrize(
    ("words", "jobs", "above"),
    [
        ("lossy=1", {"2"}, "1 runs · 8.00 GPU-hours (8.00 lost, 0.00 idle)"),
        (f"waited=1&start={OCTOBER.start + 2 * H}", {"2", "3"}, "2 runs · 14.00 GPU-hours (0.00 lost, 0.00 idle)"),
        ("lossy=1&team=vision", set(), "0 runs · 0.00 GPU-hours"),
    ],
)
async def test_run_list_header_sums_only_the_listed_runs(
    server: Server, words: str, jobs: set[str], above: str
) -> None:
    """Job 1 lost nothing, and had begun before."""
    page = await shown(await server.client(), f"?section=runs&period=2026-10&{words}")
    assert set(re.findall(r"/jobs/(\d+)\"", page)) == jobs
    assert above in page


async def test_run_list_is_paged_without_gaps_or_repeats(server: Server) -> None:
    ann = await server.client()
    for words in ("", "&waited=true", "&lossy=true"):
        every = (await got(ann, f"usage/runs?start=2026-10{words}"))["runs"]
        read, cursor = [], ""
        while True:
            page = await got(ann, f"usage/runs?start=2026-10{words}&limit=1&cursor={cursor}")
            read, cursor = [*read, *page["runs"]], page["next"]
            if not cursor:
                break
        assert read == every, words
    assert "cursor=" not in await shown(ann, f"?section=runs&start=2026-10&cursor={cursor}")


async def test_node_states_are_available_as_json_csv_and_page(server: Server) -> None:
    ann, vera = await server.client(), await server.client("vera", "lead")
    answer = await got(ann, "usage/nodes?start=2026-10&state=drained,spare")
    assert [(one["node"], one["state"], one["seconds"], one["reason"]) for one in answer["states"]] == [
        ("lab-1-2", "drained", H, "XID 79"), ("lab-1-3", "spare", 10 * H, ""),
    ]  # fmt: skip
    assert answer["states"][1]["end"] is None
    sheet = await ann.get("/api/v1/clusters/lab/usage/nodes?start=2026-10&node=lab-1-2&format=csv")
    lines = sheet.text.splitlines()
    assert lines[0] == "node,group,state,start,end,seconds,reason"
    assert [line.split(",")[2] for line in lines[1:]] == ["up", "drained", "up"]
    first = await got(vera, "usage/nodes?start=2026-10&limit=2")
    rest = await got(vera, f"usage/nodes?start=2026-10&cursor={first['next']}")
    assert [one["node"] for one in (*first["states"], *rest["states"])] == ["lab-1-1", *["lab-1-2"] * 3, "lab-1-3"]
    odd = f"usage/runs?cursor={encode_cursor((1, 2, chr(0xD800)))}"
    for path in ("usage/nodes?cursor=2", f"usage/runs?cursor={first['next']}", "usage/runs?cursor=WzEsMiwzLDRd", odd):
        assert (await ann.get(f"/api/v1/clusters/lab/{path}")).status_code == 400, path
    wrong = await ann.get("/api/v1/clusters/lab/usage/nodes?state=asleep")
    assert (wrong.status_code, "up, drained, down, spare, off" in wrong.text) == (400, True)
    page = await shown(ann, "?section=nodes&period=2026-10&state=drained")
    assert "XID 79" in page
    assert "lab-1-3" not in page


async def test_node_state_csv_uses_the_filters_of_the_page(server: Server) -> None:
    ann = await server.client()
    page = await shown(ann, f"?section=nodes&group=main&state=drained&start={OCTOBER.start}&end={OCTOBER.end}")
    [href] = re.findall(r'href="(/api/v1/[^"]*usage/nodes[^"]*)"', page)
    lines = (await ann.get(unescape(href))).text.splitlines()
    assert [line.split(",")[:3] for line in lines[1:]] == [["lab-1-2", "main", "drained"]]


async def test_runs_without_a_team_have_their_own_row_and_link(server: Server, accounting: Accounting) -> None:
    accounting.runs.append(run(4, H, 2 * H, nodes=("lab-1-3",), team="", user="root"))
    ann = await server.client()
    for section in ("goodput", "energy", "chargeback"):
        page = await shown(ann, f"?section={section}&period=2026-10")
        heads = re.findall(r'<th scope="row">(?:<a class="link" href="([^"]*)">)?([^<]*)', page)
        teams = {word: unescape(href) for href, word in heads if word in ("vision", "speech", "no team", "all")}
        sums = set() if section == "chargeback" else {"all"}
        assert set(teams) == {"no team", "speech", "vision"} | sums, section
        behind = await shown(ann, teams["no team"].replace("&lossy=1", ""))
        assert set(re.findall(r"/jobs/(\d+)\"", behind)) == {"4"}
    paid = await figures(ann, "?section=chargeback&period=2026-10")
    assert [text for text, href in paid if href == "?section=runs&period=2026-10"] == []
    place = await load_billed_cluster(server.state, "lab")
    used = await load_usage(server.state, place, OCTOBER, ["team"], ALL)
    text = summary(used, await load_goodput(server.state, ReportScope(place, OCTOBER, None)), [])
    names = {line.partition(":")[0]: line for line in text.splitlines()}
    assert names["no team"].startswith("no team: 8.00 GPU-hours")
    assert names["all"].startswith(f"all: {used.total.gpu_hours:.2f} GPU-hours")
    assert "goodput 100.0 %" in names["no team"]


async def test_node_state_hours_match_the_invoice(server: Server) -> None:
    ann = await server.client()
    bill: Any = await got(ann, "invoice?period=2026-10")
    billed = {line["what"]: line["seconds"] for line in bill["lines"]}
    states = (await got(ann, "usage/nodes?start=2026-10"))["states"]
    assert sum(state["seconds"] for state in states if state["state"] == "spare") == billed["spare"]
    assert sum(state["seconds"] for state in states if state["state"] not in ("spare", "off")) == billed["node"]


@pytest.mark.parametrize(
    ("month", "neighbours"),
    [("2000-01", ["2000-02"]), ("2000-02", ["2000-01", "2000-03"]), ("2200-12", ["2200-11"])],
)
async def test_costs_page_links_stop_at_the_first_and_last_month(
    server: Server, month: str, neighbours: list[str]
) -> None:
    page = await shown(await server.client(), f"?period={month}")
    assert re.findall(r'aria-label="(\d{4}-\d{2})"', page) == neighbours


async def test_run_across_month_end_is_listed_with_its_part_in_each_month(
    server: Server, accounting: Accounting
) -> None:
    """Its rows sum to what stands above them, and both months to the run."""
    accounting.runs = [
        run(9, 740 * H, 750 * H, state="NODE_FAIL", team="speech", user="sam"),  # October has 744 hours
        run(10, 741 * H, 743 * H),
    ]
    await machines(server, 1, began=700 * H)
    at(server, 760 * H)
    ann = await server.client()
    parts = []
    for month, after in (("2026-10", "2026-11"), ("2026-11", "2026-12")):
        total = (await got(ann, f"usage?start={month}&end={after}"))["total"]
        rows = (await got(ann, f"usage/runs?start={month}&end={after}"))["runs"]
        assert round(sum(row["usd"] for row in rows), 2) == total["usd"]
        assert sum(row["gpus"] * row["allocated_s"] for row in rows) == total["gpu_hours"] * H
        assert sum(row["gpus"] * row["lost_s"] for row in rows) == total["lost_gpu_hours"] * H
        assert sum(row["energy_kwh"] for row in rows) == pytest.approx(total["energy_kwh"], abs=1e-3)
        parts += [
            (row["allocated_s"] // H, row["usd"], row["elapsed_s"], row["usd_whole"]) for row in rows if row["job"] == 9
        ]
        page = await shown(ann, f"?section=runs&period={month}&user=sam")
        assert f'{parts[-1][1]:.2f} <span class="soft">of 80.00</span>' in page
    assert parts == [(4, 32.0, 10 * H, 80.0), (6, 48.0, 10 * H, 80.0)]
    [whole] = (await got(ann, "usage/runs?start=2026-11&job=9"))["runs"]
    assert (whole["allocated_s"], whole["usd"], whole["lost_s"]) == (10 * H, 80.0, 10 * H)


async def test_rounded_report_rows_sum_to_the_total(server: Server, accounting: Accounting) -> None:
    """Each is of less than half a cent more than it shows."""
    accounting.runs = [run(20 + i, 10, 160, user=f"u{i}", gpus=1) for i in range(6)]
    at(server, 11 * H)
    found = await got(await server.client(), f"usage?start={OCTOBER.start}&end={OCTOBER.start + 1000}&by=user")
    assert sorted(row["usd"] for row in found["rows"]) == [0.04] * 5 + [0.05]
    assert round(sum(row["usd"] for row in found["rows"]), 2) == found["total"]["usd"] == 0.25


@pytest.mark.parametrize(
    ("query", "jobs", "column"),
    [("sort=ran", ["2", "1", "2", "3"], "Ran"), ("sort=gpus", ["1", "2", "2", "3"], "GPUs"),
     ("sort=gpu_hours", ["1", "2", "2", "3"], "GPU-hours"), ("lossy=1", ["2"], "Lost"), ("", ["2", "3", "2", "1"], "Began")],
)  # fmt: skip
async def test_runs_are_sorted_by_a_column(server: Server, query: str, jobs: list[str], column: str) -> None:
    page = await shown(await server.client(), f"?section=runs&period=2026-10&{query}")
    assert re.findall(r"<th scope=\"row\"><a[^>]*/jobs/(\d+)\"", page) == jobs
    assert re.findall(r"aria-sort=\"descending\"><a[^>]*>([^<]*)<", page) == [column]


async def test_next_page_of_sorted_runs_counts_until_the_same_time(
    server: Server, accounting: Accounting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headway.web.pages.billing.costs.MAX_RUNS", 1)
    ann = await server.client()
    found, link = [], "?section=runs&period=2026-10&sort=ran"
    while link:
        page = await shown(ann, link)
        found += re.findall(r"<th scope=\"row\"><a[^>]*/jobs/(\d+)\"", page)
        following = re.search(r'href="([^"]*)" rel="next">Next', page)
        link = unescape(following[1]) if following else ""
        at(server, 11 * H)
    assert found == ["2", "1", "2", "3"]


@pytest.mark.parametrize("section", [key for key, _ in SECTIONS if key not in ("budgets", "buy", "forecast")])
async def test_month_without_costs_says_so(server: Server, section: str) -> None:
    ann = await server.client()
    assert "lab had no machine and no job in August 2026" in await shown(ann, f"?section={section}&period=2026-08")
    assert "December 2026 has not begun" in await shown(ann, f"?section={section}&period=2026-12")


async def test_costs_of_all_clusters_are_those_of_each(server: Server) -> None:
    ann = await server.client()
    page = (await ann.get("/costs?period=2026-10")).text
    total = (await got(ann, "invoice?period=2026-10"))["total_usd"]
    assert page.count(f'<a class="fig" href="/clusters/lab/costs?section=chargeback&period=2026-10">{total:,.2f}') == 1
    assert page.count(f"{total:,.2f}") >= 3  # above, of the cluster, and of all
    assert "No cost visible to you in August 2026" in (await ann.get("/costs?period=2026-08")).text
    member = await server.client("alice", "member")
    mine = (await member.get("/costs?period=2026-10")).text
    assert "Nodes allocated to your teams" in mine
    usage = (await got(member, "usage?start=2026-10"))["total"]["usd"]
    assert mine.count(f"{usage:,.2f}") >= 3


async def test_costs_of_all_clusters_count_corrections_in_both_months(server: Server) -> None:
    """So that a month and the one before are sums of the same kind."""
    at(server, OCTOBER.seconds + H)
    ann = await server.client()
    assert (await ann.post("/api/v1/clusters/lab/invoice/close", json={"period": "2026-10"})).status_code == 200
    late = MachineLifetime("lab-1-9", "main", OCTOBER.start, OCTOBER.start + 10 * H, 0)
    await server.store.machine_lifetimes.record("lab", [("lab-1-9", "main")], [], [], OCTOBER.start)
    await server.store.machine_lifetimes.record("lab", [], [late], [], OCTOBER.start + 10 * H)
    at(server, OCTOBER.seconds + 2 * H)
    bill = await got(ann, "invoice?period=2026-11")
    assert bill["lines"][-1]["what"] == "correction"
    page = (await ann.get("/costs?period=2026-11")).text
    shown_as = f'<a class="fig" href="/clusters/lab/costs?section=chargeback&period=2026-11">{bill["total_usd"]:,.2f}'
    assert page.count(shown_as) == 1
    at(server, OCTOBER.seconds + 32 * 24 * H)
    november = (await got(ann, "invoice?period=2026-11"))["total_usd"]
    assert f"{november:,.2f}" in (await ann.get("/costs?period=2026-12")).text
