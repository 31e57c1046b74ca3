"""CloudApi: everything that Headway needs from a cloud."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Protocol

from headway.domain.machines.cloud_settings import CloudSettings
from headway.domain.machines.offer import Offer, PurchaseOption
from headway.domain.machines.rented import CloudNetwork, Instance, InstanceClaim, Quota, RentedThing
from headway.domain.slurm.hostlist import compress
from headway.providers.base import ReclaimNotice


@dataclass(frozen=True, slots=True)
class LaunchOrder:
    """The data that a cloud needs to launch instances: all of them in one zone, or none. Two orders with the same token are
    equal in all fields."""

    claims: tuple[InstanceClaim, ...]  # one an instance, in slot order and with the same number
    offer: Offer  # the type, the zone, and how it is bought
    image: str
    user_data: str = field(repr=False)  # it holds a private key
    subnet: str
    groups: tuple[str, ...]
    address: str  # its address in the subnet; "" = the cloud chooses, as it must for several instances
    public_address: bool
    disk_gib: int
    usd_per_hour: Decimal  # price of one instance, for its tags; 0 = not known
    ends_when_off: bool  # it ends when its system is shut down; otherwise it keeps its disk

    @property
    def machines(self) -> str:
        """The names of the machines as a host list, which the tags of all instances have."""
        return compress(claim.machine for claim in self.claims)

    @property
    def token(self) -> str:
        """The token of the launch: a cloud answers two launches with one token with the same instances."""
        first = self.claims[0]
        text = "/".join((first.server, first.cluster, self.machines, str(first.number)))
        return hashlib.sha256(text.encode()).hexdigest()


class CloudApi(Protocol):
    """One region of a cloud. All methods raise a CloudRefusal (providers.cloud.refusals), Unreachable if the cloud does
    not answer, and Unanswered if it is not known whether the request was carried out."""

    async def zones(self, settings: CloudSettings) -> tuple[str, ...]:
        """Returns the zones in which the cluster's machines may be, in the order in which they are tried: those of the
        file's subnets or of the file, else all that are open."""
        ...

    async def offers(self, types: Sequence[str], zones: Sequence[str], purchase: PurchaseOption) -> tuple[Offer, ...]:
        """Returns an offer for each type and zone in which it is sold, in the order of `types`, then `zones`.
        A price of 0 is not known."""
        ...

    async def quota(self, offer: Offer) -> Quota | None:
        """Returns the limit that holds for the offer; None if it is not known."""
        ...

    async def find_image(self, debian: str) -> str:
        """Returns the id of the newest public or official image of a Debian release ("13")."""
        ...

    async def find_network(self, server: str, cluster: str, settings: CloudSettings) -> CloudNetwork | None:
        """Returns the cluster's network, None if a part of it does not exist yet."""
        ...

    async def make_network(
        self, server: str, cluster: str, settings: CloudSettings, ssh_from: Sequence[str], others: Sequence[str] = ()
    ) -> CloudNetwork:
        """Creates what is missing of the cluster's network. Idempotent. `ssh_from`: networks that may use SSH; () =
        all. `others`: addresses of the cluster's machines elsewhere, which may reach all ports."""
        ...

    async def remove_network(self, server: str, cluster: str) -> None:
        """Deletes what `make_network` created. Does nothing if it is gone."""
        ...

    async def launch(self, order: LaunchOrder) -> tuple[Instance, ...]:
        """Launches an instance for each claim and returns them in that order. A repeated order returns the instances of the
        first one, whatever their state."""
        ...

    async def add_public_address(self, instance: Instance) -> None:
        """Gives a running instance a public address, where the cloud gives none at the launch. Idempotent."""
        ...

    async def instances(self, server: str, cluster: str = "") -> tuple[Instance, ...]:
        """Returns the instances with this server's tags, and with the cluster's if one is given; also those that ended a
        short while ago. An instance may be missing for some seconds after its launch."""
        ...

    async def describe(self, instance: str) -> Instance | None:
        """Returns one instance by its id, None if the cloud does not know it."""
        ...

    async def console(self, instance: str) -> str:
        """Returns the text of an instance's console, or its end; "" if the cloud has none yet."""
        ...

    async def terminate(self, instances: Sequence[str]) -> None:
        """Ends these instances and deletes their disks. Does nothing for those that are gone."""
        ...

    async def start(self, instance: str) -> None:
        """Starts a stopped instance."""
        ...

    async def stop(self, instance: str, *, at_once: bool) -> None:
        """Stops an instance, which keeps its disk and its address in the subnet. `at_once`: without a shutdown."""
        ...

    async def costly_things(self, server: str) -> tuple[RentedThing, ...]:
        """Returns everything with this server's tags that costs money: instances, disks, addresses."""
        ...

    async def delete_things(self, things: Sequence[RentedThing]) -> None:
        """Deletes volumes and addresses that belong to no instance."""
        ...

    async def notices(self, instances: Sequence[Instance]) -> tuple[ReclaimNotice, ...]:
        """Returns the cloud's notices that it takes one of these instances back."""
        ...
