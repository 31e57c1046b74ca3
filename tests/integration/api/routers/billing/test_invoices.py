"""The API reports usage, invoices and payers, and no failure or late fact changes a closed invoice."""

from __future__ import annotations

import csv
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from headway.domain.billing.cost_settings import CostSettings
from headway.domain.billing.ledger import DAY_S, MachineLifetime, NodePrice, NodeSpan, SpanKind
from headway.errors import HeadwayError
from headway.services.billing.billing_round import run_billing_round
from tests.support.billing.billing_cluster import (
    OCTOBER,
    V1,
    Accounting,
    H,
    accounting,
    at,
    got,
    machines,
    run,
    server,
    summed,
)
from tests.support.servers.server_fakes import Server

__all__ = ["accounting", "server"]  # fixtures


async def test_usage_chargeback_and_invoice_agree_in_json_and_csv(server: Server, accounting: Accounting) -> None:
    await machines(server, 2, ended=100 * H)
    accounting.runs = [
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


async def test_chargeback_shows_spare_and_broken_nodes_separately(server: Server, accounting: Accounting) -> None:
    await machines(server, 3, ended=10 * H)
    accounting.events = [NodeSpan("lab-1-1", SpanKind.DRAINED, OCTOBER.start, OCTOBER.start + 4 * H, "bad")]
    await server.store.node_spans.save("lab", [NodeSpan("lab-1-3", SpanKind.SPARE, OCTOBER.start, 0)])
    accounting.runs = [run(1, -H, H)]  # ends on the node while it drains: that hour is the job's
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


async def test_node_state_missing_from_accounting_ends_at_its_last_report(
    server: Server, accounting: Accounting
) -> None:
    """It came out of a backup of before. What still is stays open, and spares are none of accounting's."""
    await machines(server, 3)
    cluster = (await server.state.clusters.get("lab"))[1]
    start = OCTOBER.start
    drained, down = (NodeSpan("lab-1-1", kind, start + H, 0, "fan") for kind in (SpanKind.DRAINED, SpanKind.DOWN))
    other, spare = (NodeSpan(f"lab-1-{n}", kind, start, 0) for n, kind in ((2, drained.kind), (3, SpanKind.SPARE)))
    await server.store.node_spans.save("lab", [spare])
    for hours, told in (
        (2, [drained, down, other]),
        (3, [other]),
        (200, [other, replace(drained, began=start + 5 * H)]),
    ):
        accounting.events = told
        at(server, hours * H)
        await run_billing_round(server.state, cluster)
    found = await server.store.node_spans.between("lab", start, OCTOBER.end)
    assert sorted((one.node, one.kind, (one.began - start) // H, one.ended and (one.ended - start) / H) for one in found) == [
        ("lab-1-1", "down", 1, 2), ("lab-1-1", "drained", 1, 2), ("lab-1-1", "drained", 5, 0),
        ("lab-1-2", "drained", 0, 0), ("lab-1-3", "spare", 0, 0),
    ]  # fmt: skip


async def test_team_lead_sees_usage_of_own_team_and_no_invoice(server: Server, accounting: Accounting) -> None:
    await machines(server, 1, ended=10 * H)
    accounting.runs = [run(1, 0, H), run(2, H, 2 * H, team="speech", user="sam")]
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


async def test_late_facts_become_corrections_and_leave_the_closed_invoice_unchanged(
    server: Server, accounting: Accounting
) -> None:
    await machines(server, 1)
    accounting.runs = [run(1, 0, 10 * H)]
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
    await server.store.machine_lifetimes.record("lab", [("lab-1-2", "main")], [], [], OCTOBER.start)
    late = MachineLifetime("lab-1-2", "main", OCTOBER.start, OCTOBER.start + 10 * H, 0)
    await server.store.machine_lifetimes.record("lab", [], [late], [], OCTOBER.start + 10 * H)
    accounting.runs.append(run(9, 20 * H, 30 * H, team="speech", user="sam"))
    at(server, 744 * H + 2 * H)
    await run_billing_round(server.state, (await server.state.clusters.get("lab"))[1])
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


async def test_csv_rows_sum_to_the_invoice_total_with_a_credit(server: Server) -> None:
    """The machine had gone in October, which is known after that month was closed."""
    await machines(server, 1)
    at(server, 745 * H)
    ann = await server.client()
    assert (await ann.post(f"{V1}/invoice/close", json={"period": "2026-10"})).status_code == 200
    await server.store.machine_lifetimes.end_all("lab", OCTOBER.start + 740 * H)
    assert (await got(ann, "invoice?period=2026-11"))["total_usd"] == -32.0
    for path, column in (("invoice", "amount_usd"), ("chargeback", "total_usd")):
        rows = csv.DictReader((await ann.get(f"{V1}/{path}?period=2026-11&format=csv")).text.splitlines())
        assert sum(float(row[column]) for row in rows) == -32.0


async def test_closed_invoice_survives_late_runs_rebuild_and_recreation(server: Server, accounting: Accounting) -> None:
    cluster = (await server.state.clusters.get("lab"))[1]
    await machines(server, 2)
    accounting.runs = [run(1, 0, 10 * H), run(2, 700 * H, 0, nodes=("lab-1-2",))]
    ann = await server.client()
    end = 744 * H
    at(server, end + 100)
    assert (await ann.post(f"{V1}/invoice/close", json={"period": "2026-10"})).status_code == 200

    async def told() -> list[Any]:
        sheet = await ann.get(f"{V1}/invoice?period=2026-10&format=csv")
        return [await got(ann, "invoice?period=2026-10"), await got(ann, "chargeback?period=2026-10"), sheet.text]

    kept = await told()
    # Late and twice: an array of 10,000, each requeued. And a price from the middle of a job that was billed.
    late = [
        run(100 + i, 500 * H + part * 60, 500 * H + part * 60 + 50, gpus=1, array_job=100)
        for i in range(10_000)
        for part in (0, 1)
    ]
    accounting.runs += [*late, *late[:500]]
    await server.store.prices.record("lab", [NodePrice("main", float(OCTOBER.start + 5 * H), Decimal("80"))])
    at(server, end + 25 * H)
    await run_billing_round(server.state, cluster)
    assert await told() == kept
    assert (await got(ann, "usage?start=2026-10&end=2026-11"))["total"]["runs"] == 20_002
    accounting.away = True
    at(server, end + 26 * H)
    assert await told() == kept
    accounting.away = False
    assert (await ann.post(f"{V1}/ledger/rebuild")).status_code == 200
    assert await told() == kept
    # Months begin elsewhere now; the next one still begins where the closed one ended.
    costs = CostSettings("Europe/Berlin", idle="centre:it")
    server.backend.clusters["lab"]["costs"] = costs
    await server.apply("lab", note="zone")
    assert await told() == kept
    november = await got(ann, "invoice?period=2026-11")
    assert (november["start"], november["timezone"]) == (OCTOBER.end, "Europe/Berlin")
    # Gone, and there again under another name.
    server.backend.answers["take_down"] = ()
    assert (await ann.post(f"{V1}/down", json={"delete_data": True})).status_code == 202
    await server.work_off()
    server.backend.clusters["lab2"] = server.backend.clusters["lab"]
    await server.apply("lab2")
    assert await told() == kept
    assert (await ann.get("/api/v1/clusters/lab2/invoice?period=2026-10")).json()["lines"] == []


async def test_invoices_must_be_closed_in_month_order(server: Server) -> None:
    await machines(server, 1, ended=H)
    at(server, 2000 * H)
    ann = await server.client()
    wrong = await ann.post(f"{V1}/invoice/close", json={"period": "2026-11"})
    assert (wrong.status_code, "2026-10 is not closed" in wrong.text) == (409, True)
    gone = await ann.post(f"{V1}/invoice/close", json={"period": "2026-09"})
    assert gone.status_code == 404


async def test_price_change_during_a_job_applies_from_then_on(server: Server, accounting: Accounting) -> None:
    await machines(server, 1, ended=10 * H)
    accounting.runs = [run(1, 0, 10 * H)]
    await server.store.prices.record("lab", [NodePrice("main", float(OCTOBER.start + 4 * H), Decimal("16"))])
    at(server, 20 * H)
    ann = await server.client()
    assert (await got(ann, "usage?start=2026-10"))["total"]["usd"] == 4 * 8 + 6 * 16
    assert [one["usd"] for one in (await got(ann, "usage/runs?start=2026-10"))["runs"]] == [4 * 8 + 6 * 16]
    paid = await got(ann, "chargeback?period=2026-10")
    assert next(one for one in paid["teams"] if one["team"] == "vision")["productive_usd"] == 128.0
    assert paid["invoice_total_usd"] == 128.0 == float(summed(paid))


async def test_reserved_machines_are_billed_until_the_cluster_is_down(server: Server, accounting: Accounting) -> None:
    await machines(server, 2)
    accounting.runs = [run(1, 2 * H, 4 * H)]
    await server.store.prices.record("lab", [NodePrice("main", float(OCTOBER.start + 2 * H), Decimal("6"), reserved=3)])
    at(server, 10 * H)
    ann = await server.client()
    bill = await got(ann, "invoice?period=2026-10")
    assert [(line["what"], line["billing"], line["hours"], line["amount_usd"]) for line in bill["lines"]] == [
        ("node", "on demand", 4.0, 32.0), ("node", "reserved", 16.0, 96.0), ("unused", "reserved", 8.0, 48.0),
    ]  # fmt: skip
    paid = await got(ann, "chargeback?period=2026-10")
    assert float(summed(paid)) == bill["total_usd"] == paid["invoice_total_usd"]
    server.backend.answers["take_down"] = ()
    assert (await ann.post(f"{V1}/down", json={"delete_data": True})).status_code == 202
    await server.work_off()
    at(server, 100 * H)
    assert (await got(ann, "invoice?period=2026-10"))["total_usd"] == bill["total_usd"]


async def test_running_jobs_are_charged_until_the_cluster_goes_down(server: Server, accounting: Accounting) -> None:
    await machines(server, 1)
    accounting.runs = [run(1, 0, 0)]
    at(server, 4 * H)
    ann = await server.client()
    server.backend.answers["take_down"] = ()
    assert (await ann.post(f"{V1}/down", json={})).status_code == 202
    await server.work_off()
    at(server, 100 * H)
    assert (await got(ann, "usage?start=2026-10"))["total"]["gpu_hours"] == 8 * 4.0
    [listed] = (await got(ann, "usage/runs?start=2026-10"))["runs"]
    assert listed["end"] == OCTOBER.start + 4 * H
    # The cluster is made again on its kept data, and its accounting knows better.
    accounting.runs = [run(1, 0, 3 * H, state="CANCELLED")]
    await server.apply("lab", note="again")
    assert (await got(ann, "usage?start=2026-10"))["total"]["gpu_hours"] == 8 * 3.0


async def test_absent_reserved_machine_is_off_and_billed_as_unused(server: Server, accounting: Accounting) -> None:
    await server.store.prices.record("lab", [NodePrice("main", float(OCTOBER.start + H), Decimal("6"), reserved=1)])
    await machines(server, 1, ended=10 * H)  # and no other in all of November
    at(server, 754 * H)  # October has 744 hours
    ann = await server.client()
    [line] = (await got(ann, "invoice?period=2026-11"))["lines"]
    [off] = (await got(ann, "usage/nodes?start=2026-11"))["states"]
    assert (line["what"], line["hours"]) == ("unused", 10.0)
    assert (off["node"], off["state"], off["seconds"]) == ("lab-1-1", "off", 10 * H)


async def test_job_across_month_end_is_split_between_both_months(server: Server, accounting: Accounting) -> None:
    await machines(server, 1)
    accounting.runs = [run(1, 740 * H, 750 * H)]
    at(server, 760 * H)
    ann = await server.client()
    october, november = [
        (await got(ann, f"usage?start=2026-{a}&end=2026-{b}"))["total"] for a, b in ((10, 11), (11, 12))
    ]
    assert (october["gpu_hours"], november["gpu_hours"]) == (32.0, 48.0)
    assert (october["runs"], november["runs"]) == (1, 1)


async def test_month_with_clock_change_bills_its_extra_hour(server: Server, accounting: Accounting) -> None:
    server.backend.clusters["lab"]["costs"] = CostSettings("Europe/Berlin")
    await server.apply("lab", note="zone")
    await machines(server, 1, began=-9 * H)
    accounting.runs = [run(1, -9 * H, 0)]  # it runs on over the change of clocks and over the month's end
    at(server, 800 * H)
    ann = await server.client()
    bill = await got(ann, "invoice?period=2026-10")
    assert bill["lines"][0]["hours"] == 745.0
    used = await got(ann, "usage?start=2026-10-25&end=2026-10-26")
    assert (used["end"] - used["start"]) == 25 * H
    assert (used["total"]["gpu_hours"], used["total"]["usd"]) == (8 * 25.0, 8 * 25.0)
    for month in ("2026-09", "2026-10"):
        assert (await ann.post(f"{V1}/invoice/close", json={"period": month})).status_code == 200
    paid = await got(ann, "chargeback?period=2026-10")
    assert paid["invoice_total_usd"] == 745 * 8.0 == float(summed(paid))
    night = 24 * 24 * H  # a record of that very hour comes late
    accounting.runs.append(run(3, night, night + H, gpus=1, nodes=("lab-1-2",)))
    at(server, 830 * H)
    await run_billing_round(server.state, (await server.state.clusters.get("lab"))[1])
    assert await got(ann, "chargeback?period=2026-10") == paid
    november = await got(ann, "invoice?period=2026-11")
    assert november["start"] == bill["end"]
    assert [line["what"] for line in november["lines"]] == ["node"]


async def test_accounting_outage_is_caught_up_without_double_counting(server: Server, accounting: Accounting) -> None:
    cluster = (await server.state.clusters.get("lab"))[1]
    await machines(server, 1)
    accounting.runs = [run(1, 0, 0)]
    at(server, H)
    await run_billing_round(server.state, cluster)
    accounting.away = True
    for minutes in range(60, 120, 10):
        at(server, H + minutes * 60)
        with pytest.raises(HeadwayError):
            await run_billing_round(server.state, cluster)
    assert "slurmdbd" in (await server.store.ledger_progress.get("lab")).error
    ann = await server.client()
    answer = await got(ann, "usage?start=2026-10")
    assert "slurmdbd" in answer["stale"]
    accounting.away = False
    accounting.runs = [run(1, 0, 2 * H), run(2, 2 * H, 3 * H), run(2, 2 * H, 3 * H)]
    at(server, 4 * H)
    await run_billing_round(server.state, cluster)
    await run_billing_round(server.state, cluster)
    [total] = (await got(ann, "usage?start=2026-10&end=2026-11"))["rows"]
    assert (total["runs"], total["gpu_hours"]) == (2, 24.0)
    assert (await server.store.ledger_progress.get("lab")).error == ""


async def test_collects_runs_recorded_days_late(server: Server, accounting: Accounting) -> None:
    cluster = (await server.state.clusters.get("lab"))[1]
    await machines(server, 1)
    for day in range(3):
        at(server, day * DAY_S + H)
        await run_billing_round(server.state, cluster)
    accounting.runs = [run(1, H, 2 * H)]
    at(server, 3 * DAY_S)
    await run_billing_round(server.state, cluster)
    at(server, 4 * DAY_S)
    await run_billing_round(server.state, cluster)
    ann = await server.client()
    assert (await got(ann, "usage?start=2026-10"))["total"]["runs"] == 1


async def test_collects_runs_after_two_months_without_accounting(server: Server, accounting: Accounting) -> None:
    cluster = (await server.state.clusters.get("lab"))[1]
    await machines(server, 1)
    at(server, DAY_S)
    await run_billing_round(server.state, cluster)
    accounting.runs = [run(1, 2 * DAY_S, 3 * DAY_S), run(2, 50 * DAY_S, 51 * DAY_S)]
    at(server, 60 * DAY_S)
    await run_billing_round(server.state, cluster)
    assert [len(await server.store.usage.runs_of_job("lab", job)) for job in (1, 2)] == [1, 1]


async def test_clock_jump_ahead_does_not_stop_collecting_runs(server: Server, accounting: Accounting) -> None:
    cluster = (await server.state.clusters.get("lab"))[1]
    await machines(server, 1)
    accounting.runs = [run(1, 0, 0)]
    at(server, 400 * DAY_S)
    await run_billing_round(server.state, cluster)
    accounting.runs = []  # it ended, and accounting forgot it
    at(server, 2 * DAY_S)
    await run_billing_round(server.state, cluster)
    [known] = await server.store.usage.runs_of_job("lab", 1)
    assert known.end == OCTOBER.start + 2 * DAY_S
    accounting.runs = [run(2, H, 2 * H)]  # comes late
    at(server, 3 * DAY_S + 60)
    await run_billing_round(server.state, cluster)
    assert len(await server.store.usage.runs_of_job("lab", 2)) == 1


async def test_deleted_cluster_can_still_be_invoiced(server: Server, accounting: Accounting) -> None:
    await machines(server, 1)
    accounting.runs = [run(1, 0, 2 * H)]
    at(server, 5 * H)
    server.backend.answers["take_down"] = ()
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


async def test_deleted_cluster_is_charged_by_its_own_cost_settings(server: Server, accounting: Accounting) -> None:
    """Its zone, who pays for what stood idle, shares and the price of power."""
    server.backend.clusters["lab"]["costs"] = CostSettings(
        "Europe/Berlin", idle="centre:it", spare="share", pue=1.5, usd_per_kwh=Decimal("0.3")
    )
    await server.apply("lab", note="costs")
    await machines(server, 2)
    await server.store.node_spans.save("lab", [NodeSpan("lab-1-2", SpanKind.SPARE, OCTOBER.start, 0)])
    accounting.runs = [run(1, 0, 10 * H)]
    at(server, 20 * H)
    ann = await server.client()

    async def told() -> list[Any]:
        found = [await got(ann, f"{what}?period=2026-10") for what in ("invoice", "chargeback", "energy")]
        return [{key: value for key, value in one.items() if key != "as_of"} for one in found]

    before = await told()
    assert before[0]["timezone"] == "Europe/Berlin"
    assert {one["what"]: one["centre"] for one in before[1]["unassigned"]} == {"idle": "it"}
    server.backend.answers["take_down"] = ()
    assert (await ann.post(f"{V1}/down", json={"delete_data": True})).status_code == 202
    await server.work_off()
    assert await told() == before
    at(server, 745 * H)
    assert (await ann.post(f"{V1}/invoice/close", json={"period": "2026-10"})).status_code == 200
    assert (await told())[1]["teams"] == before[1]["teams"]


async def test_reused_job_ids_of_a_recreated_cluster_keep_earlier_runs(server: Server, accounting: Accounting) -> None:
    cluster = (await server.state.clusters.get("lab"))[1]
    accounting.runs = [run(1, 0, H), run(2, H, 0)]
    at(server, 2 * H)
    await run_billing_round(server.state, cluster)
    accounting.runs = [run(1, 3 * H, 4 * H)]  # created again, with job numbers from 1; job 2 ended with its database
    at(server, 5 * H)
    await run_billing_round(server.state, cluster)
    rows = await server.store.usage.runs_of_job("lab", 1)
    assert [row.start - OCTOBER.start for row in rows] == [0, 3 * H]
    [lost] = await server.store.usage.runs_of_job("lab", 2)
    assert (lost.end - OCTOBER.start, lost.state) == (2 * H, "UNKNOWN")
