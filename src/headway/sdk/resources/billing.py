"""Usage, invoices, chargeback and the ledger's other reports; prices of clouds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict, Unpack
from urllib.parse import urlencode

from headway.schemas.billing.budgets import BudgetOut
from headway.schemas.billing.capacity import CapacityOut
from headway.schemas.billing.chargeback import ChargebackOut
from headway.schemas.billing.cost_estimate import EstimateOut
from headway.schemas.billing.energy import EnergyOut
from headway.schemas.billing.forecast import ForecastOut
from headway.schemas.billing.goodput import GoodputOut, JobGoodputOut
from headway.schemas.billing.invoices import CloseIn, InvoiceOut
from headway.schemas.billing.node_states import NodeStatesOut
from headway.schemas.billing.offers import OffersOut, RefreshedOffersOut
from headway.schemas.billing.purchase import PurchaseIn, PurchaseOut
from headway.schemas.billing.sizes import SizeIn, SizeOut
from headway.schemas.billing.usage import CollectedOut, RunsOut, UsageOut
from headway.schemas.submission.submission_check import CheckJobIn
from headway.sdk.connection import Resource, cluster_path


class RunFilters(TypedDict, total=False):
    """Selects the runs that are counted; "-" selects runs without such a value, a missing key selects all."""

    team: str
    user: str
    partition: str
    gpu: str
    group: str


class Billing(Resource):
    """Usage, invoices and reports. A month is "2026-10" ("": the current one). Times are days, months, ISO 8601
    times or unix seconds."""

    def usage(
        self,
        cluster: str,
        *,
        by: Sequence[str] = ("team",),
        start: str = "",
        end: str = "",
        **filters: Unpack[RunFilters],
    ) -> UsageOut:
        """Returns sums by team, user, partition, gpu and group."""
        return self._connection.get(_path(cluster, "usage", by=",".join(by), start=start, end=end, **filters), UsageOut)

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
        **filters: Unpack[RunFilters],
    ) -> RunsOut:
        """Returns the runs behind a figure, latest first (of one `job`: oldest first).

        `lossy`: only runs with lost or idle time, most expensive first; `waited`: longest wait first; `cause`: runs behind a
        cause of loss, as goodput words it. `cursor`: `next` of the previous page."""
        order = {"lossy": "true" if lossy else "", "waited": "true" if waited else ""}
        query = {**order, "job": str(job or ""), "cause": cause, "cursor": cursor}
        return self._connection.get(_path(cluster, "usage/runs", start=start, end=end, **filters, **query), RunsOut)

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
        """Returns periods in which nodes were up, drained, down, spare or off, by node and time. `cursor`: `next` of the
        previous page."""
        filters = {"node": node, "group": group, "state": state, "cursor": cursor}
        return self._connection.get(_path(cluster, "usage/nodes", start=start, end=end, **filters), NodeStatesOut)

    def invoice(self, cluster: str, period: str = "") -> InvoiceOut:
        """Returns a month's invoice."""
        return self._connection.get(_path(cluster, "invoice", period=period), InvoiceOut)

    def invoices(self, cluster: str) -> list[InvoiceOut]:
        """Returns closed invoices, latest first."""
        return self._connection.get_list(_path(cluster, "invoices"), InvoiceOut)

    def close_invoice(self, cluster: str, period: str) -> InvoiceOut:
        """Closes a month for good. Raises Refused before the month has ended, Conflict when it is
        closed or an earlier one is open."""
        return self._connection.post(_path(cluster, "invoice/close"), InvoiceOut, CloseIn(period=period))

    def chargeback(self, cluster: str, period: str = "") -> ChargebackOut:
        """Returns each team's part of a month's invoice."""
        return self._connection.get(_path(cluster, "chargeback", period=period), ChargebackOut)

    def goodput(self, cluster: str, period: str = "") -> GoodputOut:
        """Returns the productive share of a month's GPU time, by team, and the causes of loss."""
        return self._connection.get(_path(cluster, "goodput", period=period), GoodputOut)

    def job_goodput(self, cluster: str, job: int) -> JobGoodputOut:
        """Returns the productive share of one job's GPU time over all its runs."""
        return self._connection.get(_path(cluster, f"goodput/jobs/{int(job)}"), JobGoodputOut)

    def budgets(self, cluster: str) -> list[BudgetOut]:
        """Returns the teams' budgets."""
        return self._connection.get_list(_path(cluster, "budgets"), BudgetOut)

    def energy(self, cluster: str, period: str = "") -> EnergyOut:
        """Returns a month's energy by team."""
        return self._connection.get(_path(cluster, "energy", period=period), EnergyOut)

    def capacity(self, cluster: str, period: str = "") -> CapacityOut:
        """Returns a month's GPU utilisation, fragmentation and queue waits."""
        return self._connection.get(_path(cluster, "capacity", period=period), CapacityOut)

    def forecast(self, cluster: str) -> ForecastOut:
        """Returns the expected GPU-hours of the next thirteen weeks, when the GPUs will all be in use, and the waits to
        expect."""
        return self._connection.get(_path(cluster, "forecast"), ForecastOut)

    def purchase(self, cluster: str, request: PurchaseIn | None = None) -> PurchaseOut:
        """Returns the mix of owned, reserved and rented GPUs that would have served the usage at the lowest price. Raises Refused
        without usage, or without a price of on-demand machines."""
        wanted = request.model_dump(exclude_defaults=True) if request else {}
        return self._connection.get(
            _path(cluster, "purchase", **{key: str(value) for key, value in wanted.items()}), PurchaseOut
        )

    def estimate(self, cluster: str, request: CheckJobIn) -> EstimateOut:
        """Returns a job's maximum price and expected start; submits nothing. Raises InvalidSpec with the job's faults."""
        return self._connection.post(_path(cluster, "estimate"), EstimateOut, request)

    def rebuild_ledger(self, cluster: str) -> CollectedOut:
        """Rebuilds the ledger from Slurm's accounting and returns what was read."""
        return self._connection.post(_path(cluster, "ledger/rebuild"), CollectedOut, None, timeout_s=600)

    def offers(
        self,
        *,
        gpu: str = "",
        count: int = 0,
        cloud: str = "",
        region: str = "",
        purchase: str = "",
        gpus_per_node: int = 0,
        cluster: str = "",
        limit: int = 100,
    ) -> OffersOut:
        """Returns offers of clouds, the lowest price first: of `count` GPUs in whole machines, with 0 of one GPU. `purchase`:
        on-demand, spot or reserved; `gpus_per_node`: the least GPUs of one machine; `cluster`: compare its groups too; `limit`:
        at most 1000."""
        numbers = {"count": count, "gpus_per_node": gpus_per_node, "limit": limit}
        query = {"gpu": gpu, "cloud": cloud, "region": region, "purchase": purchase, "cluster": cluster}
        asked = urlencode({name: value for name, value in {**query, **numbers}.items() if value})
        return self._connection.get(f"/offers?{asked}", OffersOut)

    def size(self, request: SizeIn) -> SizeOut:
        """Returns how many GPUs a training needs, for how long, at what price. Raises Refused and InvalidSpec for what is
        unknown, contradictory or does not fit."""
        return self._connection.post("/size", SizeOut, request)

    def refresh_offers(self) -> RefreshedOffersOut:
        """Lets the server fetch newer prices of clouds, and returns what it got. Raises Unreachable if it got none."""
        return self._connection.post("/offers/refresh", RefreshedOffersOut, None, timeout_s=120)


def _path(cluster: str, report: str, **query: str) -> str:
    encoded = urlencode({name: value for name, value in query.items() if value})
    return cluster_path(cluster, *report.split("/")) + (f"?{encoded}" if encoded else "")
