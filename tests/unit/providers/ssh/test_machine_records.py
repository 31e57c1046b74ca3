"""The record of which host is which machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from headway.domain.cluster import Host
from headway.domain.machines.machine import Jump
from headway.domain.machines.survey import DetectedGpu, DetectedHardware, DetectedNic
from headway.errors import Refused
from headway.providers.ssh.machine_records import ClaimedHost, HostRecords


def hosts(*addresses: str) -> tuple[Host, ...]:
    return tuple(Host("", address, jump=Jump("bastion")) for address in addresses)


NAMES = ("lab-head", "lab-1-1", "lab-1-2")


def addresses(kept: HostRecords, *order: str, names: tuple[str, ...] = NAMES) -> dict[str, str]:
    return {name: host.address for name, host in kept.assign_hosts("lab", names, hosts(*order)).items()}


@pytest.fixture
def kept(tmp_path: Path) -> HostRecords:
    """h is the head, a and b are nodes."""
    made = HostRecords(tmp_path)
    for name, host in zip(NAMES, hosts("h", "a", "b"), strict=True):
        assert made.pin_host_key("lab", name, ClaimedHost(host, f"ssh-ed25519 {name}")) == f"ssh-ed25519 {name}"
    return made


def test_machines_keep_slots_when_inventory_is_reordered(kept: HostRecords) -> None:
    assert addresses(kept, "h", "b", "a") == {"lab-head": "h", "lab-1-1": "a", "lab-1-2": "b"}


def test_new_host_takes_slot_of_removed_machine(kept: HostRecords) -> None:
    assert addresses(kept, "h", "b", "c") == {"lab-head": "h", "lab-1-1": "c", "lab-1-2": "b"}


def test_refuses_inventory_that_moves_head(kept: HostRecords) -> None:
    kept.check_head("lab", "lab-head", hosts("h", "a"))
    with pytest.raises(Refused, match="lab-head is h, and the inventory names a as the head"):
        kept.check_head("lab", "lab-head", hosts("a", "h"))


def test_inventory_record_round_trips(kept: HostRecords, tmp_path: Path) -> None:
    found = DetectedHardware(
        8, 1, 8, 1, 64_000, 10_000, (DetectedGpu("H", 1, "b", (0, 1), 0),), (DetectedNic("m", "InfiniBand", 400, True),)
    )
    kept.record_survey("lab", {"lab-1-1": found}, {"lab-1-1": "10.0.0.2"}, ("/home",))
    again = HostRecords(tmp_path).read_record("lab")
    assert (again.machines["lab-1-1"].found, again.machines["lab-1-1"].address) == (found, "10.0.0.2")
    assert again.machines["lab-1-1"].host.jump == Jump("bastion")
    assert again.nfs == ("/home",)


def test_pinned_host_key_changes_only_by_inventory(kept: HostRecords) -> None:
    (host,) = hosts("a")
    assert kept.pin_host_key("lab", "lab-1-1", ClaimedHost(host, "ssh-ed25519 other")) == "ssh-ed25519 lab-1-1"
    named = Host("", "a", host_key="ssh-ed25519 new")
    assert kept.pin_host_key("lab", "lab-1-1", ClaimedHost(named, "ssh-ed25519 new")) == "ssh-ed25519 new"


def test_refuses_damaged_inventory_file(kept: HostRecords, tmp_path: Path) -> None:
    (tmp_path / "hosts" / "lab.json").write_text("{")
    with pytest.raises(Refused, match=r"lab\.json is damaged"):
        kept.read_record("lab")


def test_second_head_takes_first_unassigned_host(kept: HostRecords) -> None:
    names = ("lab-head", "lab-head2", "lab-1-1", "lab-1-2")
    assert kept.assign_hosts("new", names, hosts("h", "a", "b", "c"))["lab-head2"].address == "a"
    assert addresses(kept, "h", "a", "b", "c", names=names)["lab-head2"] == "c"
