"""Machines that are rented from a cloud: who an instance belongs to, and what the cloud reports about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum

from headway.domain.machines.offer import PurchaseOption


@dataclass(frozen=True, slots=True)
class InstanceClaim:
    """Who an instance belongs to, as its tags say. `number` counts the tries to rent a machine for the slot."""

    server: str  # id of the server's state folder
    cluster: str
    machine: str  # head or slot name
    number: int


class InstanceState(StrEnum):
    """State of an instance. STOPPED ones cost their disk only, unless the provider charges for them while they are off; ENDED
    ones nothing."""

    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"
    ENDING = "ending"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Instance:
    """One rented machine, as the cloud reports it."""

    id: str
    state: InstanceState
    claim: InstanceClaim
    instance_type: str
    zone: str
    purchase: PurchaseOption = PurchaseOption.ON_DEMAND
    private_address: str = ""
    public_address: str = ""
    launched_at: float = 0.0  # unix seconds; of its last start
    why: str = ""  # why it stopped or ended, in the cloud's words
    ended_at: float = 0.0  # when it stopped or ended, unix seconds; 0 = it runs, or the cloud does not say
    usd_per_hour: Decimal = Decimal(0)  # as its tags say; 0 = they do not
    taken_back: bool = False  # the cloud ended it because it wanted it back
    lacked_capacity: bool = False  # the cloud ended it before it ran, because it had no machine for it

    @property
    def exists(self) -> bool:
        """Returns whether the machine has a disk: it runs, or can be started."""
        return self.state not in (InstanceState.ENDING, InstanceState.ENDED)


@dataclass(frozen=True, slots=True)
class Rental:
    """One time in which an instance ran, as the cloud reports it: what is paid for. Where the provider charges for machines that
    are off too, the time in which it existed. Times are whole unix seconds."""

    cloud: str  # as in Offer.cloud
    instance: str
    launched_at: int
    ended_at: int | None  # None: it is paid for now; 0: it is not, and the cloud does not say since when
    machine: str  # head or slot name; "" = its tags name none
    instance_type: str
    zone: str
    purchase: PurchaseOption
    usd_per_hour: Decimal | None = None  # None: the price is not known
    taken_back: bool = False  # a spot machine that the cloud took back, or announced to take back


@dataclass(frozen=True, slots=True)
class SeenPrice:
    """The price that a cloud asked for one type in one zone, from `since` until `seen_at` at least, unix seconds."""

    cloud: str
    zone: str
    instance_type: str
    purchase: PurchaseOption
    usd_per_hour: Decimal
    since: int
    seen_at: int


@dataclass(frozen=True, slots=True)
class RentedThing:
    """Something that costs money at a cloud."""

    id: str
    kind: str  # "instance" | "volume" | "address"
    cluster: str
    machine: str  # "" if its tags name none
    since: float  # unix seconds; 0 = the cloud does not say
    description: str  # instance type, or size
    zone: str = ""
    state: str = ""
    usd_per_hour: Decimal | None = None  # None: the price is not known
    number: int = 0  # the try of its tags; 0 = they name none


@dataclass(frozen=True, slots=True)
class Quota:
    """A limit of the account, in the unit that the cloud counts."""

    name: str
    limit: float
    used: float


@dataclass(frozen=True, slots=True)
class CloudNetwork:
    """The network of a cluster at a cloud: one subnet a zone."""

    subnets: Mapping[str, tuple[str, str]]  # zone -> (id, network "10.64.0.0/20")
    groups: tuple[str, ...] = ()  # ids of the security groups of its machines
