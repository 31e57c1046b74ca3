"""What a plan says about machines that an apply would rent: which, at what price, what else would be tried, and what the
account's quotas and the cost limit do not allow. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from headway.domain.cluster import Cluster, Group
from headway.domain.machines.offer import Offer
from headway.domain.machines.rental_price import owned_slots, rental_price, total_price
from headway.domain.machines.rented import Quota
from headway.domain.slurm.hostlist import compress

_SHOWN = 4  # further offers of a note


@dataclass(frozen=True, slots=True)
class WantedMachines:
    """Machines of one role that are missing, and the offers for them in the order in which they are tried."""

    names: tuple[str, ...]
    offers: tuple[Offer, ...]
    quota: Quota | None


def rental_notes(cluster: Cluster, wanted: Sequence[WantedMachines], rented: Mapping[str, Decimal]) -> Iterator[str]:
    """Yields the notes. `rented`: prices of the cluster's launches that are not known to have ended, by name, USD
    an hour; machines of these names may be wanted again."""
    total, known = Decimal(0), True
    for want in wanted:
        usd = rental_price(cluster.group_of.get(want.names[0]), offer=want.offers[0])
        total, known = total + usd * len(want.names), known and bool(usd)
        yield f"{compress(want.names)}: {_first_offer(want, usd)}{_others(want.offers)}"
    if not wanted:
        return
    least = "" if known else "at least "
    yield f"what apply rents costs {least}{total:.2f} USD an hour, without disks, addresses and traffic"
    limit = cluster.max_usd_per_hour
    others = {*rented, *owned_slots(cluster)}.difference(*(want.names for want in wanted))
    rest = total_price(cluster, others, rented)
    if limit is not None and rest + total > limit:
        cheapest = sum((_lowest_price(cluster, want) for want in wanted), rest)
        if cheapest > limit:
            yield (
                f"apply would stop: everything together would cost {cheapest:.2f} USD an hour at least, and "
                f"cost.usd_per_hour is {limit.normalize():f}; raise it or name cheaper types in cloud"
            )
        else:
            yield (
                f"with these offers everything together would cost {rest + total:.2f} USD an hour, and cost.usd_per_hour is "
                f"{limit.normalize():f}: apply passes over an offer that exceeds it and tries the next one"
            )
    yield from _quota_notes(wanted)


def _lowest_price(cluster: Cluster, want: WantedMachines) -> Decimal:
    """Returns the price of these machines together by their cheapest offer, USD an hour."""
    group = cluster.group_of.get(want.names[0])
    return min(rental_price(group, offer=offer) for offer in want.offers) * len(want.names)


def later_notes(cluster: Cluster, later: Sequence[WantedMachines]) -> Iterator[str]:
    """Yields a note for each group with idle: what its further slots would be when jobs wait."""
    for want in later:
        usd = rental_price(cluster.group_of.get(want.names[0]), offer=want.offers[0])
        when = f"when {_when(cluster.group_of[want.names[0]])}, {compress(want.names)}"
        limit = cluster.group_of[want.names[0]].max_usd_per_hour
        most = "" if limit is None else f"; at most {limit.normalize():f} USD an hour together"
        yield f"{when}: up to {_first_offer(want, usd)}{most}{_others(want.offers)}"


def _when(group: Group) -> str:
    """Returns when machines of a group with idle are rented."""
    return f"a job has waited {group.queue_time_s / 60:g} min" if group.queue_time_s else "jobs wait"


def _first_offer(want: WantedMachines, usd: Decimal) -> str:
    offer, count = want.offers[0], len(want.names)
    price = f"{usd:.2f} USD an hour each" if usd else "at a price that the cloud does not say"
    if offer.price_usd_per_node_hour:
        price += f" (price of {offer.as_of}{', ' + offer.note if offer.note else ''})"
    elif usd:
        price += " (price of the plan: the cloud does not say one)"
    return f"{count} x {offer.instance_type} in {offer.zone}, {offer.purchase}, {price}"


def _others(offers: Sequence[Offer]) -> str:
    first, *others = offers
    if not others:
        return "; nothing else would be tried"
    named = [_named(offer, first) for offer in others[:_SHOWN]]
    left = Counter(_kind(offer, first) for offer in others[_SHOWN:])
    more = [f"{count} more{kind}" for kind, count in left.items()]
    return f"; if it can't be had: {', then '.join([*named, *more])}"


def _named(offer: Offer, first: Offer) -> str:
    return f"{offer.instance_type} in {offer.zone}{_kind(offer, first)}"


def _kind(offer: Offer, first: Offer) -> str:
    """Returns how the machine is bought, where that differs from the first offer."""
    return "" if offer.purchase is first.purchase else f" ({offer.purchase})"


def _quota_notes(wanted: Sequence[WantedMachines]) -> Iterator[str]:
    """Yields a note for each quota that the first offers together exceed. Quotas count vCPUs."""
    quotas = {want.quota.name: want.quota for want in wanted if want.quota}
    for name, quota in quotas.items():
        need = sum(
            len(want.names) * want.offers[0].cpus
            for want in wanted
            if want.quota is not None and want.quota.name == name
        )
        if quota.used + need > quota.limit:
            yield (
                f"can't be had: the quota {name} is {quota.limit:g} vCPUs, {quota.used:g} are used and {need:g} more are "
                "needed; ask the cloud for a higher quota, or rent less"
            )
