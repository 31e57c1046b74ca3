"""The ledger through the API, with the days on which things go wrong: none changes a closed invoice."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import pytest

from headway.api.collect import DAY_S, collect
from headway.api.state import AppState
from headway.domain.cluster import Budget, Cluster, Costs, Team, User
from headway.domain.ledger import Life, NodeSpan, Run, Saves, SpanKind
from headway.domain.live import SPARES
from headway.errors import HeadwayError, Unreachable
from headway.ledger import periods
from headway.render.series import Row
from headway.server.collector import Collector
from headway.store import PriceRow
from headway.wire.work import SubmitOut
from tests import builders
from tests.unit import server_fakes
from tests.unit.server_fakes import Server

UTC = periods.zone("UTC")
OCTOBER = periods.month("2026-10", UTC)
NOVEMBER = periods.month("2026-11", UTC)
H = 3600
V1 = "/api/v1/clusters/lab"
TEAMS = (Team("vision", ("alice", "vera"), 3, leads=("vera",)), Team("speech", ("sam",), 1))
CHEAP = replace(builders.H100, price_usd_per_node_hour=Decimal(8))
USERS = tuple(User(name, (), (team.name,)) for team in TEAMS for name in team.users)


def run(job: int, start: int, end: int, **others: Any) -> Run:
    """Times in seconds of October."""
    at = OCTOBER.start
    fields: dict[str, Any] = {
        "submit": at + start - 90, "eligible": at + start - 60, "team": "vision", "user": "alice", "partition": "train",
        "qos": "vision", "state": "COMPLETED" if end else "RUNNING", "nodes": ("lab-1-1",), "gpus": 8, "cpus": 64,
        "memory_mib": 1000, "time_limit_s": 3600, "used_cpu_s": 5, "used_memory_mib": 10,
    }  # fmt: skip
    return Run(job=job, start=at + start, end=end and at + end, **{**fields, **others})


class Accounting:
    """What Slurm would say; sacct's rule of what a stretch holds."""

    def __init__(self) -> None:
        self.runs: list[Run] = []
        self.events: list[NodeSpan] = []
        self.away = False
        self.asked: list[tuple[int, int]] = []

    def __call__(self, _: Cluster, since: int, until: int) -> tuple[Run, ...]:
        if self.away:
            raise Unreachable("slurmdbd does not answer")
        self.asked.append((since, until))
        return tuple(one for one in self.runs if one.start <= until and (not one.end or one.end >= since))


@pytest.fixture
def said() -> Accounting:
    return Accounting()


@pytest.fixture
async def server(tmp_path: Path, said: Accounting) -> AsyncIterator[Server]:
    clock = builders.Clock()
    clock.now = float(OCTOBER.start)
    made = await server_fakes.start(tmp_path, clock)
    made.work.answers |= {
        "accounting": said, "node_events": lambda *_: tuple(said.events), "losses": {}, "saves": {}, "metrics": (),
        "hold_back": None, "tell": None,
        "read": server_fakes.reading(), "machines": (), "shares": (), "forget": None,
    }  # fmt: skip
    made.work.clusters["lab"] = {"teams": TEAMS, "users": USERS, "plan": CHEAP}
    await made.apply("lab")
    yield made
    await made.close()


def at(server: Server, moment: int) -> None:
    server.state.clock.now = float(OCTOBER.start + moment)  # type: ignore[attr-defined]
    server.state.live._now = server.state.clock


async def machines(server: Server, count: int, began: int = 0, ended: int = 0) -> None:
    names = [(f"lab-1-{i + 1}", "main") for i in range(count)]
    await server.store.meter("lab", names, [], [], OCTOBER.start + began)
    if ended:
        await server.store.end_lives("lab", OCTOBER.start + ended)


async def got(client: httpx.AsyncClient, path: str) -> Any:
    answer = await client.get(f"{V1}/{path}")
    assert answer.status_code == 200, answer.text
    return answer.json()


def summed(paid: Any) -> Decimal:
    parts = [one["total_usd"] for one in paid["teams"]] + [one["usd"] for one in paid["unassigned"]]
    return sum((Decimal(str(part)) for part in parts), Decimal(0))


