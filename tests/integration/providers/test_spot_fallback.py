"""A group of spot machines that may fall back to machines on demand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headway.changes.checks.rented_machines import WantedMachines, rental_notes
from headway.domain.machines.offer import PurchaseOption
from headway.domain.machines.rented import InstanceState
from headway.errors import Unanswered
from headway.providers.base import ReclaimNotice
from headway.providers.cloud.refusals import CloudRefusal, NoCapacity
from tests.support.cloud.provider_site import NODE, PAIR, Site, site

__all__ = ["site"]
SPOT, ON_DEMAND = PurchaseOption.SPOT, PurchaseOption.ON_DEMAND


@pytest.fixture(autouse=True)
def falls_back(site: Site) -> None:
    group = replace(site.cluster.groups[0], spot=True, on_demand_fallback=True)
    site.cluster = replace(site.cluster, groups=(group,))


def empty(site: Site, *types: str) -> None:
    """Leaves no capacity for these types in any zone."""
    site.cloud.refusals |= {(name, zone): NoCapacity(name, zone) for name in types for zone in "ab"}


async def test_spot_offers_of_all_types_and_zones_come_first(site: Site) -> None:
    offers = await site.provider.offers(site.cluster, NODE)
    pools = [("big", "a"), ("big", "b"), ("small", "a"), ("small", "b")]
    assert [(one.instance_type, one.zone) for one in offers] == [*pools, *pools]
    assert [one.purchase for one in offers] == [SPOT] * 4 + [ON_DEMAND] * 4
    assert {one.purchase for one in await site.provider.offers(site.cluster, site.cluster.head)} == {ON_DEMAND}


async def test_machine_on_demand_is_rented_where_no_spot_machine_can_be_had_and_each_try_is_reported(
    site: Site,
) -> None:
    empty(site, "spot big", "spot small")
    await site.rent()
    assert [(one.instance_type, one.purchase) for one in site.cloud.living] == [("big", ON_DEMAND)]
    assert len(site.told) == 6
    assert site.told[-2:] == [
        f"{NODE}: no spot machine was rented: on-demand is tried",
        f"{NODE}: rented: i-1, big in a, on-demand, 1.00 USD an hour",
    ]


async def test_without_the_rule_the_group_waits_for_spot_machines(site: Site) -> None:
    group = replace(site.cluster.groups[0], on_demand_fallback=False)
    site.cluster = replace(site.cluster, groups=(group,))
    empty(site, "spot big", "spot small")
    with pytest.raises(CloudRefusal):
        await site.rent()
    assert site.cloud.living == []


async def test_machines_of_a_job_are_all_spot_or_all_on_demand(site: Site) -> None:
    empty(site, "spot big", "spot small")
    await site.rent_together(*PAIR)
    assert {(one.purchase, one.zone) for one in site.cloud.living} == {(ON_DEMAND, "a")}
    assert len(site.cloud.living) == 2


async def test_rest_of_a_job_is_spot_too_in_another_zone_if_need_be(site: Site) -> None:
    await site.rent(PAIR[1])
    site.cloud.refusals = {(name, "a"): NoCapacity(name, "a") for name in ("spot big", "spot small")}
    assert set(await site.rent_together(*PAIR)) == set(PAIR)
    assert {(one.claim.machine, one.purchase, one.zone) for one in site.cloud.living} == {
        (NODE, SPOT, "b"), (PAIR[1], SPOT, "a")
    }  # fmt: skip


async def test_rest_of_a_job_is_not_rented_on_demand_where_its_first_machine_is_spot(site: Site) -> None:
    """The scaling then ends the first machine, and tries all of them on demand."""
    await site.rent(PAIR[1])
    empty(site, "spot big", "spot small")
    with pytest.raises(CloudRefusal):
        await site.rent_together(*PAIR)
    assert [(one.claim.machine, one.purchase) for one in site.cloud.living] == [(PAIR[1], SPOT)]
    await site.provider.give_up("lab", PAIR[1])
    await site.rent_together(*PAIR)
    assert [one.purchase for one in site.cloud.living] == [ON_DEMAND, ON_DEMAND]


async def test_machine_of_another_kind_than_the_group_has_now_is_no_obstacle(site: Site) -> None:
    spot = site.cluster.groups[0]
    site.cluster = replace(site.cluster, groups=(replace(spot, spot=False, on_demand_fallback=False),))
    await site.rent(PAIR[1])
    site.cluster = replace(site.cluster, groups=(replace(spot, on_demand_fallback=False),))
    assert set(await site.rent_together(*PAIR)) == set(PAIR)
    assert [one.purchase for one in site.cloud.living] == [ON_DEMAND, SPOT]


async def test_lost_answer_of_a_fallback_is_repeated_as_it_was(site: Site) -> None:
    empty(site, "spot big", "spot small")
    site.cloud.lost = 1
    with pytest.raises(Unanswered):
        await site.rent()
    site.cloud.refusals.clear()
    site.start_again()
    await site.rent()
    assert [(one.id, one.purchase) for one in site.cloud.living] == [("i-1", ON_DEMAND)]


async def test_refusal_of_a_spot_machine_names_the_rule() -> None:
    assert NoCapacity("big", "a", spot=True).message == "a has no spot big now"
    assert "spot_fallback: on-demand" in NoCapacity("big", "a", spot=True).hint


async def test_plan_says_that_machines_on_demand_would_be_tried(site: Site) -> None:
    offers = await site.provider.offers(site.cluster, NODE)
    note = next(rental_notes(site.cluster, [WantedMachines((NODE,), offers, None)], {}))
    assert note.startswith(f"{NODE}: 1 x big in a, spot, 1.00 USD an hour each")
    assert note.endswith(
        "big in b, then small in a, then small in b, then big in a (on-demand), then 3 more (on-demand)"
    )


async def test_machine_that_the_cloud_takes_back_is_noted_in_the_ledger(site: Site) -> None:
    await site.take()
    assert [one.taken_back for one in await site.provider.rentals("lab")] == [False]
    site.cloud.warned = (ReclaimNotice(NODE, 1120.0),)
    await site.provider.notices("lab")
    assert [(one.purchase, one.taken_back) for one in await site.provider.rentals("lab")] == [(SPOT, True)]
    site.start_again()  # the notice is forgotten, and the cloud says why the machine ended
    instance = site.cloud.machines["i-1"]
    site.cloud.machines["i-1"] = replace(instance, state=InstanceState.ENDED, taken_back=True)
    assert [one.taken_back for one in await site.provider.rentals("lab")] == [True]
