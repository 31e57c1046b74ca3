"""A cloud in memory. It allows only the calls that a test names, and answers launches by token as a cloud does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from decimal import Decimal

from headway.domain.machines.cloud_settings import CloudSettings
from headway.domain.machines.offer import Offer, PurchaseOption
from headway.domain.machines.rented import CloudNetwork, Instance, InstanceState, Quota, RentedThing
from headway.errors import HeadwayError, Unanswered
from headway.providers.base import ReclaimNotice
from headway.providers.cloud.api import CloudApi, LaunchOrder
from headway.providers.cloud.refusals import OtherOrder

ZONES = ("a", "b")
ALL_CALLS = frozenset(name for name in vars(CloudApi) if not name.startswith("_"))


@dataclass
class FakeCloud:
    """Implements providers.cloud.api.CloudApi. `allowed`: the calls that the test expects; others fail."""

    allowed: frozenset[str] = ALL_CALLS
    prices: dict[str, str] = field(default_factory=dict)  # type -> USD an hour
    refusals: dict[tuple[str, str], HeadwayError] = field(default_factory=dict)  # ("type" or "spot type", zone)
    clock: Callable[[], float] = lambda: 1000.0
    lost: int = 0  # answers of launches to lose
    before: Callable[[str], None] = lambda _: None  # called with the name of each call, for example to fail there
    after_launch: Callable[[], None] = lambda: None  # called when an instance is launched, before the answer
    machines: dict[str, Instance] = field(default_factory=dict)
    orders: dict[str, tuple[LaunchOrder, list[str]]] = field(default_factory=dict)  # token -> order and instances
    warned: tuple[ReclaimNotice, ...] = ()
    things: list[RentedThing] = field(default_factory=list)  # besides the instances
    quotas: dict[str, Quota] = field(default_factory=dict)  # by type
    consoles: dict[str, str] = field(default_factory=dict)  # by instance
    calls: list[str] = field(default_factory=list)

    @property
    def living(self) -> list[Instance]:
        return [one for one in self.machines.values() if one.exists]

    def _call(self, name: str) -> None:
        assert name in self.allowed, f"{name} was not expected"
        self.calls.append(name)
        self.before(name)

    async def zones(self, settings: CloudSettings) -> tuple[str, ...]:
        self._call("zones")
        return settings.zones or ZONES

    async def offers(self, types: Sequence[str], zones: Sequence[str], purchase: PurchaseOption) -> tuple[Offer, ...]:
        self._call("offers")
        day = date(2026, 11, 1)
        return tuple(
            Offer(
                "fake", name, "", 0, Decimal(self.prices.get(name, "1")), "https://example.org", day, purchase, "r", zone,
                cpus=64, memory_mib=262144,
            )
            for name in types
            for zone in zones
        )  # fmt: skip

    async def quota(self, offer: Offer) -> Quota | None:
        self._call("quota")
        return self.quotas.get(offer.instance_type)

    async def find_image(self, debian: str) -> str:
        self._call("find_image")
        return f"image-{debian}"

    async def find_network(self, server: str, cluster: str, settings: CloudSettings) -> CloudNetwork | None:
        self._call("find_network")
        return None

    async def make_network(
        self, server: str, cluster: str, settings: CloudSettings, ssh_from: Sequence[str], others: Sequence[str] = ()
    ) -> CloudNetwork:
        self._call("make_network")
        return CloudNetwork({zone: (f"subnet-{zone}", f"10.64.{n}.0/24") for n, zone in enumerate(ZONES)}, ("group",))

    async def remove_network(self, server: str, cluster: str) -> None:
        self._call("remove_network")

    async def launch(self, order: LaunchOrder) -> tuple[Instance, ...]:
        self._call("launch")
        offer = order.offer
        named = (offer.instance_type, f"{offer.purchase} {offer.instance_type}")
        refusal = next((self.refusals[name, offer.zone] for name in named if (name, offer.zone) in self.refusals), None)
        if refusal is not None:
            raise refusal
        asked, known = self.orders.get(order.token, (order, []))
        if asked != order:
            raise OtherOrder("IdempotentParameterMismatch", "the token was used with other parameters")
        assert len(order.claims) == 1 or not order.address, "several instances can't have one address"
        for claim in order.claims if not known else ():
            number = len(self.machines) + 1
            self.machines[f"i-{number}"] = Instance(
                f"i-{number}", InstanceState.RUNNING, claim, order.offer.instance_type, order.offer.zone,
                order.offer.purchase, order.address or f"10.64.9.{number}", f"203.0.113.{number}", self.clock(),
                usd_per_hour=order.usd_per_hour,
            )  # fmt: skip
            known.append(f"i-{number}")
        self.orders[order.token] = (order, known)
        self.after_launch()
        if self.lost:
            self.lost -= 1
            raise Unanswered("an answer was lost")
        return tuple(self.machines[one] for one in known)

    async def add_public_address(self, instance: Instance) -> None:
        self._call("add_public_address")

    async def instances(self, server: str, cluster: str = "") -> tuple[Instance, ...]:
        self._call("instances")
        return tuple(
            one for one in self.machines.values() if one.claim.server == server and cluster in ("", one.claim.cluster)
        )

    async def describe(self, instance: str) -> Instance | None:
        self._call("describe")
        return self.machines.get(instance)

    async def console(self, instance: str) -> str:
        self._call("console")
        return self.consoles.get(instance, "")

    async def terminate(self, instances: Sequence[str]) -> None:
        self._call("terminate")
        for one in instances:
            if one in self.machines:
                was = self.machines[one]
                at = was.ended_at or self.clock()
                self.machines[one] = replace(was, state=InstanceState.ENDED, why="User initiated", ended_at=at)

    async def start(self, instance: str) -> None:
        self._call("start")
        self.machines[instance] = replace(self.machines[instance], state=InstanceState.RUNNING)

    async def stop(self, instance: str, *, at_once: bool) -> None:
        self._call("stop")
        self.machines[instance] = replace(self.machines[instance], state=InstanceState.STOPPED)

    async def costly_things(self, server: str) -> tuple[RentedThing, ...]:
        self._call("costly_things")
        rented = (
            RentedThing(
                one.id, "instance", one.claim.cluster, one.claim.machine, one.launched_at, one.instance_type, one.zone,
                one.state.value, one.usd_per_hour or None, number=one.claim.number,
            )
            for one in self.living
            if one.claim.server == server
        )  # fmt: skip
        return (*rented, *self.things)

    async def delete_things(self, things: Sequence[RentedThing]) -> None:
        self._call("delete_things")
        self.things = [thing for thing in self.things if thing not in things]

    async def notices(self, instances: Sequence[Instance]) -> tuple[ReclaimNotice, ...]:
        self._call("notices")
        return self.warned