async def test_what_was_used_and_who_pays_the_same_in_every_form(server: Server, said: Accounting) -> None:
    await machines(server, 2, ended=100 * H)
    said.runs = [
        run(1, 0, 10 * H),
        run(2, 0, 5 * H, team="speech", user="sam", nodes=("lab-1-2",), gpus=4, state="NODE_FAIL"),
    ]
    at(server, 200 * H)
    ann = await server.client()
    used = await got(ann, "usage?by=team,user&start=2026-10&end=2026-11")
    assert [(row["by"], row["runs"], row["gpu_hours"], row["lost_gpu_hours"], row["usd"]) for row in used["rows"]] == [
        ({"team": "vision", "user": "alice"}, 1, 80.0, 0.0, 80.0),
        ({"team": "speech", "user": "sam"}, 1, 20.0, 20.0, 20.0),
    ]
    assert (used["total"]["gpu_hours"], used["total"]["usd"]) == (100.0, 100.0)
    paid = await got(ann, "chargeback?period=2026-10")
    assert paid["invoice_total_usd"] == 1600.0
    vision, speech = sorted(paid["teams"], key=lambda one: one["team"], reverse=True)
    assert (vision["productive_usd"], vision["idle_usd"], vision["total_usd"]) == (80.0, 1200.0, 1280.0)
    assert (speech["lost_usd"], speech["productive_usd"], speech["idle_usd"]) == (20.0, 0.0, 300.0)
    assert summed(paid) == Decimal(1600)
    bill = await got(ann, "invoice?period=2026-10")
    [line] = bill["lines"]
    assert (line["hours"], line["usd_per_hour"], line["amount_usd"], bill["state"]) == (200.0, 8.0, 1600.0, "open")
    for path in ("usage?by=team&start=2026-10", "invoice?period=2026-10", "chargeback?period=2026-10"):
        sheet = await ann.get(f"{V1}/{path}&format=csv")
        assert sheet.headers["content-type"].startswith("text/csv")
        assert len(sheet.text.splitlines()) >= 2
    behind = await got(ann, "usage/runs?start=2026-10&team=speech")
    assert [(one["job"], one["lost_s"], one["waited_s"], one["usd"]) for one in behind["runs"]] == [
        (2, 5 * H, 60, 20.0)
    ]


async def test_spare_and_broken_nodes_are_shown_as_such(server: Server, said: Accounting) -> None:
    await machines(server, 3, ended=10 * H)
    said.events = [NodeSpan("lab-1-1", SpanKind.DRAINED, OCTOBER.start, OCTOBER.start + 4 * H, "bad")]
    await server.store.put_node_spans("lab", [NodeSpan("lab-1-3", SpanKind.SPARE, OCTOBER.start, 0)])
    said.runs = [run(1, -H, H)]  # ends on the node while it drains: that hour is the job's
    at(server, 20 * H)
    ann = await server.client()
    paid = await got(ann, "chargeback?period=2026-10")
    vision = next(one for one in paid["teams"] if one["team"] == "vision")
    speech = next(one for one in paid["teams"] if one["team"] == "speech")
    assert (vision["productive_usd"], vision["broken_usd"], speech["broken_usd"]) == (8.0, 18.0, 6.0)
    assert (vision["spare_usd"], speech["spare_usd"]) == (60.0, 20.0)
    assert paid["invoice_total_usd"] == 240.0 == float(summed(paid))
    bill = await got(ann, "invoice?period=2026-10")
    assert [(line["what"], line["hours"]) for line in bill["lines"]] == [("node", 20.0), ("spare", 10.0)]


async def test_a_member_sees_their_team_and_no_invoice(server: Server, said: Accounting) -> None:
    await machines(server, 1, ended=10 * H)
    said.runs = [run(1, 0, H), run(2, H, 2 * H, team="speech", user="sam")]
    at(server, 20 * H)
    vera = await server.client("vera", "lead")
    assert [row["by"]["team"] for row in (await got(vera, "usage?start=2026-10"))["rows"]] == ["vision"]
    assert (await got(vera, "usage?start=2026-10&team=speech"))["rows"] == []
    assert [one["job"] for one in (await got(vera, "usage/runs?start=2026-10"))["runs"]] == [1]
    assert (await got(vera, "usage/runs?job=2&start=2026-10"))["runs"] == []
    paid = await got(vera, "chargeback?period=2026-10")
    assert (paid["invoice_total_usd"], paid["unassigned"], [one["team"] for one in paid["teams"]]) == (
        None,
        [],
        ["vision"],
    )
    assert [one["team"] for one in (await got(vera, "goodput?period=2026-10"))["teams"]] == ["vision"]
    assert [one["team"] for one in (await got(vera, "energy?period=2026-10"))["teams"]] == ["vision"]
    assert (await vera.get(f"{V1}/invoice")).status_code == 403
    nobody = await server.client("vic", "viewer")
    assert (await got(nobody, "usage?start=2026-10"))["rows"] == []


