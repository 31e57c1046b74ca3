"""Machines rented from a stand-in of OpenStack: kills of the server and a lack of hosts leave one server per machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headway.catalog.plans import load_catalogue
from headway.catalog.providers import OPENSTACK
from headway.domain.machines.cloud_settings import CloudSettings
from headway.errors import Unreachable
from headway.providers.cloud.openstack.cloud import OpenStackCloud
from headway.providers.cloud.openstack.session import OpenStackSession
from headway.providers.cloud.provider import CloudProvider
from headway.providers.cloud.refusals import CloudRefusal
from tests.support.cloud.openstack_stand_in import REGION, OpenStackStandIn, openstack_stand_in, use_openstack
from tests.support.cloud.provider_site import HEAD, NODE, PAIR, Killed, Site
from tests.support.clusters import builders

SETTINGS = CloudSettings(REGION, types={"cpu-64": ("cpu.64", "small.2")}, head_types=("head.4",))


class OpenStackSite(Site):
    """A provider with OpenStack, a cluster and a state folder."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.cluster = builders.cluster(
            name="lab", nodes=2, spares=0, plan=load_catalogue()["cpu-64"], provider=OPENSTACK
        )

    def start_again(self) -> None:
        async def sleep(seconds: float) -> None:
            self.now += seconds

        cloud = OpenStackCloud(SETTINGS, lambda: self.now, sleep)
        self.provider = CloudProvider(OPENSTACK, self.folder, SETTINGS, cloud, lambda: self.now, sleep)


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
