"""Nova's flavors and servers in Headway's types."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest

from headway.domain.machines.rented import InstanceState
from headway.providers.cloud.openstack.servers import read_flavor, read_server, read_time

FLAVOR = {"id": "1", "name": "gpu", "vcpus": 8, "ram": 65536, "disk": 20}
RAN = "2026-11-29T10:00:00.000000"


@pytest.mark.parametrize(
    ("specs", "found"),
    [
        ({}, ("", 0)),
        ({"pci_passthrough:alias": "h100:4"}, ("h100", 4)),
        ({"pci_passthrough:alias": "mlx5:1,nvidia-a100:2"}, ("a100", 2)),
        ({"pci_passthrough:alias": "mlx5:8"}, ("", 0)),
        ({"pci_passthrough:alias": "l40s"}, ("l40s", 1)),
        ({"resources:VGPU": "1"}, ("", 1)),
        ({"resources:PGPU": "2", "hw:cpu_policy": "dedicated"}, ("", 2)),
    ],
)
def test_gpus_of_a_flavor(specs: dict[str, str], found: tuple[str, int]) -> None:
    offer = read_flavor({**FLAVOR, "extra_specs": specs}, "R", "", date(2026, 11, 29))
    assert (offer.gpu_type, offer.gpus) == found
    assert (offer.cpus, offer.memory_mib, offer.price_usd_per_node_hour) == (8, 65536, 0)


def server(status: str, **more: Any) -> Any:
    return read_server(
        {"id": "s", "name": "n", "status": status, "metadata": {}, "created": "2026-11-29T09:00:00Z", **more}
    )


@pytest.mark.parametrize(
    ("status", "more", "state"),
    [
        ("BUILD", {}, InstanceState.STARTING),
        ("ACTIVE", {}, InstanceState.RUNNING),
        ("ACTIVE", {"OS-EXT-STS:task_state": "deleting"}, InstanceState.ENDING),
        ("ACTIVE", {"OS-EXT-STS:task_state": "powering-off"}, InstanceState.STOPPING),
        ("SHUTOFF", {"OS-EXT-STS:task_state": "powering-on"}, InstanceState.STARTING),
        ("SHUTOFF", {}, InstanceState.STOPPED),
        ("ERROR", {}, InstanceState.ENDED),
        ("ERROR", {"OS-SRV-USG:launched_at": RAN}, InstanceState.STOPPED),
        ("SOFT_DELETED", {}, InstanceState.ENDED),
        ("A_NEW_WORD", {}, InstanceState.STARTING),
    ],
)
def test_state_of_a_server(status: str, more: dict[str, Any], state: InstanceState) -> None:
    assert server(status, **more).state is state


def test_lack_of_hosts_is_no_other_failure() -> None:
    assert server("ERROR", fault={"message": "No valid host was found. "}).lacked_capacity
    assert not server("ERROR", fault={"message": "Block Device Mapping is Invalid."}).lacked_capacity


def test_addresses_and_time_of_launch() -> None:
    addresses = {
        "lab": [
            {"addr": "fe80::1", "version": 6, "OS-EXT-IPS:type": "fixed"},
            {"addr": "10.0.0.5", "version": 4, "OS-EXT-IPS:type": "fixed"},
            {"addr": "203.0.113.5", "version": 4, "OS-EXT-IPS:type": "floating"},
        ]
    }
    one = server("ACTIVE", addresses=addresses, **{"OS-SRV-USG:launched_at": RAN})
    assert (one.private_address, one.public_address) == ("10.0.0.5", "203.0.113.5")
    assert one.launched_at - server("BUILD").launched_at == 3600, "both are UTC"
    assert read_time(None) == 0