async def test_a_closed_invoice_stays_and_what_turns_out_later_is_a_correction(
    server: Server, said: Accounting
) -> None:
    await machines(server, 1)
    said.runs = [run(1, 0, 10 * H)]
    ann = await server.client()
    too_early = await ann.post(f"{V1}/invoice/close", json={"period": "2026-10"})
    assert (too_early.status_code, "not over" in too_early.text) == (400, True)
    at(server, 744 * H + 100)
    closed = await ann.post(f"{V1}/invoice/close", json={"period": "2026-10"})
    assert (closed.json()["state"], closed.json()["total_usd"]) == ("closed", 5952.0)
    before = (await ann.get(f"{V1}/invoice?period=2026-10")).json()
    paid_before = await got(ann, "chargeback?period=2026-10")
    again = await ann.post(f"{V1}/invoice/close", json={"period": "2026-10"})
    assert again.status_code == 409
    # A machine that nobody knew of, a price of then, a run that came late.
    await server.store.meter("lab", [("lab-1-2", "main")], [], [], OCTOBER.start)
    late = Life("lab-1-2", "main", OCTOBER.start, OCTOBER.start + 10 * H, 0)
    await server.store.meter("lab", [], [late], [], OCTOBER.start + 10 * H)
    said.runs.append(run(9, 20 * H, 30 * H, team="speech", user="sam"))
    at(server, 744 * H + 2 * H)
    await collect(server.state, (await server.state.cluster("lab"))[1])
    assert (await ann.get(f"{V1}/invoice?period=2026-10")).json() == before
    assert await got(ann, "chargeback?period=2026-10") == paid_before
    november = await got(ann, "invoice?period=2026-11")
    assert [(line["what"], line["of"], line["amount_usd"]) for line in november["lines"]] == [
        ("node", "", 16.0), ("correction", "2026-10", 80.0),
    ]  # fmt: skip
    paid = await got(ann, "chargeback?period=2026-11")
    assert float(summed(paid)) == november["total_usd"] == paid["invoice_total_usd"] == 96.0
    skipped = await ann.post(f"{V1}/invoice/close", json={"period": "2026-12"})
    assert skipped.status_code == 400  # not over
    at(server, (744 + 720) * H)
    done = await ann.post(f"{V1}/invoice/close", json={"period": "2026-11"})
    assert done.json()["total_usd"] == 720 * 8 + 80.0
    assert [line["what"] for line in (await got(ann, "invoice?period=2026-12"))["lines"]] == []
    listed = await got(ann, "invoices")
    assert [one["period"] for one in listed] == ["2026-11", "2026-10"]


async def test_no_bad_day_changes_a_closed_invoice(server: Server, said: Accounting) -> None:
    cluster = (await server.state.cluster("lab"))[1]
    await machines(server, 2)
    said.runs = [run(1, 0, 10 * H), run(2, 700 * H, 0, nodes=("lab-1-2",))]
    ann = await server.client()
    end = 744 * H
    at(server, end + 100)
    assert (await ann.post(f"{V1}/invoice/close", json={"period": "2026-10"})).status_code == 200

    async def told() -> list[Any]:
        sheet = await ann.get(f"{V1}/invoice?period=2026-10&format=csv")
        return [await got(ann, "invoice?period=2026-10"), await got(ann, "chargeback?period=2026-10"), sheet.text]

    kept = await told()
    # Late and twice: an array of 1,000, each requeued (the store's own test has 10,000). And a price from the middle of a
    # job that was billed.
    late = [
        run(100 + i, 500 * H + part * 60, 500 * H + part * 60 + 50, gpus=1, array_job=100)
        for i in range(1000)
        for part in (0, 1)
    ]
    said.runs += [*late, *late[:500]]
    await server.store.note_prices([PriceRow("lab", "main", float(OCTOBER.start + 5 * H), "80", False)])
    at(server, end + 25 * H)
    await collect(server.state, cluster)
    assert await told() == kept
    assert (await got(ann, "usage?start=2026-10&end=2026-11"))["total"]["runs"] == 2002
    said.away = True
    at(server, end + 26 * H)
    assert await told() == kept
    said.away = False
    assert (await ann.post(f"{V1}/ledger/rebuild")).status_code == 200
    assert await told() == kept
    # Months begin elsewhere now; the next one still begins where the closed one ended.
    costs = Costs("Europe/Berlin", idle="centre:it")
    server.work.clusters["lab"]["costs"] = costs
    await server.apply("lab", note="zone")
    assert await told() == kept
    november = await got(ann, "invoice?period=2026-11")
    assert (november["start"], november["timezone"]) == (OCTOBER.end, "Europe/Berlin")
    # Gone, and there again under another name.
    server.work.answers["down"] = ()
    assert (await ann.post(f"{V1}/down", json={"delete_data": True})).status_code == 202
    await server.work_off()
    server.work.clusters["lab2"] = server.work.clusters["lab"]
    await server.apply("lab2")
    assert await told() == kept
    assert (await ann.get("/api/v1/clusters/lab2/invoice?period=2026-10")).json()["lines"] == []


