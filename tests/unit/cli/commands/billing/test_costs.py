"""The ledger's commands print tables for people and exports for spreadsheets."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest

from headway.cli import formatting
from headway.cli.commands.billing import costs
from headway.schemas import spreadsheets
from headway.schemas.billing import (
    AdviceOut,
    BudgetOut,
    CapacityOut,
    ChargebackOut,
    EstimateOut,
    GoodputOut,
    HourOut,
    InvoiceLineOut,
    InvoiceOut,
    NodeStateOut,
    NodeStatesOut,
    PartsOut,
    RunsOut,
    TeamCostOut,
    TypeOut,
    UnassignedOut,
    UsageOut,
    UsageRow,
)

NOW = 1_790_812_800


def row(team: str, usd: str) -> UsageRow:
    return UsageRow(
        by={"team": team} if team else {}, runs=1, gpu_hours=8.5, cpu_hours=1, lost_gpu_hours=0.5, idle_gpu_hours=0,
        waited_hours=0.25, usd=Decimal(usd), energy_kwh=7, energy_estimated=True,
    )  # fmt: skip


class Ledger:
    """A server that knows one month."""

    url = ""

    @property
    def clusters(self) -> Ledger:
        return self

    @property
    def billing(self) -> Ledger:
        return self

    def only_name(self) -> str:
        return "lab"

    def usage(self, cluster: str, **asked: Any) -> UsageOut:
        assert (cluster, asked["by"]) == ("lab", ["team"])
        rows = [row("vision", "33.20")]
        return UsageOut(
            cluster="lab", start=NOW, end=NOW + 60, as_of=NOW, rows=rows, total=row("", "33.20"), stale="away"
        )

    def node_states(self, cluster: str, *, cursor: str, **asked: str) -> NodeStatesOut:
        assert asked == {"start": "2026-10", "end": "", "group": ""}
        state = "drained" if cursor else "up"
        one = NodeStateOut(
            node="lab-1-1",
            group="main",
            state=state,
            start=NOW,
            end=None if cursor else NOW + 90,
            seconds=90,
            reason="XID 79",
        )
        return NodeStatesOut(cluster=cluster, start=NOW, end=NOW, as_of=NOW, states=[one], next="" if cursor else "1")

    def chargeback(self, cluster: str, period: str) -> ChargebackOut:
        assert (cluster, period) == ("lab", "2026-10")
        zero = Decimal("0.00")
        team = TeamCostOut(
            team="vision", productive_usd=Decimal("1.10"), lost_usd=zero, held_idle_usd=zero, idle_usd=Decimal("0.20"),
            spare_usd=zero, broken_usd=zero, total_usd=Decimal("1.30"),
        )  # fmt: skip
        none = team.model_copy(update={"team": "", "productive_usd": zero, "idle_usd": zero, "total_usd": zero})
        rest = UnassignedOut(what="broken", centre="it", usd=Decimal("0.70"))
        return ChargebackOut(
            cluster="lab", period=period, start=NOW, end=NOW + 60, state="open", as_of=NOW, rules={},
            invoice_total_usd=Decimal("2.00"), teams=[team, none], unassigned=[rest],
        )  # fmt: skip

    def invoice(self, cluster: str, period: str) -> InvoiceOut:
        line = InvoiceLineOut(
            what="spare", group="main", billing="on demand", usd_per_hour=Decimal("23.92"), hours=1.0, seconds=3600,
            amount_usd=Decimal("23.92"),
        )  # fmt: skip
        return InvoiceOut(
            cluster=cluster, period=period or "2026-10", start=NOW, end=NOW + 60, timezone="UTC", state="open", as_of=NOW,
            lines=[line], total_usd=Decimal("23.92"),
        )  # fmt: skip

    def goodput(self, cluster: str, period: str) -> GoodputOut:
        parts = PartsOut(
            team="", productive_gpu_hours=8, lost_gpu_hours=0, idle_gpu_hours=0, waited_gpu_hours=0, goodput=1, ettr=1
        )
        advice = AdviceOut(
            job=104, now_s=60, best_s=1200, write_s=20, failure_s=36_000, saves=0.3, saves_usd=Decimal("12.50")
        )
        return GoodputOut(
            cluster=cluster, period=period, start=NOW, end=NOW, as_of=NOW, total=parts, causes=[],
            teams=[parts, parts.model_copy(update={"team": "all"})],
            checkpoints=[advice],
        )  # fmt: skip

    def budgets(self, _: str) -> list[BudgetOut]:
        return []

    def capacity(self, cluster: str, period: str) -> CapacityOut:
        hours = [
            HourOut(at=NOW, held=12, there=16, free=4, fragmented=4),
            HourOut(at=NOW + 3600, held=4, there=16, free=12, fragmented=0),
        ]
        kind = TypeOut(gpu_type="h100", utilisation=0.5, fragmentation=0.25, hours=hours)
        return CapacityOut(
            cluster=cluster, period=period, start=NOW, end=NOW, types=[kind], waits=[], free_gpus=16,
            free_whole_node_gpus=8, fragmentation=0.5,
        )  # fmt: skip

    def usage_runs(self, cluster: str, *, job: int, cause: str, cursor: str, **asked: str) -> RunsOut:
        assert (cluster, job, cause, cursor, asked["start"]) == ("lab", 0, "lab-1-2 failed", "", "2026-10")
        return RunsOut(cluster=cluster, start=NOW, end=NOW, runs=[])


@pytest.fixture(autouse=True)
def ledger(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headway.cli.session.connect", Ledger)


def test_usage_prints_a_table_or_csv(capsys: pytest.CaptureFixture[str]) -> None:
    costs.usage(by="team")
    told = capsys.readouterr()
    assert "vision     1       8.50  0.50  0.00      0.25  ~7.0  33.20" in told.out
    assert told.out.splitlines()[-1].startswith("all")
    assert "away" in told.err
    costs.usage(by="team", output=costs.Sheet.csv)
    assert capsys.readouterr().out.splitlines()[1] == "vision,1,8.5,1.0,0.5,0.0,0.25,33.20,7.0,True"


def test_usage_of_nodes_prints_node_states_from_all_pages(capsys: pytest.CaptureFixture[str]) -> None:
    costs.usage(nodes=True, start="2026-10")
    first, second = capsys.readouterr().out.splitlines()[1:]
    assert ("up" in first, "1:30 " in first) == (True, True)
    assert ("drained" in second, "1:30+  XID 79" in second) == (True, True)
    costs.usage(nodes=True, start="2026-10", output=costs.Sheet.csv)
    assert [line.split(",")[2] for line in capsys.readouterr().out.splitlines()] == ["state", "up", "drained"]


def test_csv_export_escapes_team_names_that_look_like_formulas() -> None:
    found = UsageOut(cluster="lab", start=NOW, end=NOW, as_of=NOW, rows=[row("=1+1", "1.00")], total=row("", "1.00"))
    assert spreadsheets.text(found).splitlines()[1].startswith("'=1+1,1,")


def test_chargeback_prints_json_numbers_table_and_csv(capsys: pytest.CaptureFixture[str]) -> None:
    costs.chargeback(period="2026-10", output=costs.Sheet.json)
    told = json.loads(capsys.readouterr().out)
    assert told["invoice_total_usd"] == 2.0
    assert (told["teams"][0]["total_usd"], told["unassigned"][0]["usd"]) == (1.3, 0.7)
    costs.chargeback(period="2026-10")
    shown = capsys.readouterr()
    assert ("(broken, it)" in shown.out, "no team" in shown.out) == (True, True)
    assert "may still change" in shown.err
    costs.chargeback(period="2026-10", output=costs.Sheet.csv)
    assert capsys.readouterr().out.splitlines()[-1] == "(broken: it),,,,,,,0.70"


def test_invoice_shows_spare_nodes(capsys: pytest.CaptureFixture[str]) -> None:
    costs.invoice()
    told = capsys.readouterr().out
    assert "open, until" in told
    assert "spare  main   on demand  1.0000      23.9200  23.92" in told


def test_goodput_lists_checkpoint_advice_per_job(capsys: pytest.CaptureFixture[str]) -> None:
    costs.goodput()
    told = capsys.readouterr().out
    assert "104     20.0 s   1:00         20:00           12.50" in told
    first = [line.split("  ")[0] for line in told.splitlines()]
    assert [word for word in first if word in ("no team", "all")] == ["no team", "all", "all"], (
        "a team may be called so"
    )


def test_budgets_without_any_names_the_cluster_file_field(capsys: pytest.CaptureFixture[str]) -> None:
    costs.budgets()
    assert "teams.NAME.budget" in capsys.readouterr().out


def test_estimate_names_unknown_values_and_uninterpreted_options(capsys: pytest.CaptureFixture[str]) -> None:
    endless = EstimateOut(
        team="vision", gpus=8, nodes=1, time_limit_s=None, gpu_hours=None, usd=None, usd_per_hour=Decimal(8)
    )
    costs.print_estimate(endless)
    told = capsys.readouterr().out
    assert "8.00 USD an hour" in told
    assert "unknown to Slurm" in told
    costs.print_estimate(endless.model_copy(update={"usd_per_hour": None, "unread": ["--nodelist"]}))
    assert "unknown; options that could not be interpreted: --nodelist" in capsys.readouterr().out


def test_capacity_shows_fragmentation_of_free_gpus(capsys: pytest.CaptureFixture[str]) -> None:
    costs.capacity()
    told = capsys.readouterr().out
    assert "h100: 50.0 % held, 75.0 % in the fullest hour" in told
    assert "h100: 25.0 % of the free GPU-hours on nodes that also ran a job, most in the hour of" in told
    assert "(4.00 of 4.00)" in told
    assert "free now: 16 GPUs, 8 of them on completely free nodes (50.0 % fragmented)" in told


def test_usage_with_cause_requests_runs_of_that_cause(capsys: pytest.CaptureFixture[str]) -> None:
    costs.usage(cause="lab-1-2 failed", start="2026-10")
    assert "no matching run" in capsys.readouterr().out


def test_budgets_show_the_end_of_their_period(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = BudgetOut(
        team="vision", unit="usd", per="month", limit=20, used=5, left=15, warn_at=16, level="ok", cap=True,
        held_back=False, start=NOW, end=NOW + 3600,
    )  # fmt: skip
    monkeypatch.setattr(Ledger, "budgets", lambda *_: [one])
    costs.budgets()
    head, row = capsys.readouterr().out.splitlines()
    assert head.split() == ["TEAM", "USED", "OF", "LEFT", "UNIT", "PER", "UNTIL", "STATE"]
    assert formatting.local_time(NOW + 3600) in row
