"""AwsCloud against moto's EC2: launches, lists, ends, and says what AWS refuses."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from headway.domain.machines.cloud_settings import CloudSettings
from headway.domain.machines.offer import PurchaseOption
from headway.domain.machines.rented import CloudNetwork, InstanceClaim, InstanceState
from headway.errors import Unanswered, Unreachable
from headway.providers.cloud.api import LaunchOrder
from headway.providers.cloud.aws.cloud import AwsCloud
from headway.providers.cloud.refusals import AuthFailed, NoCapacity, QuotaExceeded, Rejected, Throttled
from tests.support.cloud.ec2_stand_in import REGION, Ec2StandIn, use_stand_in

SETTINGS = CloudSettings(REGION, zones=(f"{REGION}a", f"{REGION}b"), network="10.64.0.0/20")
ZONE = f"{REGION}a"
TYPE = "g6.xlarge"


@pytest.fixture(scope="module")
def server() -> Iterator[Ec2StandIn]:
    with Ec2StandIn() as made:
        yield made


@pytest.fixture
def ec2(server: Ec2StandIn, monkeypatch: pytest.MonkeyPatch) -> Ec2StandIn:
    """Returns the stand-in without anything that an earlier test made."""
    server.reset()
    server.prices.clear()
    server.quotas.clear()
    use_stand_in(monkeypatch, server.url)
    return server


@pytest.fixture
def cloud(ec2: Ec2StandIn) -> AwsCloud:
    return AwsCloud(REGION)


def image(ec2: Ec2StandIn) -> str:
    return str(ec2.client().describe_images()["Images"][0]["ImageId"])


def claims(*machines: str, number: int = 1) -> tuple[InstanceClaim, ...]:
    return tuple(InstanceClaim("srv", "lab", machine, number) for machine in machines)


async def order(ec2: Ec2StandIn, cloud: AwsCloud, *machines: str, number: int = 1, **fields: Any) -> LaunchOrder:
    network = await cloud.make_network("srv", "lab", SETTINGS, ())
    offer = (await cloud.offers([TYPE], [ZONE], PurchaseOption.ON_DEMAND))[0]
    made = LaunchOrder(
        claims=claims(*(machines or ("lab-1-1",)), number=number),
        offer=offer,
        image=image(ec2),
        user_data="#cloud-config\n",
        subnet=network.subnets[ZONE][0],
        groups=network.groups,
        address="",
        public_address=True,
        disk_gib=64,
        usd_per_hour=Decimal("0.80"),
        ends_when_off=True,
    )
    return replace(made, **fields)


async def test_offers_have_hardware_zone_and_price(ec2: Ec2StandIn, cloud: AwsCloud) -> None:
    ec2.prices["p5.48xlarge"] = "55.04"
    zones = await cloud.zones(CloudSettings(REGION))
    found = await cloud.offers([TYPE, "p5.48xlarge", "x9.none"], zones, PurchaseOption.ON_DEMAND)
    assert [offer.zone for offer in found] == [f"{REGION}a", f"{REGION}b", f"{REGION}c"]  # p5 is not sold there
    offer = found[0]
    assert (offer.gpus, offer.gpu_type, offer.cpus, offer.memory_mib) == (1, "l4", 4, 16384)
    assert (str(offer.price_usd_per_node_hour), offer.note) == ("0.8048", "of us-east-1"), "from the package's offers"
    unknown = (await cloud.offers(["t3.large"], [ZONE], PurchaseOption.ON_DEMAND))[0]
    assert unknown.price_usd_per_node_hour == 0, "a price that is in neither is not known"
    ec2.prices[TYPE] = "0.9"
    priced = await cloud.offers([TYPE], [ZONE], PurchaseOption.ON_DEMAND)
    assert [str(one.price_usd_per_node_hour) for one in priced] == ["0.9"]
    assert str(priced[0].as_of) == "2026-11-01"


async def test_quota_says_limit_and_use(ec2: Ec2StandIn, cloud: AwsCloud) -> None:
    offer = (await cloud.offers([TYPE], [ZONE], PurchaseOption.ON_DEMAND))[0]
    assert await cloud.quota(offer) is None
    ec2.quotas["L-DB2E81BA"] = 8
    await cloud.launch(await order(ec2, cloud))
    quota = await cloud.quota(offer)
    assert quota is not None
    assert (quota.name, quota.limit, quota.used) == ("Running On-Demand G and VT instances", 8, 4)


async def test_machines_elsewhere_may_reach_all_ports(ec2: Ec2StandIn, cloud: AwsCloud) -> None:
    def let_in() -> list[str]:
        rules = ec2.client().describe_security_groups(GroupIds=list(made.groups))["SecurityGroups"][0]["IpPermissions"]
        return sorted(ip["CidrIp"] for rule in rules if rule["IpProtocol"] == "-1" for ip in rule.get("IpRanges", []))

    made = await cloud.make_network("srv", "lab", SETTINGS, (), ("192.0.2.10", "192.0.2.11"))
    assert let_in() == ["192.0.2.10/32", "192.0.2.11/32"]
    await cloud.make_network("srv", "lab", SETTINGS, (), ("192.0.2.10",))
    assert let_in() == ["192.0.2.10/32"]


async def test_network_is_made_once_and_removed(ec2: Ec2StandIn, cloud: AwsCloud) -> None:
    assert await cloud.find_network("srv", "lab", SETTINGS) is None
    made = await cloud.make_network("srv", "lab", SETTINGS, ("203.0.113.0/24",))
    assert set(made.subnets) == set(SETTINGS.zones)
    assert await cloud.make_network("srv", "lab", SETTINGS, ("203.0.113.0/24",)) == made
    assert await cloud.find_network("srv", "lab", SETTINGS) == made
    rules = ec2.client().describe_security_groups(GroupIds=list(made.groups))["SecurityGroups"][0]["IpPermissions"]
    ssh = [rule for rule in rules if rule.get("FromPort") == 22]
    assert [ip["CidrIp"] for rule in ssh for ip in rule["IpRanges"]] == ["203.0.113.0/24"]
    before = len(ec2.client().describe_vpcs()["Vpcs"])
    await cloud.remove_network("srv", "lab")
    assert len(ec2.client().describe_vpcs()["Vpcs"]) == before - 1
    assert await cloud.find_network("srv", "lab", SETTINGS) is None
    await cloud.remove_network("srv", "lab")


async def test_network_uses_subnets_of_the_file(ec2: Ec2StandIn, cloud: AwsCloud) -> None:
    theirs = ec2.client().describe_subnets()["Subnets"][:2]
    settings = replace(SETTINGS, zones=(), subnets=tuple(row["SubnetId"] for row in theirs))
    assert await cloud.zones(settings) == tuple(row["AvailabilityZone"] for row in theirs)
    made = await cloud.make_network("srv", "lab", settings, ())
    assert made.subnets == {row["AvailabilityZone"]: (row["SubnetId"], row["CidrBlock"]) for row in theirs}
    await cloud.remove_network("srv", "lab")
    assert len(ec2.client().describe_subnets(SubnetIds=list(settings.subnets))["Subnets"]) == 2


async def test_launched_instance_has_tags_and_is_listed_until_it_ends(ec2: Ec2StandIn, cloud: AwsCloud) -> None:
    (made,) = await cloud.launch(await order(ec2, cloud, number=3))
    assert made.claim == InstanceClaim("srv", "lab", "lab-1-1", 3)
    assert [one.id for one in await cloud.instances("srv", "lab")] == [made.id]
    assert await cloud.instances("srv", "other") == ()
    assert await cloud.instances("elsewhere") == ()
    things = await cloud.costly_things("srv")
    assert sorted((thing.kind, thing.machine) for thing in things) == [("instance", "lab-1-1"), ("volume", "lab-1-1")]
    await cloud.terminate([made.id, "i-0123456789abcdef0"])
    await cloud.terminate([made.id])
    assert [one.state for one in await cloud.instances("srv", "lab")] == [InstanceState.ENDED]
    assert await cloud.costly_things("srv") == ()


async def test_same_claim_launches_once(ec2: Ec2StandIn, cloud: AwsCloud) -> None:
    wanted = await order(ec2, cloud)
    assert len({(await cloud.launch(wanted))[0].id for _ in range(3)}) == 1
    assert await cloud.launch(replace(wanted, claims=claims("lab-1-1", number=2)))
    assert len(ec2.living()) == 2


async def test_launch_whose_answer_was_lost_is_made_once(ec2: Ec2StandIn, cloud: AwsCloud) -> None:
    wanted = await order(ec2, cloud)
    ec2.losing["RunInstances"] = 2  # the client asks three times
    assert (await cloud.launch(wanted))[0].claim == wanted.claims[0]
    assert len(ec2.calls("RunInstances")) == 3
    assert len(ec2.living()) == 1
    ec2.losing["RunInstances"] = 3
    other = replace(wanted, claims=claims("lab-1-2"))
    with pytest.raises(Unanswered):
        await cloud.launch(other)
    assert (await cloud.launch(other))[0].claim == other.claims[0]
    assert len(ec2.living()) == 2


async def test_token_with_other_parameters_is_rejected(ec2: Ec2StandIn, cloud: AwsCloud) -> None:
    wanted = await order(ec2, cloud)
    await cloud.launch(wanted)
    with pytest.raises(Rejected) as refused:
        await cloud.launch(replace(wanted, user_data="#cloud-config\n# another\n"))
    assert refused.value.code == "IdempotentParameterMismatch"


@pytest.mark.parametrize(
    ("code", "message", "error", "words"),
    [
        ("InsufficientInstanceCapacity", "", NoCapacity, f"{ZONE} has no {TYPE} now"),
        ("Unsupported", "not in this zone", NoCapacity, f"{ZONE} has no {TYPE} now"),
        (
            "VcpuLimitExceeded",
            "You have requested more vCPU capacity than your current vCPU limit of 2 allows",
            QuotaExceeded,
            f"the quota Vcpu for {TYPE} is 2, 4 are needed",
        ),
        ("MaxSpotInstanceCountExceeded", "", QuotaExceeded, "is used up, 4 are needed"),
        ("RequestLimitExceeded", "slow down", Throttled, "fewer requests than were sent: slow down"),
        ("ExpiredToken", "the token has expired", AuthFailed, "the token has expired (ExpiredToken)"),
        ("UnauthorizedOperation", "not allowed", AuthFailed, "not allowed (UnauthorizedOperation)"),
        ("InvalidAMIID.NotFound", "no such image", Rejected, "no such image (InvalidAMIID.NotFound)"),
    ],
)
async def test_refusals_have_a_type_and_a_remedy(
    ec2: Ec2StandIn, cloud: AwsCloud, code: str, message: str, error: type[Exception], words: str
) -> None:
    wanted = await order(ec2, cloud)
    ec2.refuse("RunInstances", code, message, times=3)
    with pytest.raises(error) as refused:
        await cloud.launch(wanted)
    assert words in str(refused.value)
    assert getattr(refused.value, "hint", "")
    assert ec2.living() == []


async def test_short_throttling_is_waited_for(ec2: Ec2StandIn, cloud: AwsCloud) -> None:
    wanted = await order(ec2, cloud)
    ec2.refuse("RunInstances", "RequestLimitExceeded", times=2)
    assert (await cloud.launch(wanted))[0].claim == wanted.claims[0]


async def test_region_without_answer_is_unreachable(monkeypatch: pytest.MonkeyPatch) -> None:
    use_stand_in(monkeypatch, "http://127.0.0.1:9")
    with pytest.raises(Unreachable, match="does not answer"):
        await AwsCloud(REGION).instances("srv")


async def test_page_of_a_proxy_is_a_lost_answer(
    ec2: Ec2StandIn, cloud: AwsCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = ("502 Bad Gateway", [("Content-Type", "text/html")], b"<!doctype html><title>Bad Gateway</title>")
    monkeypatch.setattr(ec2, "_answer", lambda *_, **__: page)
    with pytest.raises(Unanswered, match="something else than AWS does"):
        await cloud.instances("srv")


async def test_missing_credentials_are_named(ec2: Ec2StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    cloud = AwsCloud(REGION)
    with pytest.raises(AuthFailed, match="Unable to locate credentials"):
        await cloud.instances("srv")
    use_stand_in(monkeypatch, ec2.url)
    assert await cloud.instances("srv") == (), "credentials are read again after a refusal"


async def test_instance_may_be_missing_after_its_launch(ec2: Ec2StandIn, cloud: AwsCloud) -> None:
    ec2.hides = 2
    (made,) = await cloud.launch(await order(ec2, cloud))
    assert await cloud.instances("srv", "lab") == ()
    assert await cloud.describe(made.id) is None
    assert [one.id for one in await cloud.instances("srv", "lab")] == [made.id]


async def test_spot_instance_has_a_price_and_a_notice(ec2: Ec2StandIn, cloud: AwsCloud) -> None:
    ec2.prices[TYPE] = "0.80"
    spot = (await cloud.offers([TYPE], [ZONE], PurchaseOption.SPOT))[0]
    assert spot.price_usd_per_node_hour == Decimal("0.320")
    wanted = await order(ec2, cloud, offer=spot)
    await cloud.launch(wanted)
    there = await cloud.instances("srv", "lab")
    assert [one.purchase for one in there] == [PurchaseOption.SPOT]
    assert await cloud.notices(there) == ()
    ec2.notices[there[0].id] = "2026-11-27T10:00:00.000Z"
    notices = await cloud.notices(there)
    assert [(notice.machine, notice.at) for notice in notices] == [("lab-1-1", 1795773600 + 120)]


async def test_console_is_text(ec2: Ec2StandIn, cloud: AwsCloud) -> None:
    (made,) = await cloud.launch(await order(ec2, cloud))
    assert "Linux" in await cloud.console(made.id)


async def test_many_launches_at_once(ec2: Ec2StandIn, cloud: AwsCloud) -> None:
    wanted = await order(ec2, cloud)
    orders = [replace(wanted, claims=claims(f"lab-1-{n}")) for n in range(1, 33)]
    made = await asyncio.gather(*(cloud.launch(one) for one in orders))
    assert len({one.id for (one,) in made}) == 32
    assert isinstance(await cloud.find_network("srv", "lab", SETTINGS), CloudNetwork)


async def test_machines_are_launched_together_or_not_at_all(ec2: Ec2StandIn, cloud: AwsCloud) -> None:
    names = ("lab-1-2", "lab-1-3", "lab-2-1")
    wanted = await order(ec2, cloud, *names, number=4)
    ec2.refuse("RunInstances", "InsufficientInstanceCapacity", times=3)
    with pytest.raises(NoCapacity):
        await cloud.launch(wanted)
    assert ec2.living() == []
    ec2.losing["RunInstances"] = 1
    made = await cloud.launch(wanted)
    assert tuple(one.claim for one in made) == claims(*names, number=4)
    assert [call["MinCount"] for call in ec2.calls("RunInstances")] == ["3"] * 5
    assert len({one.private_address for one in made}) == len({one["InstanceId"] for one in ec2.living()}) == 3
    listed = {one.id: one.claim.machine for one in await cloud.instances("srv", "lab")}
    assert listed == {one.id: one.claim.machine for one in made}
    things = await cloud.costly_things("srv")
    assert sorted((thing.kind, thing.machine) for thing in things) == [
        *(("instance", name) for name in names), *(("volume", name) for name in names)
    ]  # fmt: skip


async def test_tag_of_a_launch_that_was_changed_by_hand_is_read_as_it_is(ec2: Ec2StandIn, cloud: AwsCloud) -> None:
    made = await cloud.launch(await order(ec2, cloud, "lab-1-2", "lab-1-3"))
    for tag in ("lab-[", "lab-1-[1-99999999]", "other"):
        tags = [{"Key": "headway:machine", "Value": tag}]
        ec2.client().create_tags(Resources=[made[1].id], Tags=tags)
        found = {one.id: one.claim.machine for one in await cloud.instances("srv", "lab")}
        assert found == {made[0].id: "lab-1-2", made[1].id: tag}


async def test_names_that_no_tag_can_hold_are_refused(ec2: Ec2StandIn, cloud: AwsCloud) -> None:
    with pytest.raises(Rejected, match="can't be launched together"):
        await cloud.launch(await order(ec2, cloud, *(f"lab-{leaf}-{2 * leaf}" for leaf in range(60))))
    assert ec2.living() == []


async def test_instance_says_from_when_to_when_it_ran_and_at_what_price(ec2: Ec2StandIn, cloud: AwsCloud) -> None:
    (made,) = await cloud.launch(await order(ec2, cloud, usd_per_hour=Decimal("0.320")))
    (running,) = await cloud.instances("srv", "lab")
    assert (running.ended_at, running.usd_per_hour) == (0.0, Decimal("0.32"))
    await cloud.terminate([made.id])
    (ended,) = await cloud.instances("srv", "lab")
    assert 0 <= ended.ended_at - ended.launched_at < 60
    ec2.client().create_tags(Resources=[made.id], Tags=[{"Key": "headway:usd-per-hour", "Value": "cheap"}])
    assert (await cloud.instances("srv", "lab"))[0].usd_per_hour == 0


async def test_price_that_is_not_known_is_no_tag(ec2: Ec2StandIn, cloud: AwsCloud) -> None:
    await cloud.launch(await order(ec2, cloud, usd_per_hour=Decimal(0)))
    assert "headway:usd-per-hour" not in {tag["Key"] for tag in ec2.living()[0]["Tags"]}


async def test_console_launches_beside_headway(ec2: Ec2StandIn, cloud: AwsCloud) -> None:
    """What a person launches without a network of Headway's is neither listed nor ended."""
    await cloud.launch(await order(ec2, cloud))
    place = {"ImageId": image(ec2), "MinCount": 1, "MaxCount": 1, "InstanceType": "m5.large"}
    strange = ec2.client().run_instances(**place, ClientToken="strange")["Instances"][0]["InstanceId"]
    assert strange in {one["InstanceId"] for one in ec2.living()}
    assert strange not in {one.id for one in await cloud.instances("srv")}
    assert strange not in {thing.id for thing in await cloud.costly_things("srv")}
