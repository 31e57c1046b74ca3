"""CloudProvider launches the machines of one job together: all in one zone, or none."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from headway.domain.machines.rented import InstanceState, RentedThing
from headway.errors import Unanswered
from headway.providers.cloud.refusals import CloudRefusal, NoCapacity
from tests.support.cloud.provider_site import NODE, PAIR, Killed, Site, site

__all__ = ["site"]  # a fixture


async def test_machines_of_one_job_are_launched_in_one_zone_or_none(site: Site) -> None:
    site.cloud.refusals = {("big", "a"): NoCapacity("big", "a")}
    found = await site.rent_together(*PAIR)
    assert set(found) == set(PAIR)
    assert [(one.claim.machine, one.zone, one.claim.number) for one in site.cloud.living] == [
        (NODE, "b", 2), ("lab-1-2", "b", 2)
    ]  # fmt: skip
    assert [len(order.claims) for order, _ in site.cloud.orders.values()] == [2]
    assert site.told[0] == "lab-1-[1-2]: a has no big now: the next offer is tried"
    assert site.told[1] == "lab-1-[1-2]: rented: i-1, i-2, big in b, on-demand, 1.00 USD an hour each"
    calls = len(site.cloud.calls)
    assert set(await site.rent_together(*PAIR)) == set(PAIR)
    assert "launch" not in site.cloud.calls[calls:]


async def test_rest_of_a_job_is_launched_where_its_first_machine_is(site: Site) -> None:
    site.cloud.refusals = {("big", "a"): NoCapacity("big", "a")}
    await site.rent("lab-1-2")
    site.cloud.refusals = {}
    assert set(await site.rent_together(*PAIR)) == set(PAIR)
    assert {one.zone for one in site.cloud.living} == {"b"}


async def test_lost_answer_of_a_launch_of_two_goes_on_with_the_same_instances(site: Site) -> None:
    site.cloud.lost = 1
    with pytest.raises(Unanswered):
        await site.rent_together(*PAIR)
    assert await site.provider.begun("lab") == {*PAIR}
    site.start_again()
    found = await site.rent_together(*PAIR)
    assert {name: machine.address for name, machine in found.items()} == {
        one.claim.machine: one.public_address for one in site.cloud.living
    }
    assert len(site.cloud.machines) == 2


async def lose_a_launch(site: Site) -> None:
    """Asks for the pair; the request never reaches the cloud."""

    def away(name: str) -> None:
        if name == "launch":
            raise Unanswered("lost on the way there")

    site.cloud.before = away
    with pytest.raises(Unanswered):
        await site.rent_together(*PAIR)
    site.cloud.before = lambda _: None


async def test_launch_of_two_that_did_not_happen_is_repeated_with_its_token(site: Site) -> None:
    await lose_a_launch(site)
    site.start_again()
    assert set(await site.rent_together(*PAIR)) == set(PAIR)
    assert [one.claim.number for one in site.cloud.living] == [1, 1]
    assert len(site.cloud.orders) == 1


async def test_launch_of_two_is_not_repeated_once_one_was_given_up(site: Site) -> None:
    await lose_a_launch(site)
    await site.provider.give_up("lab", "lab-1-2")
    assert set(await site.rent(NODE)) == {NODE}
    assert [(one.claim.machine, one.claim.number) for one in site.cloud.living] == [(NODE, 2)]


async def test_no_machine_stays_when_the_cloud_ends_one_of_two_for_lack_of_capacity(site: Site) -> None:
    launch = site.cloud.launch

    async def lacks(order: Any) -> Any:
        made = await launch(order)
        if order.offer.zone == "a":
            ended = replace(made[1], state=InstanceState.ENDED, lacked_capacity=True)
            site.cloud.machines[ended.id] = ended
            return (made[0], ended)
        return made

    site.cloud.launch = lacks  # type: ignore[method-assign]
    await site.rent_together(*PAIR)
    assert [(one.claim.machine, one.zone) for one in site.cloud.living] == [(NODE, "b"), ("lab-1-2", "b")]


async def test_cost_limit_holds_for_machines_that_are_launched_together(site: Site) -> None:
    site.cluster = replace(site.cluster, max_usd_per_hour=Decimal("3.50"))
    site.cloud.prices = {"big": "2", "small": "2"}
    with pytest.raises(CloudRefusal, match=r"for lab-1-\[1-2\]: big in a is over the price limit: 4\.00 USD an hour"):
        await site.rent_together(*PAIR)
    assert site.cloud.machines == {}
    assert await site.provider.begun("lab") == frozenset()


async def test_offer_over_the_price_limit_of_the_group_is_passed_over(site: Site) -> None:
    group = replace(site.cluster.groups[0], max_usd_per_hour=Decimal("1.5"))
    site.cluster = replace(site.cluster, groups=(group, *site.cluster.groups[1:]))
    with pytest.raises(
        CloudRefusal, match=r"over the price limit: 2\.00 USD an hour .* groups\.\w+\.usd_per_hour, 1\.5"
    ):
        await site.rent_together(*PAIR)
    assert "launch" not in site.cloud.calls
    assert "big in a is over the price limit" in site.told[0]
    assert set(await site.rent(NODE)) == {NODE}


async def test_server_killed_at_any_call_rents_two_machines_and_leaves_no_other(tmp_path: Path) -> None:
    for last in range(1, 30):
        site = Site(tmp_path / str(last))
        left = [last]

        def dies(_: str = "", left: list[int] = left) -> None:
            left[0] -= 1
            if left[0] == 0:
                raise Killed

        site.cloud.before = site.cloud.after_launch = dies
        try:
            await site.rent_together(*PAIR)
            assert last == 6, "network, zones, offers, launch, its answer"
            break
        except Killed:
            pass
        site.start_again()
        await site.rent_together(*PAIR)
        assert sorted(one.claim.machine for one in site.cloud.living) == [*PAIR], last
        for name in PAIR:
            await site.provider.give_up("lab", name)
        assert site.cloud.living == []
    else:
        pytest.fail("renting never ends")


async def test_disk_of_machines_that_were_launched_together_is_claimed_by_any_of_them(site: Site) -> None:
    await site.rent_together(*PAIR)
    number = site.cloud.living[0].claim.number
    disk = RentedThing("vol-1", "volume", "lab", "lab-1-[1-2]", 0.0, "64 GiB", "a", "available", number=number)
    site.cloud.things = [disk]
    assert await site.provider.unclaimed("lab") == ()
    await site.provider.give_up("lab", NODE)
    assert await site.provider.unclaimed("lab") == ()
    await site.provider.give_up("lab", "lab-1-2")
    assert await site.provider.unclaimed("lab") == (disk,)
    site.cloud.things = [replace(disk, machine="lab-[")]
    assert len(await site.provider.unclaimed("lab")) == 1
