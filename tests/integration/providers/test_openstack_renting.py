"""Machines rented from a stand-in of OpenStack: kills of the server and a lack of hosts leave one server per machine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headway.catalog.plans import load_catalogue
from headway.catalog.providers import OPENSTACK
from headway.domain.machines.cloud_settings import CloudSettings
from headway.errors import Unanswered, Unreachable
from headway.providers.cloud.openstack.cloud import OpenStackCloud
from headway.providers.cloud.openstack.session import OpenStackSession
from headway.providers.cloud.provider import CloudProvider
from headway.providers.cloud.refusals import CloudRefusal, Rejected
from tests.support.cloud.openstack_stand_in import REGION, OpenStackStandIn, openstack_stand_in, use_openstack
from tests.support.cloud.provider_site import HEAD, NODE, PAIR, Killed, Site
from tests.support.clusters import builders

SETTINGS = CloudSettings(REGION, types={"cpu-64": ("cpu.64", "small.2")}, head_types=("head.4",))


class OpenStackSite(Site):
    """A provider with OpenStack, a cluster and a state folder."""

    def __init__(self, folder: Path, settings: CloudSettings = SETTINGS) -> None:
        self.wanted = settings
        super().__init__(folder)
        self.cluster = builders.cluster(
            name="lab", nodes=2, spares=0, plan=load_catalogue()["cpu-64"], provider=OPENSTACK
        )

    def start_again(self) -> None:
        async def sleep(seconds: float) -> None:
            self.now += seconds

        cloud = OpenStackCloud(self.wanted, lambda: self.now, sleep)
        self.provider = CloudProvider(OPENSTACK, self.folder, self.wanted, cloud, lambda: self.now, sleep)


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


def machines(nova: OpenStackStandIn) -> list[str]:
    return sorted(row["metadata"]["headway:machine"] for row in nova.living())


async def test_server_killed_after_any_request_rents_one_machine_with_one_address(
    nova: OpenStackStandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = OpenStackSession.call
    for last in range(1, 100):
        nova.reset()
        site, left = OpenStackSite(tmp_path / str(last)), [last]

        async def dies(*given: Any, left: list[int] = left, **named: Any) -> Any:
            answer = await call(*given, **named)
            left[0] -= 1
            if left[0] == 0:
                raise Killed
            return answer

        monkeypatch.setattr(OpenStackSession, "call", dies)
        try:
            await site.take()
            break
        except Killed:
            pass
        site.start_again()
        await site.take()
        assert (machines(nova), len(nova.neutron.rows["floatingips"])) == ([NODE], 1), last
        assert [one.name for one in await site.provider.list("lab")] == [NODE]
    else:
        pytest.fail("renting never ends")
    assert last > 20


async def test_next_zone_then_next_flavor_is_tried_and_nothing_is_left(nova: OpenStackStandIn, tmp_path: Path) -> None:
    site = OpenStackSite(tmp_path)
    nova.full = {("cpu.64", "az-a"), ("cpu.64", "az-b")}
    await site.rent_together(*PAIR)
    assert {row["flavor"]["original_name"] for row in nova.living()} == {"small.2"}
    assert len(nova.living()) == 2
    assert [said.partition(" now")[0] for said in site.told[:2]] == [
        "lab-1-[1-2]: az-a has no cpu.64", "lab-1-[1-2]: az-b has no cpu.64"
    ]  # fmt: skip


async def test_launch_that_fails_late_is_followed_by_another_try(nova: OpenStackStandIn, tmp_path: Path) -> None:
    site = OpenStackSite(tmp_path)
    nova.reads_to_build = 10_000
    with pytest.raises(Unreachable, match="does not run after 300 s: it is starting"):
        await site.rent()
    (late,) = nova.living()
    nova.reads_to_build, nova.full = 1, {("cpu.64", "az-a")}  # Nova finds no host for it in the end
    site.start_again()
    await site.rent()
    assert late["id"] not in nova.servers
    assert [row["OS-EXT-AZ:availability_zone"] for row in nova.living()] == ["az-b"]


async def test_quota_is_said_with_what_is_needed(nova: OpenStackStandIn, tmp_path: Path) -> None:
    site = OpenStackSite(tmp_path)
    nova.cores = 3
    with pytest.raises(CloudRefusal, match=r"the quota cores for head\.4 is 3, 4 are needed"):
        await site.rent(HEAD)


async def test_release_leaves_nothing(nova: OpenStackStandIn, tmp_path: Path) -> None:
    site = OpenStackSite(tmp_path)
    await site.rent(HEAD)
    await site.rent_together(*PAIR)
    assert machines(nova) == ["lab-1-[1-2]", "lab-1-[1-2]", HEAD]
    await site.provider.release("lab", delete_data=True)
    left = {kind: len(rows) for kind, rows in nova.neutron.rows.items() if rows}
    assert (nova.servers, nova.volumes, left) == ({}, {}, {"networks": 1}), "the external network stays"


async def test_machine_without_a_public_address_is_ended_and_no_other_is_rented(
    nova: OpenStackStandIn, tmp_path: Path
) -> None:
    site = OpenStackSite(tmp_path)
    nova.neutron.quotas["floatingips"] = 0
    with pytest.raises(CloudRefusal, match="was rented and ended again: the quota floatingip is used up"):
        await site.rent()
    assert len(nova.calls("POST", "/servers$")) == 1, "another offer has no address either"
    assert (nova.servers, await site.provider.begun("lab")) == ({}, frozenset())
    nova.neutron.quotas.clear()
    await site.take()
    assert len(nova.living()) == 1


@pytest.mark.parametrize("status", [403, 429])
@pytest.mark.parametrize(("method", "path"), [("GET", r"/servers/[0-9a-f-]{36}$"), ("POST", "/floatingips$")])
async def test_refusal_after_the_launch_keeps_the_try_and_the_next_apply_goes_on(
    nova: OpenStackStandIn, tmp_path: Path, method: str, path: str, status: int
) -> None:
    site = OpenStackSite(tmp_path)
    nova.refuse(method, path, status, "not now", times=3)
    with pytest.raises(Unanswered, match="not now"):
        await site.rent()
    nova.refusals.clear()
    assert await site.provider.begun("lab") == {NODE}, "its price counts"
    site.start_again()
    await site.take()
    assert (machines(nova), len(nova.calls("POST", "/servers$"))) == ([NODE], 1)


async def test_list_that_is_refused_after_a_launch_keeps_the_try(nova: OpenStackStandIn, tmp_path: Path) -> None:
    site = OpenStackSite(tmp_path)
    create = nova._create

    def created(asked: Any) -> Any:
        nova.refuse("GET", "/servers/detail$", 429, "not now", times=3)
        return create(asked)

    nova._create = created  # type: ignore[method-assign]
    try:
        with pytest.raises(Unanswered, match="not now"):
            await site.rent()
    finally:
        del nova._create
    site.start_again()
    await site.take()
    assert (machines(nova), len(nova.calls("POST", "/servers$"))) == ([NODE], 1)


async def test_cloud_without_routers_ends_what_it_rents(nova: OpenStackStandIn, tmp_path: Path) -> None:
    nova.neutron.missing = {"routers", "floatingips"}
    network = nova.neutron.add("networks", {"name": "provider"})
    subnet = nova.neutron.add("subnets", {"name": "provider", "network_id": network["id"], "cidr": "10.9.0.0/16"})
    site = OpenStackSite(tmp_path, replace(SETTINGS, subnets=(subnet["id"],), public_addresses=False))
    await site.take(HEAD)
    await site.take()
    assert await site.provider.unclaimed("lab") == ()
    await site.provider.give_up("lab", NODE)
    assert machines(nova) == [HEAD]
    await site.provider.release("lab", delete_data=True)
    assert nova.servers == {}


async def test_server_is_ended_while_neutron_fails(nova: OpenStackStandIn, tmp_path: Path) -> None:
    site = OpenStackSite(tmp_path)
    await site.take()
    nova.refuse("GET", "/network/", 503, "away", times=100)
    await site.provider.give_up("lab", NODE)
    assert nova.servers == {}
    nova.refusals.clear()
    (left,) = await site.provider.unclaimed("lab")
    await site.provider.end_things([left])
    assert nova.neutron.rows["floatingips"] == {}


async def test_locked_server_does_not_keep_the_others(nova: OpenStackStandIn, tmp_path: Path) -> None:
    site = OpenStackSite(tmp_path)
    await site.take(HEAD)
    await site.take()
    locked = nova.living()[0]["id"]
    nova.refuse("DELETE", f"/servers/{locked}$", 409, "Instance is locked")
    with pytest.raises(Rejected, match="Instance is locked"):
        await site.provider.release("lab", delete_data=True)
    assert list(nova.servers) == [locked]
    await site.provider.release("lab", delete_data=True)
    assert nova.servers == {}


@pytest.mark.parametrize("owner", ["ha_router_replicated_interface", "router_interface_distributed"])
async def test_release_removes_the_interfaces_of_all_kinds_of_routers(
    nova: OpenStackStandIn, tmp_path: Path, owner: str
) -> None:
    site = OpenStackSite(tmp_path)
    nova.neutron.router_owner = f"network:{owner}"
    await site.take()
    await site.provider.release("lab", delete_data=True)
    assert {kind: len(rows) for kind, rows in nova.neutron.rows.items() if rows} == {"networks": 1}


async def test_volume_that_stays_after_its_server_is_listed(nova: OpenStackStandIn, tmp_path: Path) -> None:
    site = OpenStackSite(tmp_path, replace(SETTINGS, disk_gib=500))
    await site.take()
    nova.keeps_volumes = True
    with pytest.raises(CloudRefusal, match=r"volume .* is error_deleting and can't be deleted"):
        await site.provider.release("lab", delete_data=True)
    (left,) = await site.provider.things()
    assert (left.kind, left.cluster, left.machine, left.state) == ("volume", "lab", NODE, "error_deleting")
    assert nova.neutron.rows["subnets"] == {}
    nova.volumes[left.id]["status"] = "error"  # the cloud's administrator has reset it
    await site.provider.release("lab", delete_data=True)
    assert nova.volumes == {}


async def test_volume_of_a_server_that_a_person_deleted_is_unclaimed(nova: OpenStackStandIn, tmp_path: Path) -> None:
    site = OpenStackSite(tmp_path, replace(SETTINGS, disk_gib=500))
    await site.rent_together(*PAIR)
    nova.keeps_volumes = True
    for row in nova.living():
        nova.delete(row["id"])
    assert {thing.machine for thing in await site.provider.things() if thing.kind == "volume"} == set(PAIR)
    for volume in nova.volumes.values():
        volume["status"] = "deleting"
    assert [thing for thing in await site.provider.things() if thing.kind == "volume"] == []


async def test_volume_that_a_person_attached_is_left_alone(nova: OpenStackStandIn, tmp_path: Path) -> None:
    site = OpenStackSite(tmp_path)
    await site.take()
    (row,) = nova.living()
    row["os-extended-volumes:volumes_attached"].append({"id": "data", "delete_on_termination": False})
    (own,) = nova.volumes.values()
    nova.volumes["data"] = {**own, "id": "data", "metadata": {}}
    await site.provider.give_up("lab", NODE)
    assert await site.provider.unclaimed("lab") == ()
    await site.provider.release("lab", delete_data=True)
    assert {name: one["metadata"] for name, one in nova.volumes.items()} == {"data": {}}


async def test_ssh_from_a_single_address_is_let_in_once(nova: OpenStackStandIn, tmp_path: Path) -> None:
    site = OpenStackSite(tmp_path)
    site.cluster = replace(site.cluster, firewall=replace(site.cluster.firewall, ssh_from=("203.0.113.7",)))
    for _ in range(2):
        await site.provider.prepare(site.cluster)
    rules = nova.neutron.rows["security-group-rules"].values()
    assert [row["remote_ip_prefix"] for row in rules if row["protocol"] == "tcp"] == ["203.0.113.7/32"]
    nova.refuse("POST", "/security-group-rules$", 409, "Security group rule already exists.", "SecurityGroupRuleExists")
    await site.rent()  # another server of this state folder made it at the same time


@pytest.mark.parametrize(
    "fault",
    [
        "Build of instance 1 aborted: Fixed IP address 10.64.0.16 is already in use on instance 2.",
        "Build of instance 1 aborted: rule:create_port and (rule:create_port:fixed_ips and "
        "rule:create_port:fixed_ips:ip_address) is disallowed by policy",
    ],
)
async def test_address_that_fails_while_nova_builds_is_left_to_the_cloud(
    nova: OpenStackStandIn, tmp_path: Path, fault: str
) -> None:
    site = OpenStackSite(tmp_path)
    nova.address_fault = fault
    await site.take()
    asked = [body["server"]["networks"][0] for body in nova.calls("POST", "/servers$")]
    assert ["fixed_ip" in network for network in asked] == [True, False]
    assert machines(nova) == [NODE]


async def test_server_that_is_off_is_paid_for_until_it_is_gone(nova: OpenStackStandIn, tmp_path: Path) -> None:
    site = OpenStackSite(tmp_path)
    await site.take()
    (row,) = nova.living()
    for status in ("SHUTOFF", "ACTIVE", "ERROR"):
        row["status"] = status
        site.now += 60
        assert [one.ended_at for one in await site.provider.rentals("lab")] == [None], status
    nova.delete(row["id"])
    site.now += 60
    assert await site.provider.rentals("lab") == ()


async def test_server_that_failed_late_is_deleted_by_the_next_apply(nova: OpenStackStandIn, tmp_path: Path) -> None:
    site = OpenStackSite(tmp_path)
    nova.cores = 64  # one machine
    for ends in (site.rent, lambda: site.provider.give_up("lab", NODE)):
        nova.reads_to_build = 10_000
        nova.refuse("GET", r"/servers/[0-9a-f-]{36}$", 429, "not now", times=3)
        with pytest.raises(Unanswered, match="not now"):
            await site.rent()
        (late,) = nova.living()
        late |= {
            "status": "ERROR",
            "OS-EXT-STS:task_state": None,
            "fault": {"message": "Build of instance 1 aborted: x"},
        }
        nova.reads_to_build = 1
        site.start_again()
        await ends()
        assert late["id"] not in nova.servers
        await site.provider.give_up("lab", NODE)
        assert nova.servers == {}