async def test_months_are_closed_in_their_order(server: Server) -> None:
    await machines(server, 1, ended=H)
    at(server, 2000 * H)
    ann = await server.client()
    wrong = await ann.post(f"{V1}/invoice/close", json={"period": "2026-11"})
    assert (wrong.status_code, "2026-10 is not closed" in wrong.text) == (409, True)
    gone = await ann.post(f"{V1}/invoice/close", json={"period": "2026-09"})
    assert gone.status_code == 404


async def test_a_price_that_changes_in_mid_job_counts_from_then_on(server: Server, said: Accounting) -> None:
    await machines(server, 1, ended=10 * H)
    said.runs = [run(1, 0, 10 * H)]
    await server.store.note_prices([PriceRow("lab", "main", float(OCTOBER.start + 4 * H), "16", False)])
    at(server, 20 * H)
    ann = await server.client()
    assert (await got(ann, "usage?start=2026-10"))["total"]["usd"] == 4 * 8 + 6 * 16
    assert [one["usd"] for one in (await got(ann, "usage/runs?start=2026-10"))["runs"]] == [4 * 8 + 6 * 16]
    paid = await got(ann, "chargeback?period=2026-10")
    assert next(one for one in paid["teams"] if one["team"] == "vision")["productive_usd"] == 128.0
    assert paid["invoice_total_usd"] == 128.0 == float(summed(paid))


async def test_reserved_machines_are_paid_for_until_the_cluster_is_down(server: Server, said: Accounting) -> None:
    await machines(server, 2)
    said.runs = [run(1, 2 * H, 4 * H)]
    await server.store.note_prices([PriceRow("lab", "main", float(OCTOBER.start + 2 * H), "6", False, reserved=3)])
    at(server, 10 * H)
    ann = await server.client()
    bill = await got(ann, "invoice?period=2026-10")
    assert [(line["what"], line["billing"], line["hours"], line["amount_usd"]) for line in bill["lines"]] == [
        ("node", "on demand", 4.0, 32.0), ("node", "reserved", 16.0, 96.0), ("unused", "reserved", 8.0, 48.0),
    ]  # fmt: skip
    paid = await got(ann, "chargeback?period=2026-10")
    assert float(summed(paid)) == bill["total_usd"] == paid["invoice_total_usd"]
    server.work.answers["down"] = ()
    assert (await ann.post(f"{V1}/down", json={"delete_data": True})).status_code == 202
    await server.work_off()
    at(server, 100 * H)
    assert (await got(ann, "invoice?period=2026-10"))["total_usd"] == bill["total_usd"]


async def test_a_job_over_the_month_s_end_pays_in_both_and_twice_for_nothing(server: Server, said: Accounting) -> None:
    await machines(server, 1)
    said.runs = [run(1, 740 * H, 750 * H)]
    at(server, 760 * H)
    ann = await server.client()
    october, november = [
        (await got(ann, f"usage?start=2026-{a}&end=2026-{b}"))["total"] for a, b in ((10, 11), (11, 12))
    ]
    assert (october["gpu_hours"], november["gpu_hours"]) == (32.0, 48.0)
    assert (october["runs"], november["runs"]) == (1, 1)


async def test_the_month_with_a_change_of_clocks_is_billed_for_its_hour(server: Server, said: Accounting) -> None:
    server.work.clusters["lab"]["costs"] = Costs("Europe/Berlin")
    await server.apply("lab", note="zone")
    await machines(server, 1, began=-9 * H)
    said.runs = [run(1, -9 * H, 0)]
    at(server, 800 * H)
    ann = await server.client()
    bill = await got(ann, "invoice?period=2026-10")
    assert bill["lines"][0]["hours"] == 745.0
    used = await got(ann, "usage?start=2026-10-25&end=2026-10-26")
    assert (used["end"] - used["start"]) == 25 * H


async def test_an_hour_without_accounting_is_made_up_for_and_nothing_counts_twice(
    server: Server, said: Accounting
) -> None:
    cluster = (await server.state.cluster("lab"))[1]
    await machines(server, 1)
    said.runs = [run(1, 0, 0)]
    at(server, H)
    await collect(server.state, cluster)
    said.away = True
    for minutes in range(60, 120, 10):
        at(server, H + minutes * 60)
        with pytest.raises(HeadwayError):
            await collect(server.state, cluster)
    assert "slurmdbd" in (await server.store.mark("lab")).error
    ann = await server.client()
    told = await got(ann, "usage?start=2026-10")
    assert "slurmdbd" in told["stale"]
    said.away = False
    said.runs = [run(1, 0, 2 * H), run(2, 2 * H, 3 * H), run(2, 2 * H, 3 * H)]
    at(server, 4 * H)
    await collect(server.state, cluster)
    await collect(server.state, cluster)
    [total] = (await got(ann, "usage?start=2026-10&end=2026-11"))["rows"]
    assert (total["runs"], total["gpu_hours"]) == (2, 24.0)
    assert (await server.store.mark("lab")).error == ""


