"""The cluster, the period and the teams that a billing report is about."""

from __future__ import annotations

from dataclasses import dataclass

import structlog

from headway.billing.chargeback import Rules
from headway.billing.periods import Period, moment, month, month_of, zone
from headway.domain.cluster import Cluster, Costs
from headway.errors import HeadwayError, NotAllowed, Refused
from headway.services.authorization import may_see_team_usage
from headway.services.context import AppState
from headway.services.identity import Principal, Right
from headway.store import ClusterRow
from headway.store.billing.run_sums import Span

HOUR_S = 3600

log = structlog.get_logger("headway.billing")


@dataclass(frozen=True)
class BilledCluster:
    """A cluster of the ledger. One that is down, or gone, is billed for what it was: as its `last` file says, where that can
    still be read."""

    name: str
    cluster: Cluster | None
    now: int
    cluster_at_teardown: Cluster | None = None

    @property
    def last_known_cluster(self) -> Cluster | None:
        return self.cluster or self.cluster_at_teardown

    @property
    def simulated(self) -> bool:
        return self.last_known_cluster is not None and self.last_known_cluster.simulated_gpus

    @property
    def costs(self) -> Costs:
        return self.last_known_cluster.costs if self.last_known_cluster else Costs()

    @property
    def rules(self) -> Rules:
        return Rules(self.costs.idle, self.costs.spare, self.costs.broken)

    @property
    def shares(self) -> dict[str, int]:
        return {team.name: team.share for team in self.last_known_cluster.teams} if self.last_known_cluster else {}

    def month(self, name: str) -> Period:
        """That month, or the one that is now. Raises Refused."""
        where = zone(self.costs.timezone)
        try:
            return month(name, where) if name else month_of(self.now, where)
        except ValueError as error:
            raise Refused(str(error), hint="a month is written 2026-10") from None


@dataclass(frozen=True, slots=True)
class ReportScope:
    """Somebody looks at a month of a cluster. `seen`: the teams they see, None = all."""

    billed: BilledCluster
    month: Period
    visible_teams: tuple[str, ...] | None

    @property
    def span(self) -> Span:
        return Span(self.month.start, self.month.end, self.billed.now)


async def load_billed_cluster(state: AppState, name: str) -> BilledCluster:
    """Raises NotFound for a name that no cluster ever had."""
    row = await state.store.clusters.get(name)
    cluster = await state.resolved(row) if row else None
    if cluster is None and name not in await state.store.machine_lives.clusters():
        await state.row(name)  # says which there are
    return BilledCluster(name, cluster, int(state.clock()), None if cluster else await _last(state, name))


async def _last(state: AppState, name: str) -> Cluster | None:
    """As it was when it went down."""
    ended = await state.store.operations.last_down(name)
    if ended is None or not ended.document:
        return None
    try:
        return await state.resolved(ClusterRow(name, ended.document, {}, "down", ended.person, ended.created_at))
    except HeadwayError as error:  # a file of another Headway
        log.warning("the last file can't be read", cluster=name, error=error.message)
        return None


def visible_teams(billed: BilledCluster, who: Principal) -> tuple[str, ...] | None:
    """None: all of them. Raises NotAllowed for a cluster that is gone, whose teams nobody knows any more."""
    if who.may(Right.ADMIN) or who.may(Right.OPERATE_NODES):
        return None
    if billed.cluster is None:
        raise NotAllowed(f"{billed.name} is down: what it used is for operators and admins", hint="ask one of them")
    return tuple(team.name for team in billed.cluster.teams if may_see_team_usage(billed.cluster, who, team.name))


def parse_period(billed: BilledCluster, start: str, end: str) -> Period:
    """From `start` (this month's beginning unless said) to `end` (now). Raises Refused."""
    where = zone(billed.costs.timezone)
    try:
        begun = moment(start, where) if start else billed.month("").start
        done = moment(end, where) if end else billed.now
    except (ValueError, OverflowError) as error:
        raise Refused(str(error), hint="for example --from 2026-10-01 --to 2026-11-01") from None
    if not 0 <= begun < done <= 2**37:
        raise Refused("the end must come after the start", hint="for example --from 2026-10-01 --to 2026-11-01")
    return Period("", begun, done)


def to_hours(seconds: float) -> float:
    return round(seconds / HOUR_S, 4)
