"""CloudProvider: rents each machine once whatever is lost or killed, says what can't be had, and ends everything."""

from __future__ import annotations

import contextlib
import random
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from headway.cluster.keys.secrets import public_key
from headway.domain.machines.machine import MachineState
from headway.domain.machines.rented import InstanceState, RentedThing
from headway.errors import Refused, Unanswered, Unreachable
from headway.providers.base import ReclaimNotice
from headway.providers.cloud.refusals import AuthFailed, CloudRefusal, NoCapacity, QuotaExceeded, Rejected
from tests.support.cloud.fake_cloud import ALL_CALLS
from tests.support.cloud.provider_site import HEAD, KEY, NODE, PAIR, SETTINGS, Killed, Site, site

__all__ = ["site"]  # a fixture


async def test_rented_machine_is_a_machine_of_the_cluster_once_it_is_taken(site: Site) -> None:
    await site.rent()
    assert await site.provider.list("lab") == ()
    assert set(await site.provider.rented(site.cluster)) == {NODE}
    machine = await site.take()
    listed = await site.provider.list("lab")
    assert [(one.name, one.address, one.state) for one in listed] == [(NODE, "203.0.113.1", MachineState.RUNNING)]
    assert machine.host_key == " ".join(public_key(KEY).split()[:2])
    assert len(site.cloud.living) == 1


async def test_private_key_of_the_user_data_leaves_the_record_when_it_is_replaced(site: Site) -> None:
    await site.rent()
    file = site.folder / "rented" / "lab.json"
    assert "PRIVATE KEY" in file.read_text()
    assert file.stat().st_mode & 0o777 == 0o600
    await site.take()
    assert "PRIVATE KEY" not in file.read_text()


async def test_next_zone_then_next_type_is_tried_and_reported(site: Site) -> None:
    site.cloud.refusals = {("big", "a"): NoCapacity("big", "a"), ("big", "b"): QuotaExceeded("Standard", 32, 64)}
    await site.rent()
    assert [(one.instance_type, one.zone) for one in site.cloud.living] == [("small", "a")]
    assert site.told[:2] == [
        f"{NODE}: a has no big now: the next offer is tried",
        f"{NODE}: the quota Standard is 32, 64 are needed: the next offer is tried",
    ]
    assert site.told[2] == f"{NODE}: rented: i-1, small in a, on-demand, 1.00 USD an hour"


async def test_no_offer_left_names_each_try_and_each_remedy(site: Site) -> None:
    for kind in ("big", "small"):
        for zone in ("a", "b"):
            site.cloud.refusals[kind, zone] = NoCapacity(kind, zone)
    site.cloud.refusals["small", "b"] = QuotaExceeded("Standard", 32, 64)
    with pytest.raises(CloudRefusal) as refused:
        await site.rent()
    assert refused.value.message.startswith(f"no machine can be had for {NODE}: a has no big now; b has no big now;")
    assert "name more zones" in refused.value.hint
    assert "higher quota Standard" in refused.value.hint
    assert site.cloud.living == []


@pytest.mark.parametrize("refusal", [AuthFailed("expired"), Rejected("InvalidAMIID", "no such image")])
async def test_other_refusals_stop_at_once(site: Site, refusal: Exception) -> None:
    site.cloud.refusals = {("big", "a"): refusal}  # type: ignore[dict-item]
    with pytest.raises(type(refusal)):
        await site.rent()
    assert site.cloud.calls.count("launch") == 1


async def test_launch_whose_answer_was_lost_goes_on_with_the_same_instance(site: Site) -> None:
    site.cloud.lost = 1
    with pytest.raises(Unanswered):
        await site.rent()
    site.start_again()
    await site.rent()
    assert [one.claim.number for one in site.cloud.living] == [1]


async def test_server_killed_at_any_call_rents_one_machine(tmp_path: Path) -> None:
    """A kill before the n-th call of the cloud, or between a launch and its answer, for each n; the next server goes
    on."""
    for last in range(1, 30):
        site = Site(tmp_path / str(last))
        left = [last]

        def dies(_: str = "", left: list[int] = left) -> None:
            left[0] -= 1
            if left[0] == 0:
                raise Killed

        site.cloud.before = site.cloud.after_launch = dies
        try:
            await site.take()
            assert last == 7, "network, zones, offers, launch, its answer, and the look at the machine"
            break
        except Killed:
            pass
        site.start_again()
        await site.take()
        assert len(site.cloud.living) == 1, last
        assert [one.name for one in await site.provider.list("lab")] == [NODE]
    else:
        pytest.fail("renting never ends")


