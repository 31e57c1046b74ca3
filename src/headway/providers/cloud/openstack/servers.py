"""What Nova says of flavors and servers, in Headway's types. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from headway.catalog.gpu_types import GPU_TYPES
from headway.domain.machines.offer import Offer
from headway.domain.machines.rented import Instance, InstanceState
from headway.providers.cloud.machine_labels import MACHINE, read_claim, read_price
from headway.providers.cloud.openstack.errors import is_lack_of_capacity

CLOUD = "openstack"
VOLUMES = "os-extended-volumes:volumes_attached"
LAUNCH = "headway:launch"  # metadata of all servers of one launch: Nova keeps no tokens of its own
_STATES = {
    "ACTIVE": InstanceState.RUNNING,
    "PASSWORD": InstanceState.RUNNING,
    "REBOOT": InstanceState.RUNNING,
    "HARD_REBOOT": InstanceState.RUNNING,
    "VERIFY_RESIZE": InstanceState.RUNNING,
    "MIGRATING": InstanceState.RUNNING,
    "SHUTOFF": InstanceState.STOPPED,
    "PAUSED": InstanceState.STOPPED,
    "SUSPENDED": InstanceState.STOPPED,
    "SHELVED": InstanceState.STOPPED,
    "SHELVED_OFFLOADED": InstanceState.STOPPED,
    "DELETED": InstanceState.ENDED,
    "SOFT_DELETED": InstanceState.ENDED,
}
_TASKS = {
    "deleting": InstanceState.ENDING,
    "soft-deleting": InstanceState.ENDING,
    "powering-off": InstanceState.STOPPING,
    "powering-on": InstanceState.STARTING,
}
_NUMBER = re.compile(r"-(\d+)$")  # Nova numbers the names of servers that are made by one request, from 1
_GPU_CLASSES = ("resources:VGPU", "resources:PGPU")
_OF_A_SNAPSHOT = ("instance_uuid", "base_image_ref")  # properties that Nova writes on the image of a server


def read_flavor(row: Mapping[str, Any], region: str, source: str, day: date) -> Offer:
    """Returns the offer of a flavor, without zone and price. Its GPUs are those of its extra specs: of an alias for PCI devices
    that names a known type, or of a resource class."""
    specs = row.get("extra_specs") or {}
    gpu_type, gpus = _gpus(specs)
    return Offer(
        cloud=CLOUD,
        instance_type=row["name"],
        gpu_type=gpu_type,
        gpus=gpus,
        price_usd_per_node_hour=Decimal(0),
        source=source,
        as_of=day,
        region=region,
        cpus=int(row["vcpus"]),
        memory_mib=int(row["ram"]),
    )


def _gpus(specs: Mapping[str, str]) -> tuple[str, int]:
    for alias in specs.get("pci_passthrough:alias", "").split(","):
        name, _, count = alias.strip().partition(":")
        words = re.split(r"[^a-z0-9]+", name.lower())
        known = next((one for one in GPU_TYPES if one.lower() in words or one.lower() == name.lower()), "")
        if known:
            return known, int(count) if count.isdigit() else 1
    counts = [int(specs[key]) for key in _GPU_CLASSES if specs.get(key, "").isdigit()]
    return "", sum(counts)


def is_base_image(row: Mapping[str, Any]) -> bool:
    """Returns whether an image is one for x86_64 that is not the copy of a server's disk."""
    machine = row.get("architecture") or row.get("hw_architecture") or "x86_64"
    copied = row.get("image_type") == "snapshot" or any(row.get(name) for name in _OF_A_SNAPSHOT)
    return not copied and machine == "x86_64"


def read_server(row: Mapping[str, Any]) -> Instance:
    """Returns a server as an instance. One that failed before it ran has ended; one that failed later is stopped."""
    labels: Mapping[str, str] = row.get("metadata") or {}
    state, fault = _state(row), str((row.get("fault") or {}).get("message", ""))
    addresses = [one for some in (row.get("addresses") or {}).values() for one in some if one.get("version", 4) == 4]
    fixed = [one["addr"] for one in addresses if one.get("OS-EXT-IPS:type", "fixed") == "fixed"]
    floating = [one["addr"] for one in addresses if one.get("OS-EXT-IPS:type") == "floating"]
    return Instance(
        id=row["id"],
        state=state,
        claim=read_claim(labels, _launch_index(row, labels)),
        instance_type=str((row.get("flavor") or {}).get("original_name", "")),
        zone=str(row.get("OS-EXT-AZ:availability_zone") or ""),
        private_address=fixed[0] if fixed else "",
        public_address=floating[0] if floating else "",
        launched_at=read_time(row.get("OS-SRV-USG:launched_at")) or read_time(row.get("created")),
        why=fault,
        ended_at=read_time(row.get("OS-SRV-USG:terminated_at")),
        usd_per_hour=read_price(labels),
        lacked_capacity=state is InstanceState.ENDED and is_lack_of_capacity(fault),
    )


def _state(row: Mapping[str, Any]) -> InstanceState:
    if task := _TASKS.get(row.get("OS-EXT-STS:task_state") or ""):
        return task
    if row["status"] == "ERROR":
        return InstanceState.STOPPED if row.get("OS-SRV-USG:launched_at") else InstanceState.ENDED
    return _STATES.get(row["status"], InstanceState.STARTING)


def _launch_index(row: Mapping[str, Any], labels: Mapping[str, str]) -> int | None:
    """Returns the number of a server in its launch, from 0; None for one whose name a person has changed."""
    if "[" not in labels.get(MACHINE, "") and "," not in labels.get(MACHINE, ""):
        return 0
    found = _NUMBER.search(row.get("name") or "")
    return int(found[1]) - 1 if found and int(found[1]) else None


def read_time(text: object) -> float:
    """Returns a time of OpenStack, which is UTC with or without saying so, as unix seconds; 0 if there is none."""
    if not isinstance(text, str) or not text:
        return 0.0
    return datetime.fromisoformat(text.removesuffix("Z")).replace(tzinfo=UTC).timestamp()
