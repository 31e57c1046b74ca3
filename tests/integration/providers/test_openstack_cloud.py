"""OpenStackCloud against a stand-in of Keystone, Nova, Neutron, Glance and Cinder: launches, lists, ends, and refusals."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from headway.domain.machines.cloud_settings import CloudSettings
from headway.domain.machines.offer import PurchaseOption
from headway.domain.machines.rented import InstanceClaim, InstanceState
from headway.errors import Unanswered, Unreachable
from headway.providers.cloud.api import LaunchOrder
from headway.providers.cloud.openstack.cloud import OpenStackCloud
from headway.providers.cloud.refusals import AddressTaken, AuthFailed, NoCapacity, QuotaExceeded, Rejected, Throttled
from tests.support.cloud.openstack_stand_in import (
    IMAGE,
    REGION,
    ZONES,
    OpenStackStandIn,
    openstack_stand_in,
    use_openstack,
)

SETTINGS = CloudSettings(REGION, network="10.64.0.0/20", external_network="")
ZONE, TYPE = ZONES[0], "cpu.64"


@pytest.fixture(scope="module")
def server() -> Iterator[OpenStackStandIn]:
    with openstack_stand_in() as made:
        yield made


@pytest.fixture
def nova(server: OpenStackStandIn, monkeypatch: pytest.MonkeyPatch) -> Iterator[OpenStackStandIn]:
    server.reset()
    use_openstack(monkeypatch, server.url)
    yield server
    assert server.unknown == []


class Clock:
    """A clock that only sleeping moves on."""

    def __init__(self) -> None:
        self.now = 0.0

    async def sleep(self, seconds: float) -> None:
        self.now += seconds


def new_cloud(settings: CloudSettings = SETTINGS) -> OpenStackCloud:
    clock = Clock()
    return OpenStackCloud(settings, lambda: clock.now, clock.sleep)


@pytest.fixture
def cloud(nova: OpenStackStandIn) -> OpenStackCloud:
    return new_cloud()


def claims(*machines: str, number: int = 1) -> tuple[InstanceClaim, ...]:
    return tuple(InstanceClaim("srv", "lab", machine, number) for machine in machines)


async def order(cloud: OpenStackCloud, *machines: str, number: int = 1, **fields: Any) -> LaunchOrder:
    network = await cloud.make_network("srv", "lab", SETTINGS, ())
    offer = (await cloud.offers([TYPE], [ZONE], PurchaseOption.ON_DEMAND))[0]
    made = LaunchOrder(
        claims=claims(*(machines or ("lab-1-1",)), number=number),
        offer=offer,
        image=IMAGE,
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


async def test_flavors_are_offers_in_each_open_zone(cloud: OpenStackCloud) -> None:
    zones = await cloud.zones(SETTINGS)
    assert zones == ZONES
    found = await cloud.offers([TYPE, "gpu.h100x8", "none"], zones, PurchaseOption.ON_DEMAND)
    assert [(one.instance_type, one.zone) for one in found] == [
        (TYPE, "az-a"), (TYPE, "az-b"), ("gpu.h100x8", "az-a"), ("gpu.h100x8", "az-b")
    ]  # fmt: skip
    assert (found[2].gpu_type, found[2].gpus, found[2].cpus, found[2].memory_mib) == ("h100", 8, 96, 1048576)
    assert {one.price_usd_per_node_hour for one in found} == {0}, "OpenStack says no prices"
    assert await cloud.offers([TYPE], zones, PurchaseOption.SPOT) == ()


async def test_quota_of_the_project_counts_vcpus(nova: OpenStackStandIn, cloud: OpenStackCloud) -> None:
    offer = (await cloud.offers([TYPE], [ZONE], PurchaseOption.ON_DEMAND))[0]
    assert await cloud.quota(offer) is None, "it is unlimited"
    nova.cores = 100
    await cloud.launch(await order(cloud))
    quota = await cloud.quota(offer)
    assert quota is not None
    assert (quota.name, quota.limit, quota.used) == ("cores", 100, 64)


async def test_image_is_found_by_its_properties_then_by_its_name(cloud: OpenStackCloud) -> None:
    assert await cloud.find_image("13") == IMAGE
    assert (await cloud.find_image("12")).endswith("00c")
    with pytest.raises(Rejected, match=r"has no public image of Debian 11: give cloud\.image"):
        await cloud.find_image("11")


@pytest.mark.parametrize(
    "fields",
    [
        {"visibility": "private"},
        {"visibility": "shared"},
        {"image_type": "snapshot"},
        {"base_image_ref": IMAGE},
        {"instance_uuid": IMAGE},
        {"architecture": "aarch64"},
        {"hw_architecture": "aarch64"},
    ],
)
async def test_backup_of_a_server_or_image_of_other_processors_is_not_the_default(
    nova: OpenStackStandIn, cloud: OpenStackCloud, fields: dict[str, str]
) -> None:
    newest = {"id": "backup", "name": "backup of debian-13", "status": "active", "created_at": "2026-11-20T00:00:00Z"}
    nova.images.insert(0, {**newest, "os_distro": "debian", "os_version": "13", **fields})
    assert await cloud.find_image("13") == IMAGE


async def test_network_is_made_once_and_removed(nova: OpenStackStandIn, cloud: OpenStackCloud) -> None:
    rows = nova.neutron.rows
    assert await cloud.find_network("srv", "lab", SETTINGS) is None
    made = await cloud.make_network("srv", "lab", SETTINGS, ("203.0.113.0/24",), ("192.0.2.10",))
    assert set(made.subnets) == set(ZONES)
    assert {network for _, network in made.subnets.values()} == {"10.64.0.0/20"}
    assert await cloud.make_network("srv", "lab", SETTINGS, ("203.0.113.0/24",), ("192.0.2.10",)) == made
    assert [len(rows[kind]) for kind in ("networks", "subnets", "routers", "security-groups")] == [2, 1, 1, 1]
    await cloud.make_network("srv", "lab", SETTINGS, ("198.51.100.0/24",))
    let_in = [
        (rule["protocol"], rule["port_range_min"], rule["remote_ip_prefix"], rule["remote_group_id"])
        for rule in rows["security-group-rules"].values()
        if rule["direction"] == "ingress"
    ]
    assert sorted(let_in, key=str) == [("tcp", 22, "198.51.100.0/24", None), (None, None, None, made.groups[0])]
    for _ in range(2):
        await cloud.remove_network("srv", "lab")
        assert [len(rows[kind]) for kind in ("networks", "subnets", "routers", "security-groups", "ports")] == [
            1,
            0,
            0,
            0,
            0,
        ]


async def test_network_goes_on_after_a_kill_at_each_request(nova: OpenStackStandIn) -> None:
    """Each request that makes something is carried out, its answer is lost, and the next apply goes on."""
    made = ("networks", "subnets", "routers", "add_router_interface", "security-groups", "security-group-rules")
    for what in made:
        nova.losing[("PUT" if what == "add_router_interface" else "POST", what)] = 1
        with pytest.raises(Unanswered):
            await new_cloud().make_network("srv", "lab", SETTINGS, ())
    await new_cloud().make_network("srv", "lab", SETTINGS, ())
    counts = {kind: len(nova.neutron.rows[kind]) for kind in nova.neutron.rows}
    assert counts == {
        "networks": 2, "subnets": 1, "routers": 1, "ports": 1, "floatingips": 0, "security-groups": 1,
        "security-group-rules": 3,
    }  # fmt: skip


async def test_network_uses_the_subnet_of_the_file(nova: OpenStackStandIn, cloud: OpenStackCloud) -> None:
    theirs = await cloud.make_network("other", "theirs", SETTINGS, ())
    subnet = theirs.subnets[ZONE][0]
    settings = replace(SETTINGS, zones=(ZONE,), subnets=(subnet,))
    made = await cloud.make_network("srv", "lab", settings, ())
    assert made.subnets == {ZONE: (subnet, "10.64.0.0/20")}
    await cloud.remove_network("srv", "lab")
    assert subnet in nova.neutron.rows["subnets"]
    with pytest.raises(Rejected, match="there is no subnet nothing"):
        await cloud.make_network("srv", "lab", replace(settings, subnets=("nothing",)), ())


async def test_several_external_networks_must_be_chosen_from(nova: OpenStackStandIn, cloud: OpenStackCloud) -> None:
    nova.neutron.add("networks", {"name": "campus", "router:external": True})
    with pytest.raises(Rejected, match=r"external networks campus, public: give cloud\.external_network"):
        await cloud.make_network("srv", "lab", SETTINGS, ())
    assert await cloud.make_network("srv", "lab", replace(SETTINGS, external_network="public"), ())


async def test_launched_server_has_its_claim_and_is_listed_until_it_ends(
    nova: OpenStackStandIn, cloud: OpenStackCloud
) -> None:
    (made,) = await cloud.launch(await order(cloud, number=3, address="10.64.0.17"))
    assert (made.claim, made.state) == (InstanceClaim("srv", "lab", "lab-1-1", 3), InstanceState.RUNNING)
    assert (made.private_address, made.zone, made.usd_per_hour) == ("10.64.0.17", ZONE, Decimal("0.80"))
    assert [one.id for one in await cloud.instances("srv", "lab")] == [made.id]
    assert await cloud.instances("srv", "other") == ()
    assert await cloud.instances("elsewhere") == ()
    asked = nova.calls("POST", "/servers$")[0]["server"]
    assert (asked["config_drive"], asked["flavorRef"], asked["availability_zone"]) == (True, "id-of-cpu.64", ZONE)
    things = await cloud.costly_things("srv")
    assert sorted((one.kind, one.machine, one.description, one.number) for one in things) == [
        ("instance", "lab-1-1", TYPE, 3), ("volume", "lab-1-1", "64 GiB", 3)
    ], "the flavor has 20 GiB"  # fmt: skip
    await cloud.terminate([made.id, "0123"])
    assert await cloud.instances("srv", "lab") == ()
    assert await cloud.describe(made.id) is None
    assert await cloud.costly_things("srv") == ()
    assert nova.volumes == {}


async def test_flavor_with_a_disk_of_that_size_needs_no_volume(nova: OpenStackStandIn, cloud: OpenStackCloud) -> None:
    offer = (await cloud.offers(["head.4"], [ZONE], PurchaseOption.ON_DEMAND))[0]
    await cloud.launch(await order(cloud, offer=offer))
    assert nova.volumes == {}


async def test_public_address_is_given_once_and_ends_with_its_server(
    nova: OpenStackStandIn, cloud: OpenStackCloud
) -> None:
    (made,) = await cloud.launch(await order(cloud))
    assert made.public_address == ""
    nova.losing["POST", "floatingips"] = 1
    with pytest.raises(Unanswered):
        await cloud.add_public_address(made)
    for _ in range(2):
        await cloud.add_public_address(made)
    there = await cloud.describe(made.id)
    assert there is not None
    assert there.public_address.startswith("203.0.113.")
    assert ("address", "lab-1-1", "in-use") in {
        (one.kind, one.machine, one.state) for one in await cloud.costly_things("srv")
    }
    await cloud.terminate([made.id])
    assert nova.neutron.rows["floatingips"] == {}


async def test_address_whose_server_is_gone_is_listed_and_deleted(
    nova: OpenStackStandIn, cloud: OpenStackCloud
) -> None:
    (made,) = await cloud.launch(await order(cloud))
    await cloud.add_public_address(made)
    nova.delete(made.id)  # in the dashboard
    (left,) = await cloud.costly_things("srv")
    assert (left.kind, left.machine, left.state, left.number) == ("address", "lab-1-1", "available", 1)
    await cloud.delete_things([left])
    assert await cloud.costly_things("srv") == ()


async def test_same_claim_launches_once(nova: OpenStackStandIn, cloud: OpenStackCloud) -> None:
    wanted = await order(cloud)
    assert len({(await cloud.launch(wanted))[0].id for _ in range(3)}) == 1
    await cloud.launch(replace(wanted, claims=claims("lab-1-1", number=2)))
    assert len(nova.servers) == 2


async def test_launch_whose_answer_was_lost_is_found_by_its_metadata(
    nova: OpenStackStandIn, cloud: OpenStackCloud
) -> None:
    nova.losing["POST", "servers"] = 1
    wanted = await order(cloud)
    (made,) = await cloud.launch(wanted)
    assert made.claim == wanted.claims[0]
    assert len(nova.servers) == len(nova.calls("POST", "/servers$")) == 1


async def test_launch_that_nova_did_not_carry_out_is_repeated(nova: OpenStackStandIn, cloud: OpenStackCloud) -> None:
    nova.refuse("POST", "/servers$", 504, "timeout")
    wanted = await order(cloud)
    with pytest.raises(Unanswered, match="OpenStack's compute in RegionOne failed: timeout"):
        await cloud.launch(wanted)
    assert (await cloud.launch(wanted))[0].claim == wanted.claims[0]
    assert len(nova.servers) == 1


async def test_launch_that_was_carried_out_twice_keeps_one(nova: OpenStackStandIn, cloud: OpenStackCloud) -> None:
    wanted = await order(cloud)
    (made,) = await cloud.launch(wanted)
    twin = {**nova.servers[made.id], "id": "twin", "created": "2999-01-01T00:00:00Z"}
    nova.servers["twin"] = twin
    assert [one.id for one in await cloud.launch(wanted)] == [made.id]
    assert list(nova.servers) == [made.id]


async def test_servers_of_one_job_are_made_by_one_request_or_not_at_all(
    nova: OpenStackStandIn, cloud: OpenStackCloud
) -> None:
    names = ("lab-1-2", "lab-1-3", "lab-2-1")
    wanted = await order(cloud, *names, number=4)
    nova.full.add((TYPE, ZONE))
    with pytest.raises(NoCapacity, match=r"az-a has no cpu\.64 now: No valid host was found"):
        await cloud.launch(wanted)
    assert nova.servers == {}
    nova.full.clear()
    nova.losing["POST", "servers"] = 1
    made = await cloud.launch(wanted)
    assert tuple(one.claim for one in made) == claims(*names, number=4)
    assert [asked["server"]["min_count"] for asked in nova.calls("POST", "/servers$")] == [3, 3]
    assert len({one.private_address for one in made}) == 3
    assert {one.claim.machine for one in await cloud.instances("srv", "lab")} == set(names)
    del nova.servers[made[1].id]  # nova's API was killed between two of them
    made = await cloud.launch(wanted)
    assert tuple(one.claim for one in made) == claims(*names, number=4)
    assert len(nova.servers) == 3


async def test_server_that_builds_for_long_is_returned_as_it_is(nova: OpenStackStandIn, cloud: OpenStackCloud) -> None:
    nova.reads_to_build = 1000
    (made,) = await cloud.launch(await order(cloud))
    assert made.state is InstanceState.STARTING


async def test_server_that_failed_costs_until_it_is_deleted(nova: OpenStackStandIn, cloud: OpenStackCloud) -> None:
    nova.reads_to_build = 1000
    (made,) = await cloud.launch(await order(cloud))
    nova.full.add((TYPE, ZONE))
    nova.reads_to_build = 1
    there = await cloud.describe(made.id)
    assert there is not None
    assert (there.exists, there.lacked_capacity) == (False, True)
    failed = next(one for one in await cloud.costly_things("srv") if one.kind == "instance")
    assert failed.state == "failed"
    await cloud.delete_things([failed])
    assert nova.servers == {}


NOVA_QUOTA = "Quota exceeded for cores, ram: Requested 64, 262144, but already used 0, 0 of 20, 999999 cores, ram"


@pytest.mark.parametrize(
    ("status", "message", "kind", "error", "words"),
    [
        (403, NOVA_QUOTA, "", QuotaExceeded, "the quota cores for cpu.64 is 20, 64 are needed"),
        (403, "Maximum number of ports exceeded", "", QuotaExceeded, "the quota ports for cpu.64 is used up"),
        (403, "Policy doesn't allow os_compute_api:servers:create to be performed.", "", AuthFailed, "(compute 403)"),
        (429, "slow down", "", Throttled, "fewer requests than were sent: slow down"),
        (400, "The requested availability zone is not available", "", NoCapacity, "availability zone is not available"),
        (400, "Fixed IP address 10.64.0.17 is already in use on instance x.", "", AddressTaken, "already in use"),
        (400, "Invalid imageRef provided: x", "", Rejected, "Invalid imageRef provided: x (compute 400)"),
    ],
)
async def test_refusals_have_a_type_and_a_remedy(
    nova: OpenStackStandIn,
    cloud: OpenStackCloud,
    status: int,
    message: str,
    kind: str,
    error: type[Exception],
    words: str,
) -> None:
    wanted = await order(cloud)
    nova.refuse("POST", "/servers$", status, message, kind, times=3)
    with pytest.raises(error) as refused:
        await cloud.launch(wanted)
    assert words in str(refused.value)
    assert getattr(refused.value, "hint", "")
    assert nova.servers == {}


async def test_quota_of_the_network_is_named(nova: OpenStackStandIn, cloud: OpenStackCloud) -> None:
    nova.neutron.quotas["routers"] = 0
    with pytest.raises(QuotaExceeded, match="the quota router is used up"):
        await cloud.make_network("srv", "lab", SETTINGS, ())


async def test_short_throttling_is_waited_for(nova: OpenStackStandIn, cloud: OpenStackCloud) -> None:
    wanted = await order(cloud)
    nova.refuse("POST", "/servers$", 429, times=2, Retry_After="7")
    assert (await cloud.launch(wanted))[0].claim == wanted.claims[0]


async def test_reading_is_repeated_after_an_error(nova: OpenStackStandIn, cloud: OpenStackCloud) -> None:
    nova.refuse("GET", "/servers/detail$", 503, times=1)
    nova.losing["GET", "detail"] = 1
    assert await cloud.instances("srv") == ()


async def test_expired_token_is_replaced(nova: OpenStackStandIn, cloud: OpenStackCloud) -> None:
    assert await cloud.instances("srv") == ()
    nova.tokens.clear()
    await asyncio.gather(*(cloud.instances("srv") for _ in range(5)))
    assert len(nova.calls("POST", "/v3/auth/tokens$")) == 2


async def test_credentials_that_were_revoked_are_said(nova: OpenStackStandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OS_PASSWORD", "old")
    cloud = new_cloud()
    with pytest.raises(AuthFailed, match="requires authentication"):
        await cloud.instances("srv")
    use_openstack(monkeypatch, nova.url)
    assert await cloud.instances("srv") == (), "credentials are read again after a refusal"
    monkeypatch.delenv("OS_AUTH_URL")
    with pytest.raises(AuthFailed, match=r"set OS_CLOUD and write clouds\.yaml"):
        await new_cloud().instances("srv")


async def test_application_credential_of_clouds_yaml_signs_in(
    nova: OpenStackStandIn, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    for name in ("OS_AUTH_URL", "OS_USERNAME", "OS_PASSWORD", "OS_PROJECT_NAME"):
        monkeypatch.delenv(name)
    file = tmp_path / "clouds.yaml"
    auth = f"{{auth_url: '{nova.url}/v3', application_credential_id: app}}"
    file.write_text(f"clouds: {{lab: {{auth_type: v3applicationcredential, auth: {auth}}}}}\n")
    (tmp_path / "secure.yaml").write_text(
        "clouds: {lab: {auth: {application_credential_secret: secret-of-the-stand-in}}}\n"
    )
    monkeypatch.setenv("OS_CLOUD", "lab")
    monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(file))
    assert await new_cloud().instances("srv") == ()


async def test_other_region_is_named(nova: OpenStackStandIn) -> None:
    with pytest.raises(Rejected, match="no region RegionTwo with public endpoints; it has RegionOne"):
        await new_cloud(replace(SETTINGS, region="RegionTwo")).instances("srv")


async def test_cloud_without_answer_is_unreachable(monkeypatch: pytest.MonkeyPatch) -> None:
    use_openstack(monkeypatch, "http://127.0.0.1:9")
    with pytest.raises(Unreachable, match="does not answer"):
        await new_cloud().instances("srv")


async def test_stop_and_start_keep_the_server(nova: OpenStackStandIn, cloud: OpenStackCloud) -> None:
    (made,) = await cloud.launch(await order(cloud))
    for _ in range(2):
        await cloud.stop(made.id, at_once=True)
    there = await cloud.describe(made.id)
    assert there is not None
    assert (there.state, there.exists) == (InstanceState.STOPPED, True)
    for _ in range(2):
        await cloud.start(made.id)
    assert (await cloud.instances("srv"))[0].state is InstanceState.RUNNING


async def test_console_of_a_server_and_of_one_that_is_gone(nova: OpenStackStandIn, cloud: OpenStackCloud) -> None:
    (made,) = await cloud.launch(await order(cloud))
    assert (await cloud.console(made.id)).startswith("Debian GNU/Linux 13 lab-1-1 ttyS0")
    assert await cloud.console("gone") == ""


async def test_name_that_a_person_changed_leaves_the_names_of_all(
    nova: OpenStackStandIn, cloud: OpenStackCloud
) -> None:
    made = await cloud.launch(await order(cloud, "lab-1-2", "lab-1-3"))
    nova.servers[made[1].id]["name"] = "mine"
    found = {one.id: one.claim.machine for one in await cloud.instances("srv", "lab")}
    assert found == {made[0].id: "lab-1-2", made[1].id: "lab-1-[2-3]"}


async def test_what_a_person_made_is_left_alone(nova: OpenStackStandIn, cloud: OpenStackCloud) -> None:
    (made,) = await cloud.launch(await order(cloud))
    nova.servers["strange"] = {**nova.servers[made.id], "id": "strange", "metadata": {}}
    nova.neutron.add("floatingips", {"floating_ip_address": "203.0.113.9", "port_id": None, "description": "mine"})
    assert "strange" not in {one.id for one in await cloud.instances("srv")}
    assert {one.kind for one in await cloud.costly_things("srv")} == {"instance", "volume"}
    await cloud.terminate([made.id])
    assert list(nova.servers) == ["strange"]
    assert len(nova.neutron.rows["floatingips"]) == 1


async def test_list_of_many_servers_has_pages(nova: OpenStackStandIn, cloud: OpenStackCloud) -> None:
    (made,) = await cloud.launch(await order(cloud))
    nova.servers |= {f"{n}": {**nova.servers[made.id], "id": f"{n}"} for n in range(1100)}
    assert len(await cloud.instances("srv")) == 1101


async def test_lists_of_a_cloud_with_short_pages_are_read_to_their_end(
    nova: OpenStackStandIn, cloud: OpenStackCloud
) -> None:
    nova.page = 1
    wanted = await order(cloud, offer=(await cloud.offers(["small.2"], [ZONE], PurchaseOption.ON_DEMAND))[0])
    first = await cloud.launch(replace(wanted, claims=claims("lab-1-2"), disk_gib=500))
    second = await cloud.launch(replace(wanted, disk_gib=500))
    assert [one.id for one in await cloud.instances("srv")] == [first[0].id, second[0].id]
    assert len([thing for thing in await cloud.costly_things("srv") if thing.kind == "volume"]) == 2