async def test_three_hundred_bad_days_leave_nothing(site: Site) -> None:
    """Launches, lost answers, refusals, kills of the server and terminations in the console, in an order that one seed
    makes: at all times each machine that costs money is the one of its slot's present try, and in the end nothing is
    left."""
    chance, names = random.Random(29), (HEAD, NODE, "lab-1-2")

    def dies(_: str = "") -> None:
        if chance.random() < 0.06:
            raise Killed

    for _ in range(300):
        name = chance.choice(names)
        site.cloud.before = site.cloud.after_launch = dies
        site.cloud.lost = chance.choice((0, 0, 0, 1))
        site.cloud.refusals = {("big", "a"): NoCapacity("big", "a")} if chance.random() < 0.3 else {}
        with contextlib.suppress(Killed, Unanswered, CloudRefusal):
            await (site.rent_together(*PAIR) if chance.random() < 0.3 else site.take(name))
        site.cloud.before, site.cloud.after_launch, site.cloud.lost = lambda _: None, lambda: None, 0
        if chance.random() < 0.4:
            site.start_again()
        if chance.random() < 0.2:
            await site.provider.give_up("lab", name)
        if chance.random() < 0.3 and site.cloud.living:
            await site.cloud.terminate([chance.choice(site.cloud.living).id])
        site.now += 60
        assert await site.provider.unclaimed("lab") == ()
        assert len({one.claim.machine for one in site.cloud.living}) == len(site.cloud.living)
    site.cloud.refusals = {}
    assert len(site.cloud.machines) > 50, "little happened"
    for name in names:
        await site.take(name)
    assert sorted(one.claim.machine for one in site.cloud.living) == sorted(names)
    await site.provider.release("lab", delete_data=True)
    assert site.cloud.living == []


async def test_instance_ended_in_the_console_is_rented_again_with_its_address(site: Site) -> None:
    before = await site.take()
    place = (await site.provider._present("lab", NODE))[0].address
    await site.cloud.terminate(["i-1"])
    site.now += 60
    assert await site.provider.list("lab") == ()
    after = await site.take()
    assert [(one.id, one.claim.number, one.private_address) for one in site.cloud.living] == [("i-2", 2, place)]
    assert before.address != after.address
    assert any("has ended: User initiated" in line for line in site.told)


async def test_next_machine_waits_for_the_address_of_one_that_is_ending(site: Site) -> None:
    await site.take()
    place = (await site.provider._present("lab", NODE))[0].address
    site.cloud.machines["i-1"] = replace(site.cloud.machines["i-1"], state=InstanceState.ENDING)
    looks = [3]

    def ends(name: str) -> None:
        looks[0] -= name == "describe"
        if looks[0] == 0:
            site.cloud.machines["i-1"] = replace(site.cloud.machines["i-1"], state=InstanceState.ENDED)
        assert name != "launch" or looks[0] <= 0, "launched while the address was in use"

    site.cloud.before = ends
    await site.rent()
    assert [one.private_address for one in site.cloud.living] == [place]


