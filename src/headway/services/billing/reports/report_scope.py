"""The cluster, the period and the teams that a billing report covers."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import structlog

from headway.billing.chargeback import Rules
from headway.billing.periods import Period, month_of, month_period, parse_moment, time_zone
from headway.domain.billing.cost_settings import CostSettings
from headway.domain.cluster import Cluster
from headway.domain.teams import parts_of_cluster
from headway.errors import HeadwayError, NotAllowed, Refused
from headway.services.access.ownership_rights import may_see_team_usage
from headway.services.access.role_rights import Principal, Right
from headway.services.app_state import AppState
from headway.store import ClusterRow
from headway.store.billing.run_sums import ReportSpan

HOUR_S = 3600

log = structlog.get_logger("headway.billing")


@dataclass(frozen=True)
class BilledCluster:
    """A cluster that has billing records.

    `cluster` is as it is now, None if it is down. `cluster_at_teardown` is as its last file defined it, None if
    unreadable. `now` is in unix seconds."""

    name: str
    cluster: Cluster | None
    now: int
    cluster_at_teardown: Cluster | None = None

    @property
    def last_known_cluster(self) -> Cluster | None:
        """Returns the cluster as it is, otherwise as it was when it was taken down."""
        return self.cluster or self.cluster_at_teardown

    @property
    def simulated(self) -> bool:
        """Returns whether its GPUs are simulated."""
        return self.last_known_cluster is not None and self.last_known_cluster.simulated_gpus

    @property
    def costs(self) -> CostSettings:
        """Returns the billing settings of its file."""
        return self.last_known_cluster.costs if self.last_known_cluster else CostSettings()

    @property
    def rules(self) -> Rules:
        """Returns how idle, spare and broken capacity, and fixed costs are charged."""
        return Rules(self.costs.idle, self.costs.spare, self.costs.broken, self.costs.fixed)

    @property
    def shares(self) -> dict[str, Fraction]:
        """Returns, by team, the part of the cluster that its own users have."""
        teams = self.last_known_cluster.teams if self.last_known_cluster else ()
        return {name: own for name, (_, own) in parts_of_cluster(teams).items()}

    def month(self, name: str) -> Period:
        """Returns the month called `name` (2026-10), or the current one for "". Raises Refused for a malformed name."""
        where = time_zone(self.costs.timezone)
        try:
            return month_period(name, where) if name else month_of(self.now, where)
        except ValueError as error:
            raise Refused(str(error), hint="write a month as 2026-10") from None


@dataclass(frozen=True, slots=True)
class ReportScope:
    """The scope of a monthly report. `visible_teams` are the teams that the person may see, None for all."""

    billed: BilledCluster
    month: Period
    visible_teams: tuple[str, ...] | None

    @property
    def span(self) -> ReportSpan:
        """Returns the month in the form of the store."""
        return ReportSpan(self.month.start, self.month.end, self.billed.now)


async def load_billed_cluster(state: AppState, name: str) -> BilledCluster:
    """Returns the cluster by its name. Raises NotFound if no cluster ever had that name."""
    row = await state.store.clusters.get(name)
    cluster = await state.clusters.resolved(row) if row else None
    if cluster is None and name not in await state.store.machine_lifetimes.clusters():
        await state.clusters.row(name)  # raises NotFound with the names that exist
    return BilledCluster(name, cluster, int(state.clock()), None if cluster else await _last(state, name))


async def _last(state: AppState, name: str) -> Cluster | None:
    """Returns the cluster as its file defined it when it was taken down; None if that file cannot be read."""
    ended = await state.store.operations.last_down(name)
    if ended is None or not ended.document:
        return None
    try:
        return await state.clusters.resolved(
            ClusterRow(name, ended.document, {}, "down", ended.person, ended.created_at)
        )
    except HeadwayError as error:  # a file of another Headway version
        log.warning("the last file can't be read", cluster=name, error=error.message)
        return None


def sees_all_teams(who: Principal) -> bool:
    """Returns whether the person may see the usage of all teams, and invoices."""
    return who.may(Right.ADMIN) or who.may(Right.OPERATE_NODES)


def visible_teams(billed: BilledCluster, who: Principal) -> tuple[str, ...] | None:
    """Returns the teams whose usage the person may see, None for all. Raises NotAllowed if the cluster is down and the
    person may not see all teams."""
    if sees_all_teams(who):
        return None
    if billed.cluster is None:
        raise NotAllowed(
            f"{billed.name} is down: its usage is visible to operators and admins only", hint="ask one of them"
        )
    return tuple(team.name for team in billed.cluster.teams if may_see_team_usage(billed.cluster, who, team.name))


def parse_period(billed: BilledCluster, start: str, end: str) -> Period:
    """Returns the period from `start` (default: the start of this month) to `end` (default: now). Raises Refused."""
    where = time_zone(billed.costs.timezone)
    try:
        begun = parse_moment(start, where) if start else billed.month("").start
        done = parse_moment(end, where) if end else billed.now
    except (ValueError, OverflowError) as error:
        raise Refused(str(error), hint="for example --from 2026-10-01 --to 2026-11-01") from None
    if not 0 <= begun < done <= 2**37:
        raise Refused("the end must be later than the start", hint="for example --from 2026-10-01 --to 2026-11-01")
    return Period("", begun, done)


def to_hours(seconds: float) -> float:
    """Returns hours, rounded to four decimals."""
    return round(seconds / HOUR_S, 4)
