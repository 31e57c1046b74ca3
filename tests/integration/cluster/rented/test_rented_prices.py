"""The price of a rented machine is the same in a plan, at the limits of group and cluster, on its tags, in the ledger and in
lists of what is rented; and the price of the cluster file has no part in it where the cloud says one."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headway.autoscale.held_slots import HoldSlots, plan_held_slots
from headway.autoscale.planner import CloseSlots, CreateMachines, plan_scaling
from headway.autoscale.slot_prices import OFFERS_S, SlotPrices
from headway.catalog.providers import AWS, PROVIDERS
from headway.cluster.rented.plan_notes import with_rental_notes
from headway.domain.changeset import Change, ChangeSet
from headway.domain.cluster import Cluster
from headway.errors import HeadwayError, Refused
from tests.support.cloud.provider_site import HEAD, NODE, PAIR, Site

FILE_PRICE = Decimal("2.56")
CHANGE = ChangeSet("lab", (Change("file.write", HEAD, "/etc/slurm/slurm.conf", "differs"),))


def burst(site: Site, *, group_limit: str | None = None, limit: str | None = None) -> Cluster:
    """Returns the cluster with a group that scales by itself."""
    group = replace(
        site.cluster.groups[0],
        nodes=0,
        idle_s=600,
        price_usd_per_node_hour=FILE_PRICE,
        max_usd_per_hour=None if group_limit is None else Decimal(group_limit),
    )
    return replace(site.cluster, groups=(group,), max_usd_per_hour=None if limit is None else Decimal(limit))


@pytest.fixture(params=["4.10", "1.30", "0"])
def offered(request: pytest.FixtureRequest) -> str:
    """The cloud's price: above that of the file, below it, or unknown."""
    return str(request.param)


@pytest.fixture
def site(tmp_path: Path, offered: str) -> Site:
    made = Site(tmp_path)
    made.cloud.prices = {"big": offered, "small": offered, "little": "0.20"}
    return made


@pytest.fixture
def usd(offered: str) -> Decimal:
    """The price of a node that holds everywhere."""
    return Decimal(offered) or FILE_PRICE


async def notes(site: Site, names: tuple[str, ...]) -> str:
    context: Any = SimpleNamespace(provider=site.provider)
    return "\n".join((await with_rental_notes(site.cluster, context, CHANGE, names)).notes)


async def test_plan_tags_record_ledger_and_list_say_one_price(site: Site, usd: Decimal) -> None:
    site.cluster = burst(site)
    assert f"{usd:.2f} USD an hour each" in await notes(site, (HEAD, *PAIR))
    await site.rent(HEAD)
    await site.rent()
    assert {one.claim.machine: one.usd_per_hour for one in site.cloud.living} == {HEAD: Decimal("0.20"), NODE: usd}
    assert await site.provider.launch_prices("lab") == {HEAD: Decimal("0.20"), NODE: usd}
    listed = (*await site.provider.rentals("lab"), *await site.provider.things())
    assert {(one.machine, one.usd_per_hour) for one in listed} == {(HEAD, Decimal("0.20")), (NODE, usd)}
    assert site.told[-1] == f"{NODE}: rented: i-2, big in a, on-demand, {usd:.2f} USD an hour"


async def test_group_limit_allows_as_many_machines_as_the_launch_does(site: Site, usd: Decimal) -> None:
    two = PAIR[1]
    states = dict.fromkeys(PAIR, ("idle~", "none"))
    for limit, held in ((2 * usd, ()), (2 * usd - Decimal("0.01"), (two,))):
        site.cluster = burst(site, group_limit=f"{limit}")
        prices = await SlotPrices().read(site.cluster, site.provider, site.now)
        found = list(plan_held_slots(site.cluster, states, (), (), site.now, prices=prices))
        assert tuple(name for action in found if isinstance(action, HoldSlots) for name in action.nodes) == held
    await site.rent()
    with pytest.raises(HeadwayError, match=rf"{usd:.2f} USD an hour with the {usd:.2f} of the group's other machines"):
        await site.rent(two)
    site.cluster = burst(site, group_limit=f"{2 * usd}")
    assert set(await site.rent(two)) == {two}


