"""MixedProvider gives each machine to its own provider, and mixes neither lists nor addresses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from headway.catalog.providers import AWS, SSH
from headway.domain.cluster import Host
from headway.providers.cloud.provider import CloudProvider
from headway.providers.mixed.provider import MixedProvider
from headway.providers.registry import open_providers
from headway.providers.ssh.machine_records import ClaimedHost, HostRecords
from headway.providers.ssh.provider import SshProvider
from tests.support.cloud.fake_cloud import FakeCloud
from tests.support.cloud.provider_site import SETTINGS, Site

OWN, RENTED = "lab-1-1", "lab-1-2"
HOSTS = (Host("lab-head", "192.0.2.10"), Host(OWN, "192.0.2.11"))


class Mixed(Site):
    """A cluster with one owned and one rented node; the owned ones are claimed."""

    provider: MixedProvider  # type: ignore[assignment]

    def start_again(self) -> None:
        async def sleep(seconds: float) -> None:
            self.now += seconds

        cloud = CloudProvider(AWS, self.folder, SETTINGS, self.cloud, lambda: self.now, sleep)
        self.provider = MixedProvider(SshProvider(self.folder, HOSTS), cloud)
        (group,) = self.cluster.groups
        groups = (
            replace(group, name="own", nodes=1, most=1, slots=(OWN,)),
            replace(group, name="more", nodes=0, most=1, slots=(RENTED,), idle_s=60, provider=AWS),
        )
        self.cluster = replace(self.cluster, provider=SSH, hosts=HOSTS, groups=groups)
        for host in HOSTS:
            HostRecords(self.folder).pin_host_key("lab", host.name, ClaimedHost(host, "ssh-ed25519 AAAA"))


async def test_machine_is_listed_once_and_handled_by_its_own_provider(tmp_path: Path) -> None:
    site = Mixed(tmp_path)
    assert [machine.name for machine in await site.provider.list("lab")] == [OWN, "lab-head"]
    await site.take(RENTED)
    machines = {machine.name: machine for machine in await site.provider.list("lab")}
    assert sorted(machines) == [OWN, RENTED, "lab-head"]
    assert machines[OWN].address == "192.0.2.11"
    place = await site.provider.place(site.cluster)
    assert place.addresses[OWN] == "192.0.2.11"
    assert place.addresses[RENTED] == site.cloud.living[0].private_address
    assert set(await site.provider.inventory(site.cluster)) == {"lab-head", OWN, RENTED}
    assert await site.provider.replaced("lab") == frozenset()
    await site.provider.delete(machines[RENTED])
    assert site.cloud.living == []
    assert [machine.name for machine in await site.provider.list("lab")] == [OWN, "lab-head"]


@pytest.mark.parametrize("down", [True, False])
async def test_cloud_that_is_no_longer_in_the_file_stays_until_what_is_rented_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, down: bool
) -> None:
    site = Mixed(tmp_path)
    await site.take(RENTED)
    regions: list[str] = []

    def opens(region: str) -> FakeCloud:
        regions.append(region)
        return site.cloud

    monkeypatch.setattr("headway.providers.cloud.aws.cloud.AwsCloud", opens)
    cluster = replace(site.cluster, groups=site.cluster.groups[:1], cloud=None)
    assert not cluster.rents_machines
    provider = open_providers(cluster, tmp_path)
    assert regions == [SETTINGS.region]
    if down:
        await provider.release("lab", delete_data=False)
    else:
        (machine,) = [machine for machine in await provider.list("lab") if machine.name == RENTED]
        await provider.delete(machine)
    assert site.cloud.living == []
    assert isinstance(open_providers(cluster, tmp_path), SshProvider)


async def test_release_ends_rented_machines_and_keeps_owned_ones(tmp_path: Path) -> None:
    site = Mixed(tmp_path)
    await site.take(RENTED)
    assert await site.provider.release("lab", delete_data=False) == ("192.0.2.10:/srv/headway-state",)
    assert site.cloud.living == []
    assert await site.provider.list("lab") == ()
