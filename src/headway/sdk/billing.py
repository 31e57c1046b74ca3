"""Of the client: usage, invoices, chargeback and what else the ledger tells."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict, Unpack
from urllib.parse import urlencode

from headway.schemas.billing import (
    BudgetOut,
    CapacityOut,
    ChargebackOut,
    CloseIn,
    CollectedOut,
    EnergyOut,
    EstimateOut,
    GoodputOut,
    InvoiceOut,
    JobGoodputOut,
    NodeStatesOut,
    RunsOut,
    UsageOut,
)
from headway.schemas.submissions import CheckJobIn
from headway.sdk.transport import Http, part


class Only(TypedDict, total=False):
    """Runs that are looked at; "-": those that have none. What is not said is all of it."""

    team: str
    user: str
    partition: str
    gpu: str
    group: str


class Costs(Http):
    """A month is "2026-10"; the one that is now unless said. Times are days, months, moments (ISO 8601) or unix seconds."""

    def usage(
        self,
        cluster: str,
        *,
        by: Sequence[str] = ("team",),
        start: str = "",
        end: str = "",
        **only: Unpack[Only],
    ) -> UsageOut:
        """Sums by team, user, partition, gpu and group."""
        return self._get(_path(cluster, "usage", by=",".join(by), start=start, end=end, **only), UsageOut)

    def usage_runs(
        self,
        cluster: str,
        *,
        start: str = "",
        end: str = "",
        job: int = 0,
        lossy: bool = False,
        waited: bool = False,
        cause: str = "",
        cursor: str = "",
        **only: Unpack[Only],
    ) -> RunsOut:
        """The runs behind a figure, the latest first; of one job the first first. `lossy`: those that lost or idled alone, the
        dearest first; `waited`: the longest wait first; `cause`: those behind a cause of loss, as goodput words it. `cursor`:
        `next` of the page before."""
        order = {"lossy": "true" if lossy else "", "waited": "true" if waited else ""}
        asked = {**order, "job": str(job or ""), "cause": cause, "cursor": cursor}
        return self._get(_path(cluster, "usage/runs", start=start, end=end, **only, **asked), RunsOut)

    def node_states(
        self,
        cluster: str,
        *,
        start: str = "",
        end: str = "",
        node: str = "",
        group: str = "",
        state: str = "",
        cursor: str = "",
    ) -> NodeStatesOut:
        """What nodes were: up, drained, down, spare, off; by node, in order of time. `cursor`: `next` of the page before."""
        only = {"node": node, "group": group, "state": state, "cursor": cursor}
        return self._get(_path(cluster, "usage/nodes", start=start, end=end, **only), NodeStatesOut)

    def invoice(self, cluster: str, period: str = "") -> InvoiceOut:
        return self._get(_path(cluster, "invoice", period=period), InvoiceOut)

    def invoices(self, cluster: str) -> list[InvoiceOut]:
        """Those that are closed, the latest first."""
        return self._list(_path(cluster, "invoices"), InvoiceOut)

    def close_invoice(self, cluster: str, period: str) -> InvoiceOut:
        """For good. Raises Refused while the month lasts, Conflict when it is closed or one before it is not."""
        return self._post(_path(cluster, "invoice/close"), InvoiceOut, CloseIn(period=period))

    def chargeback(self, cluster: str, period: str = "") -> ChargebackOut:
        return self._get(_path(cluster, "chargeback", period=period), ChargebackOut)

    def goodput(self, cluster: str, period: str = "") -> GoodputOut:
        return self._get(_path(cluster, "goodput", period=period), GoodputOut)

    def goodput_of_job(self, cluster: str, job: int) -> JobGoodputOut:
        return self._get(_path(cluster, f"goodput/jobs/{int(job)}"), JobGoodputOut)

    def budgets(self, cluster: str) -> list[BudgetOut]:
        return self._list(_path(cluster, "budgets"), BudgetOut)

    def energy(self, cluster: str, period: str = "") -> EnergyOut:
        return self._get(_path(cluster, "energy", period=period), EnergyOut)

    def capacity(self, cluster: str, period: str = "") -> CapacityOut:
        return self._get(_path(cluster, "capacity", period=period), CapacityOut)

    def estimate(self, cluster: str, request: CheckJobIn) -> EstimateOut:
        """What a job would cost at most, and when Slurm would start it; nothing is submitted. Raises InvalidSpec with what is
        wrong with it."""
        return self._post(_path(cluster, "estimate"), EstimateOut, request)

    def rebuild_ledger(self, cluster: str) -> CollectedOut:
        """Accounting is read again from its beginning."""
        return self._post(_path(cluster, "ledger/rebuild"), CollectedOut, None, timeout_s=600)


def _path(cluster: str, what: str, **asked: str) -> str:
    query = urlencode({name: value for name, value in asked.items() if value})
    return f"/clusters/{part(cluster)}/{what}" + (f"?{query}" if query else "")
