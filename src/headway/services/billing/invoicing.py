"""The store's facts through the ledger's rules: invoices, chargeback, goodput, budgets. Reads only, but for closing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from decimal import Decimal
from fractions import Fraction

import structlog

from headway.billing import budgets, chargeback, intervals, invoice
from headway.billing.chargeback import Chargeback, Rules
from headway.billing.invoice import Invoice, Segment
from headway.billing.periods import Period, month, month_of, zone
from headway.changes.slurm_accounts import period_start
from headway.domain.billing import Price
from headway.domain.cluster import Cluster, Costs
from headway.errors import Conflict, HeadwayError, NotFound, Refused
from headway.services.context import AppState
from headway.store import ClusterRow, InvoiceRow
from headway.store.billing.sums import NONE, Only, Span
from headway.store.billing.usage import Cell, RunRow, Times

ALL = Only()

log = structlog.get_logger("headway.ledger")


@dataclass(frozen=True)
class Place:
    """A cluster of the ledger. One that is down, or gone, is billed for what it was: as its `last` file says, where that can
    still be read."""

    name: str
    cluster: Cluster | None
    now: int
    last: Cluster | None = None

    @property
    def known(self) -> Cluster | None:
        return self.cluster or self.last

    @property
    def simulated(self) -> bool:
        return self.known is not None and self.known.simulated_gpus

    @property
    def costs(self) -> Costs:
        return self.known.costs if self.known else Costs()

    @property
    def rules(self) -> Rules:
        return Rules(self.costs.idle, self.costs.spare, self.costs.broken)

    @property
    def shares(self) -> dict[str, int]:
        return {team.name: team.share for team in self.known.teams} if self.known else {}

    def month(self, name: str) -> Period:
        """That month, or the one that is now. Raises Refused."""
        where = zone(self.costs.timezone)
        try:
            return month(name, where) if name else month_of(self.now, where)
        except ValueError as error:
            raise Refused(str(error), hint="a month is written 2026-10") from None


@dataclass(frozen=True, slots=True)
class Look:
    """Somebody looks at a month of a cluster. `seen`: the teams they see, None = all."""

    place: Place
    month: Period
    seen: tuple[str, ...] | None

    @property
    def span(self) -> Span:
        return Span(self.month.start, self.month.end, self.place.now)


@dataclass(frozen=True)
class Bill:
    """`row` is there once it is closed; zone and rules are those that it was closed by."""

    found: Chargeback
    row: InvoiceRow | None

    @property
    def period(self) -> Period:
        return self.found.invoice.period

    def timezone(self, place: Place) -> str:
        return str(self.row.document.get("timezone", place.costs.timezone)) if self.row else place.costs.timezone

    def rules(self, place: Place) -> dict[str, str]:
        return dict(self.row.document.get("rules", {})) or asdict(place.rules) if self.row else asdict(place.rules)


class Sums:
    """What was held in stretches of one price, asked of the database once for all that a report needs it for. `timed`: with the
    times that goodput is made of."""

    def __init__(self, state: AppState, place: Place, only: Only = ALL, *, timed: bool = False) -> None:
        self._state, self._place, self._only, self._timed = state, place, only, timed
        self._known: dict[tuple[str, int, int], list[Cell]] = {}

    async def held(self, segment: Segment) -> list[Cell]:
        key = (segment.group, segment.start, segment.end)
        if key not in self._known:
            span = Span(segment.start, segment.end, self._place.now)
            only = replace(self._only, group=segment.group or NONE)
            self._known[key] = await self._state.store.held(self._place.name, span, only=only, timed=self._timed)
        return self._known[key]

    async def times(self, cut: Sequence[Segment]) -> dict[str, Times]:
        """By team, over all of these."""
        found: dict[str, Times] = {}
        for segment in cut:
            for cell in await self.held(segment):
                found[cell.use.team] = found.get(cell.use.team, Times()) + cell.times
        return found

    async def idle_usd(self, cut: Sequence[Segment]) -> Fraction:
        """What stood idle in these while it was held."""
        cost = Fraction(0)
        for segment in cut:
            for cell in await self.held(segment):
                cost += segment.usd_per_second * Fraction(cell.use.idle_unit_s, cell.use.per_node)
        return cost


async def place_of(state: AppState, name: str) -> Place:
    """Raises NotFound for a name that no cluster ever had."""
    row = await state.store.cluster(name)
    cluster = await state.resolved(row) if row else None
    if cluster is None and name not in await state.store.billed_clusters():
        await state.row(name)  # says which there are
    return Place(name, cluster, int(state.clock()), None if cluster else await _last(state, name))


async def _last(state: AppState, name: str) -> Cluster | None:
    """As it was when it went down."""
    ended = await state.store.last_down(name)
    if ended is None or not ended.document:
        return None
    try:
        return await state.resolved(ClusterRow(name, ended.document, {}, "down", ended.person, ended.created_at))
    except HeadwayError as error:  # a file of another Headway
        log.warning("the last file can't be read", cluster=name, error=error.message)
        return None


async def bill(state: AppState, place: Place, period: Period, sums: Sums | None = None) -> Bill:
    """As it was closed, else as far as it has come. `sums`: of all teams."""
    closed = {row.period: row for row in await state.store.invoices(place.name)}
    row = closed.get(period.name)
    if row is not None:
        kept = invoice.unpacked(row.document["invoice"])
        return Bill(chargeback.unpacked(kept, row.document["chargeback"]), row)
    return Bill(await _reckoned(state, place, await _joined(state, place, period), sums), None)


async def close(state: AppState, place: Place, period: Period, person: str) -> InvoiceRow:
    """Raises Refused while the period lasts, Conflict when it is closed, or an earlier month with costs is not."""
    if period.end > place.now:
        raise Refused(f"{period.name} is not over", hint="an invoice is closed once its month is over")
    mark = await state.store.mark(place.name)
    if place.cluster is not None and mark.error:
        raise Conflict(
            f"accounting of {place.name} has not been read: {mark.error}", hint="close it once that works again"
        )
    due = await _due(state, place)
    if period.start > due.start:
        raise Conflict(f"{due.name} is not closed yet", hint="months are closed in their order")
    if period.start < due.start and period.name not in {row.period for row in await state.store.invoices(place.name)}:
        raise NotFound(f"{place.name} had no machine in {period.name}", hint=f"its first month is {due.name}")
    found = await _reckoned(state, place, await _joined(state, place, period))
    document = {
        "invoice": invoice.packed(found.invoice),
        "chargeback": chargeback.packed(found),
        "timezone": place.costs.timezone,
        "rules": asdict(place.rules),
    }
    return await state.store.close_invoice(place.name, period.name, document, person)


async def _joined(state: AppState, place: Place, period: Period) -> Period:
    """The month after the last closed one begins where that ended, whatever became of the time zone: no second is billed
    twice, and none is left out."""
    rows = await state.store.invoices(place.name)
    if not rows or period.name != _after(rows[-1].period, place).name:
        return period
    return replace(period, start=invoice.unpacked(rows[-1].document["invoice"]).period.end)


async def _due(state: AppState, place: Place) -> Period:
    """The month that is to be closed next. Raises NotFound where there is nothing to bill."""
    where = zone(place.costs.timezone)
    rows = await state.store.invoices(place.name)
    if rows:
        return _after(rows[-1].period, place)
    lives = await state.store.lives(place.name, 0, place.now + 1)
    if not lives:
        raise NotFound(f"{place.name} had no machine yet", hint="there is nothing to bill")
    return month_of(min(life.began for life in lives), where)


async def _reckoned(state: AppState, place: Place, period: Period, sums: Sums | None = None) -> Chargeback:
    """From the facts as they are now."""
    own, costs = await _of_period(state, place, period, sums or Sums(state, place))
    lines = (*own.lines, *await _corrections(state, place, period))
    whole = Invoice(place.name, period, lines)
    return chargeback.share_out(whole, costs, place.rules, place.shares)


async def _of_period(state: AppState, place: Place, period: Period, sums: Sums) -> tuple[Invoice, chargeback.Costs]:
    store, name, now = state.store, place.name, place.now
    lives = await store.lives(name, period.start, period.end)
    states = await store.node_spans(name, period.start, period.end)
    reserved = {row.group for row in await store.prices(name) if row.reserved}
    cut = await segments(state, place, period, {life.group for life in lives} | reserved)
    nodes = invoice.metered(lives, states, cut, now)
    costs, not_there = chargeback.Costs(), []
    for segment in cut:
        here = [one for one in nodes if one.segment is segment]
        unused_s = invoice.unused(segment, here, now)
        not_there.append((segment, unused_s))
        if not here and not unused_s:
            continue
        uses = [cell.use for cell in await sums.held(segment)]
        broken = [(one.machine, *span) for one in here for span in intervals.union(one.broken)]
        held_broken = sum(
            (
                Fraction(one.units * (one.end - one.start), one.per_node)
                for one in await store.held_on(name, broken, now)
            ),
            Fraction(0),
        )
        costs.add(segment, uses, here, held_broken, unused_s)
    return invoice.reckon(name, period, nodes, not_there), costs


async def priced(state: AppState, place: Place, period: Period) -> list[Segment]:
    """The period cut by the prices of every group that ever had one."""
    return await segments(state, place, period, {row.group for row in await state.store.prices(place.name)})


async def unpriced(state: AppState, place: Place, period: Period) -> list[Segment]:
    """The period, of every group that never had a price and that runs were on all the same."""
    known = {row.group for row in await state.store.prices(place.name)}
    return invoice.segments([], {*await state.store.groups_of_runs(place.name)} - known, period)


async def segments(state: AppState, place: Place, period: Period, groups: set[str]) -> list[Segment]:
    prices = [
        Price(row.group, int(row.since), Decimal(row.usd_per_hour), row.spot, row.reserved)
        for row in await state.store.prices(place.name)
    ]
    return [one for one in invoice.segments(prices, groups, period) if one.group in groups]


async def _corrections(state: AppState, place: Place, period: Period) -> list[invoice.Line]:
    """What closed months would be billed beside what they were: on the first invoice that is open."""
    rows = await state.store.invoices(place.name)
    if not rows or period.name != _after(rows[-1].period, place).name:
        return []
    closed = [invoice.unpacked(row.document["invoice"]) for row in rows]
    billed = [line for one in closed for line in one.lines if line.what == "correction"]
    found = []
    for one in closed:
        now, _ = await _of_period(state, place, one.period, Sums(state, place))
        found += invoice.corrections(one, [line for line in billed if line.of == one.period.name], now)
    return found


def _after(name: str, place: Place) -> Period:
    where = zone(place.costs.timezone)
    return month_of(month(name, where).end, where)


# --- budgets


async def budget_standings(
    state: AppState, cluster: Cluster, now: int, until: int | None = None
) -> list[budgets.Standing]:
    """Of the periods that are now; as they stood just before `until`, of those that were then."""
    place = Place(cluster.name, cluster, now)
    until = now + 1 if until is None else until
    here = datetime.fromtimestamp(until - 1, zone(cluster.costs.timezone))
    found = []
    for team in cluster.teams:
        if team.budget is None:
            continue
        start = int(period_start(team.budget.per, here).timestamp())
        period = Period(team.budget.per, start, until)
        used = await (_usd if team.budget.unit == "usd" else _gpu_hours)(state, place, period, team.name)
        found.append(budgets.standing(team.name, team.budget, start, used))
    return found


async def cap_uses(state: AppState, cluster: Cluster, now: int) -> dict[str, Fraction]:
    """GPU-hours that count against a team's cap: since its usage was last set back to zero. Slurm counts them for the team's QOS
    alone, of which nobody but slurmctld can say it; what `sshare` says of the account fades."""
    place, since = Place(cluster.name, cluster, now), await state.store.refills(cluster.name)
    return {
        team.name: await _gpu_hours(state, place, Period("", int(since.get(team.name, now)), now + 1), team.name)
        for team in cluster.teams
        if team.gpu_hours is not None
    }


async def _usd(state: AppState, place: Place, period: Period, team: str) -> Fraction:
    return sum((cost for _, cost in await held_cost(state, place, period, Only(teams=(team,)))), Fraction(0))


async def _gpu_hours(state: AppState, place: Place, period: Period, team: str) -> Fraction:
    span = Span(period.start, period.end, place.now)
    totals = await state.store.usage(place.name, span, [], Only(teams=(team,)))
    return Fraction(sum(one.gpu_s for one in totals), 3600)


async def held_cost(
    state: AppState, place: Place, period: Period, only: Only = ALL, by: tuple[str, ...] = ()
) -> list[tuple[tuple[str, ...], Fraction]]:
    """(values of `by`, exact USD) of what runs held."""
    found: dict[tuple[str, ...], Fraction] = {}
    for segment in await priced(state, place, period):
        if only.group and only.group != segment.group:
            continue
        narrowed = replace(only, group=segment.group)
        span = Span(segment.start, segment.end, place.now)
        for cell in await state.store.held(place.name, span, by, narrowed):
            cost = Fraction(cell.use.unit_s, cell.use.per_node) * segment.usd_per_second
            found[cell.by] = found.get(cell.by, Fraction(0)) + cost
    return sorted(found.items())


async def run_costs(state: AppState, place: Place, found: Sequence[RunRow], within: Period) -> list[Fraction]:
    """Exact USD of what each run held in that time; one that runs on, until now."""
    cut = await segments(state, place, within, {one.group for one in found})

    def cost(one: RunRow, segment: Segment) -> Fraction:
        seconds = min(one.end or place.now, segment.end) - max(one.start, segment.start)
        return segment.usd_per_second * Fraction(one.units * max(0, seconds), one.per_node)

    return [sum((cost(one, part) for part in cut if part.group == one.group), Fraction(0)) for one in found]