async def test_a_record_that_comes_days_late_is_found_within_a_day(server: Server, said: Accounting) -> None:
    cluster = (await server.state.cluster("lab"))[1]
    await machines(server, 1)
    for day in range(3):
        at(server, day * DAY_S + H)
        await collect(server.state, cluster)
    said.runs = [run(1, H, 2 * H)]
    at(server, 3 * DAY_S)
    await collect(server.state, cluster)
    at(server, 4 * DAY_S)
    await collect(server.state, cluster)
    ann = await server.client()
    assert (await got(ann, "usage?start=2026-10"))["total"]["runs"] == 1


async def test_a_cluster_that_is_gone_can_still_be_billed(server: Server, said: Accounting) -> None:
    await machines(server, 1)
    said.runs = [run(1, 0, 2 * H)]
    at(server, 5 * H)
    server.work.answers["down"] = ()
    ann = await server.client()
    done = await ann.post(f"{V1}/down", json={"delete_data": True})
    assert done.status_code == 202
    await server.work_off()
    at(server, 900 * H)
    assert (await got(ann, "usage?start=2026-10&end=2026-11"))["total"]["gpu_hours"] == 16.0
    closed = await ann.post(f"{V1}/invoice/close", json={"period": "2026-10"})
    assert closed.json()["total_usd"] == 40.0
    vera = await server.client("vera", "lead")
    assert (await vera.get(f"{V1}/usage")).status_code == 403
    assert (await ann.get("/api/v1/clusters/never/usage")).status_code == 404


async def test_the_next_cluster_of_the_name_has_jobs_of_the_same_numbers(server: Server, said: Accounting) -> None:
    cluster = (await server.state.cluster("lab"))[1]
    said.runs = [run(1, 0, H), run(2, H, 0)]
    at(server, 2 * H)
    await collect(server.state, cluster)
    said.runs = [run(1, 3 * H, 4 * H)]  # made anew, counting from 1; job 2 ended with its database
    at(server, 5 * H)
    await collect(server.state, cluster)
    rows = await server.store.runs_of("lab", 1)
    assert [one.start - OCTOBER.start for one in rows] == [0, 3 * H]
    [lost] = await server.store.runs_of("lab", 2)
    assert (lost.end - OCTOBER.start, lost.state) == (2 * H, "UNKNOWN")


async def test_power_and_idleness_are_measured_once(server: Server, said: Accounting) -> None:
    cluster = (await server.state.cluster("lab"))[1]
    said.runs = [run(7, 0, 0)]
    start = OCTOBER.start

    def metrics(_: Cluster, __: Any, since: float, until: float, step: int) -> tuple[Row, ...]:
        moments = range(int(since), int(until) + 1, step)
        use = tuple((float(one), 0.0 if one < start + 600 else 90.0) for one in moments)
        power = tuple((float(one), 5600.0) for one in moments)
        return (Row("use", "", {"hpc_job": "7"}, use), Row("power", "", {"hpc_job": "7"}, power))

    server.work.answers["metrics"] = metrics
    for moment in (300, 300, 900, 1220):
        at(server, moment)
        await collect(server.state, cluster)
    [found] = await server.store.runs_of("lab", 7)
    assert (found.measured_s, found.energy_j) == (1200, 1200 * 5600)
    assert found.idle_s == 9 * 60
    ann = await server.client()
    told = await got(ann, "energy?period=2026-10")
    assert told["total"]["measured_kwh"] == pytest.approx(1200 * 5600 / 3.6e6 * 1.3, rel=1e-3)
    assert told["total"]["estimated_kwh"] == pytest.approx(20 * 8 * 700 / 3.6e6 * 1.3, rel=1e-2)
    good = await got(ann, "goodput?period=2026-10")
    assert good["total"]["idle_gpu_hours"] == pytest.approx(8 * 540 / 3600, rel=1e-3)
    assert [one["kind"] for one in good["causes"]] == ["idle"]


async def test_what_a_training_said_of_its_checkpoint_is_what_is_lost(server: Server, said: Accounting) -> None:
    cluster = (await server.state.cluster("lab"))[1]
    said.runs = [run(7, 0, 1000, state="NODE_FAIL"), run(7, 1100, 0)]
    server.work.answers["losses"] = {7: ((OCTOBER.start + 990.0, 90.0),)}
    at(server, 2000)
    await collect(server.state, cluster)
    await collect(server.state, cluster)
    first, again = await server.store.runs_of("lab", 7)
    assert (first.lost_s, again.lost_s) == (100, 0)


