"""Records of rented machines in the state folder, one file per cluster: the tries to rent a machine for each slot, and the
cluster's network. A try is written down before its launch, so that no instance is launched that no record knows."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

from headway.domain.machines.offer import PurchaseOption
from headway.domain.machines.rented import CloudNetwork
from headway.errors import Refused
from headway.images.podman import file_lock


@dataclass(frozen=True, slots=True)
class RentalTry:
    """One try to rent a machine for a slot. All that a launch is made of is here, so that its repetition is the same."""

    number: int
    instance_type: str
    zone: str
    purchase: PurchaseOption
    usd_per_hour: Decimal  # 0 = not known
    begun_at: float  # unix seconds
    image: str
    subnet: str
    address: str  # its address in the subnet; "" until the cloud has chosen one
    user_data: str = field(repr=False)  # with a private key; "" once the machine has its own host key
    host_key: str  # the public key that it answers with: first that of the user data
    instance: str = ""  # "" until the cloud has answered
    settled: bool = False  # it answers with its own host key
    claimed: bool = False  # it is a machine of the cluster
    ended: bool = False  # nothing was launched, or the instance is gone
    together: tuple[str, ...] = ()  # all machines of its launch, in slot order; () = it was launched alone


@dataclass(frozen=True)
class RentalRecord:
    """The record of one cluster."""

    tries: Mapping[str, RentalTry] = field(default_factory=dict)  # head or slot name -> its latest try
    network: CloudNetwork | None = None
    provider: str = ""  # where the cluster last rented something; "" = nowhere yet
    region: str = ""

    @property
    def unended(self) -> frozenset[str]:
        """Names for which a machine is rented, or its launch has begun."""
        return frozenset(self.prices)

    @property
    def prices(self) -> Mapping[str, Decimal]:
        """Prices of these machines, USD an hour; 0 = not known."""
        return {name: made.usd_per_hour for name, made in self.tries.items() if not made.ended}


class RentalRecords:
    """Reads and writes the files of `state_dir/rented`. They hold private keys: only their owner may read them."""

    def __init__(self, state_dir: Path) -> None:
        self._folder = state_dir / "rented"

    def clusters(self) -> tuple[str, ...]:
        """Returns the names of the clusters that have a record."""
        return tuple(sorted(path.stem for path in self._folder.glob("*.json")))

    def places(self) -> tuple[tuple[str, str], ...]:
        """Returns where clusters of this server rent or rented something: (provider, region)."""
        records = map(self.read, self.clusters())
        return tuple(sorted({(record.provider, record.region) for record in records if record.provider}))

    def read(self, cluster: str) -> RentalRecord:
        """Returns the record of a cluster, an empty one if there is none. Raises Refused if the file is damaged."""
        path = self._path(cluster)
        try:
            document = json.loads(path.read_text())
            tries = {name: _parse_try(fields) for name, fields in document["tries"].items()}
            return RentalRecord(tries, _parse_network(document["network"]), document["provider"], document["region"])
        except FileNotFoundError:
            return RentalRecord()
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            hint = "restore it from a backup of the state folder; headway cloud ls shows what is rented"
            raise Refused(f"{path} is damaged: {error}", hint=hint) from error

    def set_network(self, cluster: str, provider: str, region: str, network: CloudNetwork) -> None:
        """Saves the cluster's network and where it is."""
        self._change(cluster, lambda record: replace(record, network=network, provider=provider, region=region))

    def set_tries(self, cluster: str, tries: Mapping[str, RentalTry]) -> None:
        """Saves the latest try of each of these slots: of all or of none."""
        self._change(cluster, lambda record: replace(record, tries={**record.tries, **tries}))

    def update_try(self, cluster: str, name: str, number: int, **fields: Any) -> RentalTry | None:
        """Changes fields of a slot's try, unless a later one has replaced it. Returns the latest try."""

        def change(record: RentalRecord) -> RentalRecord:
            known = record.tries.get(name)
            if known is None or known.number != number:
                return record
            return replace(record, tries={**record.tries, name: replace(known, **fields)})

        return self._change(cluster, change).tries.get(name)

    def end_all(self, cluster: str) -> None:
        """Records that nothing of the cluster is rented. The numbers of the tries stay: a cloud answers a launch with
        the number of an earlier one with the instance of that time."""

        def change(record: RentalRecord) -> RentalRecord:
            ended = {n: replace(made, ended=True, claimed=False, user_data="") for n, made in record.tries.items()}
            return replace(record, tries=ended, network=None)

        self._change(cluster, change)

    def _path(self, cluster: str) -> Path:
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        return self._folder / f"{cluster}.json"

    def _change(self, cluster: str, change: Callable[[RentalRecord], RentalRecord]) -> RentalRecord:
        path = self._path(cluster)
        with file_lock(path.with_suffix(".lock")):
            record = change(self.read(cluster))
            document = {
                "tries": {name: asdict(made) for name, made in record.tries.items()},
                "network": asdict(record.network) if record.network else None,
                "provider": record.provider,
                "region": record.region,
            }
            draft = path.with_suffix(".draft")
            draft.unlink(missing_ok=True)
            with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:  # noqa: PTH123
                file.write(json.dumps(document, indent=1, sort_keys=True, default=str) + "\n")
                file.flush()
                os.fsync(file.fileno())  # an instance may be launched next, which nothing else would know
            draft.replace(path)
        return record


def _parse_try(fields: dict[str, Any]) -> RentalTry:
    money, purchase = Decimal(fields["usd_per_hour"]), PurchaseOption(fields["purchase"])
    together = tuple(fields.get("together", ()))
    return RentalTry(**{**fields, "usd_per_hour": money, "purchase": purchase, "together": together})


def _parse_network(fields: dict[str, Any] | None) -> CloudNetwork | None:
    if fields is None:
        return None
    subnets = {zone: (one[0], one[1]) for zone, one in fields["subnets"].items()}
    return CloudNetwork(subnets, tuple(fields["groups"]))
