"""A CloudProvider with a cloud, a cluster and a state folder, for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headway.catalog.plans import load_catalogue
from headway.catalog.providers import AWS
from headway.cluster.keys.secrets import new_key, public_key
from headway.domain.cluster import Cluster
from headway.domain.machines.cloud_settings import CloudSettings
from headway.domain.machines.machine import MachineRequest
from headway.providers.cloud.provider import CloudProvider
from tests.support.cloud.fake_cloud import FakeCloud
from tests.support.clusters import builders

SETTINGS = CloudSettings("r", types={"cpu-64": ("big", "small")}, head_types=("little",), image="image")
KEY = new_key()
NODE, HEAD = "lab-1-1", "lab-head"
PAIR = (NODE, "lab-1-2")


class Killed(BaseException):
    """The server was killed."""


class Site:
    """A provider with a cloud, a cluster and a state folder."""

    def __init__(self, folder: Path, **fields: Any) -> None:
        self.folder = folder
        self.cloud = FakeCloud()
        self.now = 1000.0
        self.settings = SETTINGS
        self.cluster: Cluster = builders.cluster(
            name="lab", nodes=2, spares=0, plan=load_catalogue()["cpu-64"], provider=AWS, **fields
        )
        self.told: list[str] = []
        self.start_again()

    def start_again(self) -> None:
        """Starts another server on the same state folder."""

        async def sleep(seconds: float) -> None:
            self.now += seconds

        self.provider = CloudProvider(AWS, self.folder, self.settings, self.cloud, lambda: self.now, sleep)

    async def report(self, step: str, text: str, **_: object) -> None:
        self.told.append(f"{step}: {text}")

    def request(self, name: str) -> MachineRequest:
        return MachineRequest("lab", name, "", "debian13", KEY, public_key(KEY), public_key(KEY), head=name == HEAD)

    async def rent(self, name: str = NODE) -> Any:
        await self.provider.prepare(self.cluster)
        offers = await self.provider.offers(self.cluster, name)
        return await self.provider.rent(self.cluster, [self.request(name)], offers, self.report)

    async def rent_together(self, *names: str) -> Any:
        await self.provider.prepare(self.cluster)
        offers = await self.provider.offers(self.cluster, names[0])
        return await self.provider.rent(self.cluster, [self.request(name) for name in names], offers, self.report)

    async def take(self, name: str = NODE) -> Any:
        await self.rent(name)
        await self.provider.settle("lab", name, " ".join(public_key(KEY).split()[:2]))
        return await self.provider.create(self.request(name))


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)