async def test_cost_limit_counts_the_same_in_planner_plan_and_launch(site: Site, usd: Decimal) -> None:
    await site.rent(HEAD)
    asks = dict.fromkeys(PAIR, ("allocated#", "none"))
    for limit, fits in ((2 * usd + Decimal("0.20"), True), (2 * usd + Decimal("0.19"), False)):
        site.cluster = burst(site, limit=f"{limit}")
        prices = await SlotPrices().read(site.cluster, site.provider, site.now)
        found = list(plan_scaling(site.cluster, asks, {}, (), site.now, jobs=dict.fromkeys(PAIR, (7,)), prices=prices))
        assert [type(action) for action in found] == [CreateMachines if fits else CloseSlots]
        assert ("apply would stop" in await notes(site, (HEAD, *PAIR))) is not fits
        if not fits:
            with pytest.raises(HeadwayError, match=f"over the price limit: {2 * usd:.2f} USD an hour"):
                await site.rent_together(*PAIR)
            assert len(site.cloud.living) == 1
        else:
            await site.rent_together(*PAIR)
            for name in PAIR:
                await site.provider.give_up("lab", name)


async def test_owned_machines_count_at_the_price_of_the_file(site: Site, usd: Decimal) -> None:
    """As in the planner: a launch of a mixed cluster is refused when owned and rented machines together cost too much."""
    whole = burst(site)
    group = replace(whole.groups[0], provider=AWS, slots=PAIR[1:])
    own = replace(whole.groups[0], name="own", idle_s=None, nodes=1, slots=PAIR[:1], provider=None)
    limit = usd + FILE_PRICE
    site.cluster = replace(whole, provider=PROVIDERS["ssh"], groups=(own, group), max_usd_per_hour=limit)
    assert set(await site.rent(PAIR[1])) == {PAIR[1]}
    await site.provider.give_up("lab", PAIR[1])
    site.cluster = replace(site.cluster, max_usd_per_hour=limit - Decimal("0.01"))
    with pytest.raises(HeadwayError, match=rf"with the {FILE_PRICE} of all other machines is more than cost"):
        await site.rent(PAIR[1])


async def test_offers_are_asked_for_every_ten_minutes_and_kept_while_the_cloud_is_away(
    site: Site, usd: Decimal
) -> None:
    made, prices = burst(site, group_limit="9"), SlotPrices()
    for at in (1000.0, 1003.0):
        assert (await prices.read(made, site.provider, at))[NODE] == usd
    assert site.cloud.calls.count("offers") == 1

    def away(name: str) -> None:
        if name == "zones":
            raise Refused("the region is away")

    site.cloud.before = away
    assert (await prices.read(made, site.provider, 1000.0 + OFFERS_S))[NODE] == usd
    site.cloud.before = lambda _: None
    site.cloud.prices = {"big": "9", "small": "9"}
    assert (await prices.read(made, site.provider, 1001.0 + OFFERS_S))[NODE] == usd
    assert (await prices.read(made, site.provider, 1060.0 + OFFERS_S))[NODE] == Decimal(9)


async def test_cloud_that_never_answered_leaves_the_price_of_the_file(site: Site) -> None:
    def away(_: str) -> None:
        raise Refused("the region is away")

    site.cloud.before = away
    made = burst(site, group_limit="9")
    assert await SlotPrices().read(made, site.provider, 1000.0) == {}
    assert await SlotPrices().read(burst(site), site.provider, 1000.0) == {}


async def test_offers_of_all_groups_are_asked_for_at_the_same_time(site: Site, usd: Decimal) -> None:
    made, offers, both = burst(site, limit="99"), site.provider.offers, asyncio.Barrier(2)
    groups = [replace(made.groups[0], name=name, slots=(name,)) for name in PAIR]

    async def meet(cluster: Cluster, name: str) -> Any:
        await asyncio.wait_for(both.wait(), 30)
        return await offers(cluster, name)

    site.provider.offers = meet  # type: ignore[method-assign]
    prices = await SlotPrices().read(replace(made, groups=tuple(groups)), site.provider, 1000.0)
    assert prices == dict.fromkeys(PAIR, usd)