async def test_slow_checkpoints_are_a_cause_and_the_better_interval_is_told_in_dollars(
    server: Server, said: Accounting
) -> None:
    cluster = (await server.state.cluster("lab"))[1]
    await machines(server, 2)
    said.runs = [run(7, 0, 0), run(8, 0, 0, team="speech", user="sam", nodes=("lab-1-2",))]
    server.work.answers["saves"] = {7: Saves(100, 2000.0, 20_000.0), 8: Saves(1, 50.0, 60.0)}
    at(server, 10 * H)
    await collect(server.state, cluster)
    server.work.answers["saves"] = {7: Saves(1, 1.0, 1.0)}  # its reports were cut: what was known stays
    at(server, 10 * H + 60)
    await collect(server.state, cluster)
    at(server, 10 * H)
    ann, sam = await server.client(), await server.client("sam", "member")
    good = await got(ann, "goodput?period=2026-10")
    # 20 s every 200 s: a tenth of ten hours of one node at 8 USD
    [cause] = [one for one in good["causes"] if one["kind"] == "checkpoints"]
    assert (cause["usd"], cause["gpu_hours"], cause["jobs"]) == (8.0, 8.0, [7])
    [told] = good["checkpoints"]
    year_s = 365 * 24 * H  # no node ever failed: once a year
    best = (2 * year_s * 20) ** 0.5
    assert (told["job"], told["write_s"], told["now_s"]) == (7, 20.0, 200.0)
    assert told["best_s"] == pytest.approx(best, abs=0.1)
    saves = 20 / 200 + 200 / (2 * year_s) - 20 / best - best / (2 * year_s)
    assert told["saves_usd"] == pytest.approx(80 * saves, abs=0.01)
    page = (await ann.get("/clusters/lab/costs?section=goodput&period=2026-10")).text
    assert ("Checkpoints that could come" in page, f"{told['saves_usd']:,.2f}" in page) == (True, True)
    measured = await got(ann, "goodput/checkpoints?job=7")
    assert (measured["best_s"], measured["write_s"]) == (told["best_s"], 20.0)
    assert (await got(sam, "goodput?period=2026-10"))["checkpoints"] == []
    assert (await sam.get(f"{V1}/goodput/checkpoints?job=7")).status_code == 400
    assert (await got(sam, "goodput/checkpoints?every_s=60&write_s=20&nodes=16"))["best_s"] > 60


async def test_a_budget_warns_then_holds_back_and_lets_go_with_the_next_period(
    server: Server, said: Accounting
) -> None:
    teams = (replace(TEAMS[0], budget=Budget("usd", Decimal(100), "month", 0.8)), TEAMS[1])
    server.work.clusters["lab"]["teams"] = teams
    await server.apply("lab", note="budget")
    cluster = (await server.state.cluster("lab"))[1]
    await machines(server, 1)
    said.runs = [run(1, 0, 0)]
    told: list[str] = []
    for hours in (5, 11, 12, 13, 14):
        at(server, hours * H)
        await collect(server.state, cluster)
        told.append((await server.store.budget_level("lab", "vision", OCTOBER.start))[0])
    assert told == ["ok", "warn", "warn", "over", "over"]
    assert [call[1:] for call in server.work.named("hold_back")] == [("vision", True)]
    warned = [one.text for one in server.state.live.notices("lab") if "USD" in one.text]
    assert len(warned) == 2
    vera = await server.client("vera", "lead")
    note = (await vera.get("/clusters/lab/costs/note")).text
    assert ("The budget of vision is spent." in note, "Its jobs wait for the next month." in note) == (True, True)
    assert 'hx-get="/clusters/lab/costs/note"' in (await vera.get("/clusters/lab/queue")).text
    assert "vision" not in (await (await server.client("sam", "member")).get("/clusters/lab/costs/note")).text
    [mine] = await got(vera, "budgets")
    assert (mine["level"], mine["held_back"], mine["used"], mine["left"]) == ("over", True, 112.0, 0.0)
    said.runs = [run(1, 0, 14 * H)]
    at(server, NOVEMBER.start - OCTOBER.start + 60)
    await collect(server.state, cluster)
    assert [call[1:] for call in server.work.named("hold_back")] == [("vision", True), ("vision", False)]


