"""A server that knows the bills of one month, for the commands about costs."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from headway.schemas.billing.budgets import BudgetOut
from headway.schemas.billing.capacity import CapacityOut, HourOut, TypeOut
from headway.schemas.billing.chargeback import ChargebackOut, TeamCostOut, UnassignedOut
from headway.schemas.billing.forecast import (
    FillOut,
    ForecastDayOut,
    ForecastOut,
    PartForecastOut,
    WaitForecastOut,
)
from headway.schemas.billing.goodput import AdviceOut, GoodputOut, PartsOut
from headway.schemas.billing.invoices import InvoiceLineOut, InvoiceOut
from headway.schemas.billing.node_states import NodeStateOut, NodeStatesOut
from headway.schemas.billing.usage import RunsOut, UsageOut, UsageRow

NOW = 1_790_812_800


def usage_row(team: str, usd: str) -> UsageRow:
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
        rows = [usage_row("vision", "33.20")]
        return UsageOut(
            cluster="lab", start=NOW, end=NOW + 60, as_of=NOW, rows=rows, total=usage_row("", "33.20"), stale="away"
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
            team="vision", productive_usd=Decimal("1.10"), lost_usd=zero, allocated_idle_usd=zero, idle_usd=Decimal("0.20"),
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
            HourOut(at=NOW, allocated=12, present=16, free=4, fragmented=4),
            HourOut(at=NOW + 3600, allocated=4, present=16, free=12, fragmented=0),
        ]
        kind = TypeOut(gpu_type="h100", utilisation=0.5, fragmentation=0.25, hours=hours)
        return CapacityOut(
            cluster=cluster, period=period, start=NOW, end=NOW, types=[kind], waits=[], free_gpus=16,
            free_whole_node_gpus=8, fragmentation=0.5,
        )  # fmt: skip

    def forecast(self, cluster: str) -> ForecastOut:
        days = [ForecastDayOut(day=NOW + day * 86400, gpu_hours=96, low=48, high=192) for day in range(14)]
        parts = [PartForecastOut(name="vision", gpu_hours=2000, next_gpu_hours=2688, error=0.125)]
        waits = [WaitForecastOut(name="vision", runs=7, p50_s=5, p90_s=600, next_p50_s=60, next_p90_s=None)]
        return ForecastOut(
            cluster=cluster, gpus=8, used=[], forecast=days, no_forecast="", method="trend", error=0.25, total_error=0.1,
            within=0.8, tested_days=77, compared_days=28, full_days=3, teams=parts, sizes=[], team_waits=waits, size_waits=[],
            fills=FillOut(expected=None, earliest=NOW, latest=None),
        )  # fmt: skip

    def usage_runs(self, cluster: str, *, job: int, cause: str, cursor: str, **asked: str) -> RunsOut:
        assert (cluster, job, cause, cursor, asked["start"]) == ("lab", 0, "lab-1-2 failed", "", "2026-10")
        return RunsOut(cluster=cluster, start=NOW, end=NOW, runs=[])
