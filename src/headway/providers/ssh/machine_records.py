"""Records of owned machines in the state folder, one file per cluster: slot, host key and hardware of each host."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from headway.domain.cluster import Host
from headway.domain.machines.machine import Jump
from headway.domain.machines.survey import DetectedGpu, DetectedHardware, DetectedNic
from headway.errors import Refused
from headway.images.podman import file_lock


@dataclass(frozen=True, slots=True)
class MachineContainer:
    """The system container of a host, in which the machine of its slot runs."""

    port: int  # SSH port of the machine
    key: str  # its public host key
    image: str  # id of its node image on the server's machine


@dataclass(frozen=True, slots=True)
class ClaimedHost:
    """An owned machine that has a slot."""

    host: Host
    key: str  # pinned host key
    found: DetectedHardware | None = None
    address: str = ""  # at the last apply; "" if no apply got that far
    container: MachineContainer | None = None  # None: Headway's packages are installed on the host itself


@dataclass(frozen=True)
class ClusterRecord:
    """The record of one cluster. `nfs`: the volumes that the head exports."""

    machines: Mapping[str, ClaimedHost] = field(default_factory=dict)  # head or slot name -> the machine
    nfs: tuple[str, ...] = ()


class HostRecords:
    """Reads and writes the files of `state_dir/hosts`."""

    def __init__(self, state_dir: Path) -> None:
        self._folder = state_dir / "hosts"

    def server_id(self) -> str:
        """Returns the id of this server, which the first call creates."""
        path = self._folder / "server-id"
        with file_lock(path.with_suffix(".lock")):
            if not path.exists():
                path.write_text(secrets.token_hex(8) + "\n")
            return path.read_text().strip()

    def read_record(self, cluster: str) -> ClusterRecord:
        """Returns the record of a cluster, an empty one if there is none. Raises Refused if the file is damaged."""
        path = self._path(cluster)
        try:
            document = json.loads(path.read_text())
            machines = {name: _parse_host(name, fields) for name, fields in document["machines"].items()}
            return ClusterRecord(machines, tuple(document["nfs"]))
        except FileNotFoundError:
            return ClusterRecord()
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise Refused(f"{path} is damaged: {error}", hint="remove it; host keys are then pinned again") from error

    def assign_hosts(self, cluster: str, names: Sequence[str], hosts: Sequence[Host]) -> dict[str, Host]:
        """Returns the machine of each slot. A machine keeps its slot while both exist, whatever the order of the
        inventory; the other machines fill the free slots in order."""
        kept = self.read_record(cluster).machines
        left = {(host.address, host.port): host for host in hosts}
        places: dict[str, Host] = {}
        for name in names:
            claimed = kept.get(name)
            at = (claimed.host.address, claimed.host.port) if claimed else ("", 0)
            if at in left:
                places[name] = replace(left.pop(at), name=name)
        for name in names:
            if name not in places and left:
                places[name] = replace(left.pop(next(iter(left))), name=name)
        return places

    def check_head(self, cluster: str, head: str, hosts: Sequence[Host]) -> None:
        """Raises Refused if the inventory names another machine as the head."""
        known = self.read_record(cluster).machines.get(head)
        if known is not None and hosts and (known.host.address, known.host.port) != (hosts[0].address, hosts[0].port):
            raise Refused(
                f"{head} is {known.host.address}, and the inventory names {hosts[0].address} as the head",
                hint="queue and accounting are on the head: it can't change until the cluster is taken down",
            )

    def pin_host_key(self, cluster: str, name: str, claimed: ClaimedHost) -> str:
        """Gives the machine its slot, pins its key unless one is pinned already, and returns the pinned key. A key in
        the inventory replaces the pinned one."""

        def change(machines: dict[str, ClaimedHost]) -> None:
            known = machines.get(name)
            same = known is not None and (known.host.address, known.host.port) == (
                claimed.host.address,
                claimed.host.port,
            )
            if known is not None and same and not claimed.host.host_key:
                machines[name] = replace(known, host=claimed.host, container=claimed.container)
            else:
                machines[name] = claimed

        return self._change(cluster, change).machines[name].key

    def record_survey(
        self, cluster: str, found: Mapping[str, DetectedHardware], addresses: Mapping[str, str], nfs: Sequence[str]
    ) -> None:
        """Saves hardware and addresses of machines, and the volumes that the head exports."""

        def change(machines: dict[str, ClaimedHost]) -> None:
            for name, hardware in found.items():
                if name in machines:
                    machines[name] = replace(machines[name], found=hardware, address=addresses.get(name, ""))

        self._change(cluster, change, nfs)

    def release_host(self, cluster: str, name: str) -> None:
        """Removes a machine from the cluster's record."""
        self._change(cluster, lambda machines: machines.pop(name, None))

    def remove_cluster(self, cluster: str) -> None:
        """Deletes the cluster's record."""
        self._path(cluster).unlink(missing_ok=True)

    def _path(self, cluster: str) -> Path:
        return self._folder / f"{cluster}.json"

    def _change(self, cluster: str, change: Any, nfs: Sequence[str] | None = None) -> ClusterRecord:
        """Changes the record under a lock, because machines are created concurrently."""
        path = self._path(cluster)
        with file_lock(path.with_suffix(".lock")):
            kept = self.read_record(cluster)
            machines = dict(kept.machines)
            change(machines)
            kept = ClusterRecord(machines, kept.nfs if nfs is None else tuple(nfs))
            document = {
                "machines": {name: asdict(claimed) for name, claimed in machines.items()},
                "nfs": list(kept.nfs),
            }
            draft = path.with_suffix(".draft")
            draft.write_text(json.dumps(document, indent=1, sort_keys=True) + "\n")
            draft.replace(path)
        return kept


def _parse_host(name: str, fields: dict[str, Any]) -> ClaimedHost:
    jump = fields["host"].pop("jump", None)
    host = Host(**{**fields["host"], "name": name, "jump": Jump(**jump) if jump else None})
    container = fields.get("container")
    return ClaimedHost(
        host,
        fields["key"],
        _parse_hardware(fields["found"]) if fields.get("found") else None,
        fields.get("address", ""),
        MachineContainer(**container) if container else None,
    )


def _parse_hardware(fields: dict[str, Any]) -> DetectedHardware:
    gpus = tuple(DetectedGpu(**{**gpu, "cores": tuple(gpu["cores"])}) for gpu in fields["gpus"])
    return DetectedHardware(**{**fields, "gpus": gpus, "nics": tuple(DetectedNic(**nic) for nic in fields["nics"])})