async def test_a_budget_s_warning_goes_out_once_whatever_dies_between(server: Server, said: Accounting) -> None:
    teams = (replace(TEAMS[0], budget=Budget("usd", Decimal(100), "month", 0.8)), TEAMS[1])
    server.work.clusters["lab"]["teams"] = teams
    await server.apply("lab", note="budget")
    cluster = (await server.state.cluster("lab"))[1]
    await machines(server, 1)
    said.runs = [run(1, 0, 0)]

    def sent() -> list[str]:
        return [news.title for call in server.work.named("tell") for news in call[1]]

    at(server, 11 * H)
    server.work.answers["tell"] = Unreachable("Alertmanager on lab-head does not answer")
    await collect(server.state, cluster)
    server.work.answers["tell"] = None
    del server.work.calls[:]
    at(server, 11 * H + 60)
    await collect(server.state, cluster)
    await server.store.forget_runs("lab")  # all is counted again, and comes to the same level again
    await server.store.note_budget("lab", "vision", OCTOBER.start, "ok", capped=False)
    at(server, 11 * H + 120)
    await collect(server.state, cluster)
    assert sent() == ["lab: the budget of vision is soon spent"]
    at(server, 13 * H)
    await collect(server.state, cluster)
    at(server, 14 * H)
    await collect(server.state, cluster)
    assert sent() == ["lab: the budget of vision is soon spent", "lab: the budget of vision is spent"]
    [last] = server.work.named("tell")[-1][1]
    assert last.text == "team vision: 104.00 of 100 USD a month are used: its jobs wait for the next month"


async def test_a_week_is_summed_up_once_with_the_figures_of_usage_and_goodput(server: Server, said: Accounting) -> None:
    teams = (replace(TEAMS[0], budget=Budget("usd", Decimal(1000), "month")), TEAMS[1])
    server.work.clusters["lab"]["teams"] = teams
    await server.apply("lab", note="budget")
    cluster = (await server.state.cluster("lab"))[1]
    await machines(server, 2)
    monday = 4 * 24 * H  # 2026-10-05, in October's seconds
    said.runs = [
        run(1, monday, monday + 10 * H),
        run(2, monday, monday + 5 * H, team="speech", user="sam", nodes=("lab-1-2",), gpus=4, state="NODE_FAIL"),
        run(3, monday - 9 * H, monday - 8 * H),  # of the week before
    ]
    end = monday + 7 * 24 * H
    said.away = True
    at(server, end + 2 * H)
    with pytest.raises(HeadwayError):
        await collect(server.state, cluster)
    assert server.work.named("tell") == []  # not before accounting has told all of the week
    said.away = False
    for hours in (3, 4, 30):
        at(server, end + hours * H)
        await collect(server.state, cluster)
    [(_, [news])] = server.work.named("tell")
    ann = await server.client()
    used = await got(ann, f"usage?start={OCTOBER.start + monday}&end={OCTOBER.start + end}")
    share = {one["team"]: one["goodput"] for one in (await got(ann, "goodput?period=2026-10"))["teams"]}
    assert (news.key, news.title) == ("week/2026-W41", "lab: week 2026-W41")
    assert news.text.splitlines()[:2] == [
        f"{row['by']['team']}: {row['gpu_hours']:,.2f} GPU-hours, {row['usd']:,.2f} USD, "
        f"goodput {100 * share[row['by']['team']]:.1f} %"
        for row in used["rows"]
    ]
    assert "all: 100.00 GPU-hours, 100.00 USD, goodput 80.0 %" in news.text
    assert "lost: 20.00 USD, 20.00 GPU-hours: a node of lab-1-2 failed" in news.text
    assert "budget of vision: 912.00 of 1,000.00 USD a month are left" in news.text


async def test_before_submit_the_price_the_start_and_the_budget(server: Server) -> None:
    teams = (replace(TEAMS[0], budget=Budget("gpu_hours", Decimal(10), "month")), TEAMS[1])
    server.work.clusters["lab"]["teams"] = teams
    await server.apply("lab", note="budget")
    start = OCTOBER.start + 60
    said = f"sbatch: Job 5 to start at {start} using 64 processors on nodes lab-1-[1-2] in partition train"
    server.work.answers["submit"] = SubmitOut(job_id=0, cluster="lab", user="alice", workdir="", message=said)
    alice = await server.client("alice", "member")
    ask = {"submit": {"script": "#!/bin/sh\n#SBATCH -N2 --gpus-per-node=8 -t 2:00:00\n"}}
    told = (await alice.post(f"{V1}/estimate", json=ask)).json()
    assert (told["gpus"], told["usd"], told["gpu_hours"], told["usd_per_hour"]) == (16, 32.0, 32.0, 16.0)
    assert (told["start"], told["expected_nodes"], told["team"]) == (start, "lab-1-[1-2]", "vision")
    assert "10.00 are left" in told["warning"]
    ask["submit"]["script"] += "#SBATCH --array=0-9:3,20%2\n"
    array = (await alice.post(f"{V1}/estimate", json=ask)).json()
    assert (array["tasks"], array["gpus"], array["usd"], array["gpu_hours"]) == (5, 16, 160.0, 160.0)
    form = {"how": "script", "script": "#!/bin/sh\n", "nodes": "2", "gpus": "8", "time": "2:00:00"}
    page = (await alice.post("/clusters/lab/submit/check", data=form)).text
    assert ("32.00 USD" in page, "of 10.00 GPU-hours a month are left to vision" in page) == (True, True)
    assert "It may use 32.00 GPU-hours; 10.00 are left" in page
    assert "are left to vision" in (await alice.get("/clusters/lab/submit")).text
    wrong = await alice.post(f"{V1}/estimate", json={"submit": {"script": "#!/bin/sh\n#SBATCH -N99\n"}})
    assert (wrong.status_code, "99 nodes" in wrong.text) == (422, True)