async def test_cost_limit_holds_before_a_launch(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.cluster = replace(site.cluster, max_usd_per_hour=Decimal("3.50"))
    site.cloud.prices = {"little": "0.25", "big": "2", "small": "2"}
    await site.rent(HEAD)
    await site.rent()
    over = r"big in a is over the price limit: 2\.00 USD an hour with the 2\.25 of all other machines is more than cost"
    with pytest.raises(CloudRefusal, match=over):
        await site.rent("lab-1-2")
    assert len(site.cloud.living) == 2
    await site.provider.delete((await site.provider.rented(site.cluster))[NODE])
    await site.rent("lab-1-2")


async def test_offer_over_the_cost_limit_is_passed_over_for_a_cheaper_one(tmp_path: Path) -> None:
    site = Site(tmp_path)  # its file tries the type big first, whatever it costs
    site.cluster = replace(site.cluster, max_usd_per_hour=Decimal("3.50"))
    site.cloud.prices = {"big": "4", "small": "2"}
    await site.rent()
    assert [(one.instance_type, one.zone) for one in site.cloud.living] == [("small", "a")]
    assert site.cloud.calls.count("launch") == 1, "the cloud was asked for a machine that is too expensive"
    assert [said.partition(" is over the price limit")[0] for said in site.told[:2]] == [
        f"{NODE}: big in a", f"{NODE}: big in b"
    ]  # fmt: skip


async def test_machines_stay_listed_while_the_cloud_does_not_answer(site: Site) -> None:
    await site.take()
    assert len(await site.provider.list("lab")) == 1

    def away(_: str) -> None:
        raise Unreachable("the region is away")

    site.cloud.before = away
    site.now += 60
    assert [one.name for one in await site.provider.list("lab")] == [NODE]
    with pytest.raises(Unreachable):
        await site.provider.rented(site.cluster)


async def test_machines_are_listed_from_few_requests(site: Site) -> None:
    await site.take()
    site.cloud.calls.clear()
    for _ in range(10):
        await site.provider.list("lab")
    assert site.cloud.calls == ["instances"]


async def test_stop_and_start_keep_the_machine(site: Site) -> None:
    machine = await site.take()
    await site.provider.fence(machine)
    assert [one.state for one in await site.provider.list("lab")] == [MachineState.STOPPED]
    await site.provider.start(machine)
    assert [one.state for one in await site.provider.list("lab")] == [MachineState.RUNNING]


async def test_spot_machine_is_ended_where_another_one_would_be_stopped(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.cluster = replace(site.cluster, groups=(replace(site.cluster.groups[0], spot=True),))
    machine = await site.take()
    await site.provider.fence(machine)
    assert site.cloud.living == []
    assert "stop" not in site.cloud.calls
    await site.provider.fence(machine)
    assert await site.provider.list("lab") == ()


async def test_another_region_is_refused_while_machines_are_rented(site: Site) -> None:
    await site.take()
    site.settings = replace(SETTINGS, region="elsewhere")
    site.start_again()
    for work in (site.provider.list("lab"), site.provider.find(site.cluster), site.provider.prepare(site.cluster)):
        with pytest.raises(Refused, match="are rented from aws r, and its file says aws elsewhere"):
            await work
    site.settings = SETTINGS
    site.start_again()
    await site.provider.release("lab", delete_data=True)
    site.settings = replace(SETTINGS, region="elsewhere")
    site.start_again()
    await site.rent()


async def test_release_ends_everything_and_keeps_the_count_of_tries(site: Site) -> None:
    await site.take()
    await site.rent("lab-1-2")
    site.cloud.lost = 1
    with pytest.raises(Unanswered):
        await site.rent(HEAD)
    assert await site.provider.release("lab", delete_data=True) == ()
    assert site.cloud.living == []
    assert site.cloud.calls[-1] == "remove_network"
    assert await site.provider.find(site.cluster) is None
    await site.rent()
    assert [one.claim.number for one in site.cloud.living] == [2], "a token is never used again"


async def test_placement_has_an_address_for_each_slot(site: Site) -> None:
    assert await site.provider.find(site.cluster) is None
    await site.rent(HEAD)
    await site.rent()
    place = await site.provider.find(site.cluster)
    assert place is not None
    assert place.addresses == {HEAD: "10.64.0.16", NODE: "10.64.0.17", "lab-1-2": "198.18.0.3"}
    assert place.subnet == "10.64.0.0/23"


async def test_plan_of_a_cluster_that_is_not_rented_asks_the_cloud_nothing(site: Site) -> None:
    site.cloud.allowed = frozenset()
    assert await site.provider.find(site.cluster) is None
    assert await site.provider.list("lab") == ()
    site.cloud.allowed = ALL_CALLS


async def test_unclaimed_is_what_no_present_try_claims(site: Site) -> None:
    await site.take()
    assert await site.provider.unclaimed("lab") == ()
    lost = replace(site.cloud.machines["i-1"], id="i-lost", claim=replace(site.cloud.machines["i-1"].claim, number=9))
    site.cloud.machines["i-lost"] = lost
    disk = RentedThing("vol-1", "volume", "lab", NODE, 0.0, "64 GiB", "a", "available", number=9)
    used = replace(disk, id="vol-2", state="in-use")
    other = replace(disk, id="vol-3", cluster="other")
    site.cloud.things = [disk, used, other]
    found = await site.provider.unclaimed("lab")
    assert [thing.id for thing in found] == ["i-lost", "vol-1"]
    await site.provider.end_things(found)
    assert [one.id for one in site.cloud.living] == ["i-1"]
    assert site.cloud.things == [used, other]


async def test_second_instance_of_one_launch_is_unclaimed_where_a_cloud_has_no_tokens(site: Site) -> None:
    await site.take()
    site.cloud.machines["i-twin"] = replace(site.cloud.machines["i-1"], id="i-twin")
    assert [thing.id for thing in await site.provider.unclaimed("lab")] == ["i-twin"]


@pytest.mark.parametrize("field", ["server", "cluster", "machine", "number"])
async def test_machine_whose_tag_was_removed_by_hand_stays(site: Site, field: str) -> None:
    await site.take()
    made = site.cloud.machines["i-1"]
    nothing: Any = {field: 0 if field == "number" else ""}
    site.cloud.machines["i-1"] = replace(made, claim=replace(made.claim, **nothing))
    site.now += 60
    assert [one.name for one in await site.provider.list("lab")] == [NODE]
    assert set(await site.provider.rented(site.cluster)) == {NODE}
    assert await site.provider.unclaimed("lab") == ()
    await site.provider.release("lab", delete_data=True)
    assert site.cloud.living == []


async def test_rented_things_have_the_price_of_their_try(site: Site) -> None:
    site.cloud.prices = {"big": "3.20"}
    await site.rent()
    assert [(thing.id, thing.usd_per_hour) for thing in await site.provider.things()] == [("i-1", Decimal("3.20"))]


async def test_notices_are_asked_for_spot_machines_alone(tmp_path: Path) -> None:
    site = Site(tmp_path)
    await site.take()
    site.cloud.warned = (ReclaimNotice(NODE, 2000.0),)
    site.cloud.allowed = ALL_CALLS - {"notices"}
    assert await site.provider.notices("lab") == ()
    site.cloud.allowed = ALL_CALLS
    group = replace(site.cluster.groups[0], spot=True)
    site.cluster = replace(site.cluster, groups=(group,))
    await site.take("lab-1-2")
    assert await site.provider.notices("lab") == site.cloud.warned
    site.cloud.warned = ()
    assert await site.provider.notices("lab") != (), "asked a moment ago"
    site.now += 60
    assert await site.provider.notices("lab") == ()


async def test_instance_that_never_runs_is_named(site: Site) -> None:
    async def stuck(order: Any, launch: Any = site.cloud.launch) -> Any:
        (made,) = await launch(order)
        site.cloud.machines[made.id] = replace(made, state=InstanceState.STARTING, public_address="")
        return (site.cloud.machines[made.id],)

    site.cloud.launch = stuck  # type: ignore[method-assign]
    with pytest.raises(Unreachable, match="instance i-1 does not run after 300 s: it is starting"):
        await site.rent()


async def test_cheaper_types_come_first_unless_the_file_gives_an_order(site: Site) -> None:
    site.cloud.prices = {"m7i.16xlarge": "3.5", "m6i.16xlarge": "3", "m5.16xlarge": "0", "big": "4", "small": "1"}
    assert [offer.instance_type for offer in await site.provider.offers(site.cluster, NODE)][::2] == ["big", "small"]
    site.settings = replace(SETTINGS, types={})
    site.start_again()
    found = [(offer.instance_type, offer.zone) for offer in await site.provider.offers(site.cluster, NODE)]
    assert found[:3] == [("m6i.16xlarge", "a"), ("m6i.16xlarge", "b"), ("m7i.16xlarge", "a")]
    assert found[-1] == ("m5.16xlarge", "b"), "a price that is not known comes last"


async def test_type_that_is_smaller_than_the_plan_is_refused_where_slurm_knows_only_the_plan(site: Site) -> None:
    plan = replace(site.cluster.groups[0].plan, memory_mib=300_000)
    site.cluster = replace(site.cluster, groups=(replace(site.cluster.groups[0], plan=plan),))
    assert await site.provider.offers(site.cluster, NODE)
    site.cluster = replace(site.cluster, groups=(replace(site.cluster.groups[0], idle_s=600),))
    with pytest.raises(Refused, match="big has 262144 MiB of memory, and plan cpu-64 of a group with idle 300000"):
        await site.provider.offers(site.cluster, NODE)


async def test_rentals_are_what_the_cloud_lists_with_the_price_of_the_launch(site: Site) -> None:
    site.cloud.clock = lambda: site.now
    site.cloud.prices = {"big": "3.20"}
    await site.take()
    site.now += 60
    await site.provider.give_up("lab", NODE)
    site.now += 60
    await site.take()
    found = await site.provider.rentals("lab")
    assert [(one.machine, one.launched_at, one.ended_at, one.usd_per_hour) for one in found] == [
        (NODE, 1000, 1060, Decimal("3.20")), (NODE, 1120, None, Decimal("3.20"))
    ]  # fmt: skip
    site.cloud.machines["i-2"] = replace(site.cloud.machines["i-2"], claim=replace(found_claim(site), machine=""))
    site.now += 60
    assert (await site.provider.rentals("lab"))[1].machine == NODE, "a person has removed the tag"


def found_claim(site: Site) -> Any:
    return site.cloud.machines["i-2"].claim