async def test_hours_waits_and_free_gpus(server: Server, said: Accounting) -> None:
    await machines(server, 2, ended=4 * H)
    said.runs = [run(1, H, 3 * H), run(2, 0, 4 * H, nodes=("lab-1-2",), gpus=4, eligible=OCTOBER.start - 600)]
    at(server, 5 * H)
    ann = await server.client()
    told = await got(ann, "capacity?period=2026-10")
    [kind] = told["types"]
    assert kind["gpu_type"] == "h100"
    assert [(hour["held"], hour["there"]) for hour in kind["hours"][:5]] == [
        (4.0, 16.0), (12.0, 16.0), (12.0, 16.0), (4.0, 16.0), (0.0, 0.0),
    ]  # fmt: skip
    assert kind["utilisation"] == 0.5
    assert {one["size"]: (one["runs"], one["p50_s"]) for one in told["waits"]} == {"2 to 8": (2, 60)}


async def test_spares_and_machines_are_metered_as_they_are_seen(server: Server) -> None:
    from headway.api.collect import Meter

    cluster = (await server.state.cluster("lab"))[1]
    state: AppState = server.state
    meter = Meter()

    async def look(moment: int, *names: str) -> None:
        at(server, moment)
        nodes = [replace(builders.node(name), reservation=SPARES if name == "lab-1-2" else "") for name in names]
        state.live.put(replace(state.live.snapshot("lab"), nodes=tuple(nodes)))
        await meter.look(state, cluster, [builders.machine(name) for name in (*names, "lab-head")])

    await look(0, "lab-1-1", "lab-1-2")
    for moment in range(2, 100, 2):
        await look(moment, "lab-1-1", "lab-1-2")
    await look(100, "lab-1-1")
    lives = await server.store.lives("lab", OCTOBER.start, OCTOBER.end)
    assert [(one.machine, one.began - OCTOBER.start, one.ended and one.ended - OCTOBER.start) for one in lives] == [
        ("lab-1-1", 0, 0), ("lab-1-2", 0, 98),
    ]  # fmt: skip
    [spare] = await server.store.node_spans("lab", OCTOBER.start, OCTOBER.end)
    assert (spare.node, spare.ended - OCTOBER.start) == ("lab-1-2", 100)


async def test_the_server_s_loop_goes_on_past_a_cluster_that_does_not_answer(server: Server, said: Accounting) -> None:
    said.away = True
    at(server, H)
    loop = Collector(server.state)
    await loop.step()
    said.away = False
    said.runs = [run(1, 0, H)]
    at(server, 2 * H)
    await loop.step()
    assert len(await server.store.runs_of("lab", 1)) == 1


async def test_the_page_shows_the_same_figures_and_leads_to_the_runs(server: Server, said: Accounting) -> None:
    await machines(server, 2, ended=100 * H)
    said.runs = [run(1, 0, 10 * H), run(2, 0, 5 * H, team="speech", user="sam", nodes=("lab-1-2",), state="NODE_FAIL")]
    at(server, 200 * H)
    ann, vera = await server.client(), await server.client("vera", "lead")

    async def shown(client: httpx.AsyncClient, section: str, more: str = "") -> str:
        answer = await client.get(f"/clusters/lab/costs?section={section}&period=2026-10{more}")
        assert answer.status_code == 200, answer.text
        return answer.text

    used = await shown(ann, "usage")
    assert "80.00" in used
    assert "section=runs&amp;period=2026-10&amp;team=speech" in used
    assert "1,600.00" in await shown(ann, "invoice")
    paid = await got(ann, "chargeback?period=2026-10")
    page = await shown(ann, "chargeback")
    assert all(f"{one['total_usd']:,.2f}" in page for one in paid["teams"])
    assert "a node of lab-1-2 failed" in await shown(ann, "goodput")
    assert 'href="/clusters/lab/jobs/2"' in await shown(ann, "runs", "&team=speech&lossy=1")
    for section in ("budgets", "energy", "capacity"):
        assert "Costs" in await shown(ann, section)
    theirs = await shown(vera, "invoice")  # not hers: the usage of her own team
    assert ("vision" in theirs, "speech" in theirs, "1,600.00" in theirs) == (True, False, False)
    assert "speech" not in await shown(vera, "chargeback")
