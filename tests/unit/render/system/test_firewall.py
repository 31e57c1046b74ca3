"""The firewall."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headway.changes.checks.owned_machines import SurveyResult
from headway.cluster.owned.machine_claims import InventorySurvey
from headway.domain.cluster import Host
from headway.domain.machines.machine import Jump
from headway.domain.machines.site import OwnedSite
from headway.providers.base import Placement
from headway.providers.ssh.records import ClaimedHost, HostRecords
from headway.providers.ssh.survey import parse_survey, split_sections
from tests.support.clusters import builders

RECORDED = (Path(__file__).parents[3] / "support" / "machines" / "data" / "survey-bare-debian13.txt").read_text()
NOW = 1795282644.0


def parts(**others: str) -> dict[str, list[str]]:
    found = split_sections(RECORDED)
    return {**found, **{name: text.splitlines() for name, text in others.items()}}


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


def test_firewall_allows_server_addresses_seen_by_machines() -> None:
    """The server's own address is another one to them where something between translates it."""
    seen = {
        name: parse_survey(name, "10.9.0.10", parts(**{"from": address}), NOW, NOW)
        for name, address in {"lab-head": "198.51.100.7", "lab-1-1": "198.51.100.8", "lab-1-2": ""}.items()
    }
    place: Any = Placement("10.9.0.0/24", "10.87.3.1", {}, 0, 0, 0, 0, own=OwnedSite({}, (22,), {}, ("10.87.3.1",), ()))
    judged: Any = SurveyResult((), (), {}, ())
    kept = InventorySurvey(builders.cluster(), None, {}, seen, {}, frozenset(), judged).place(place)  # type: ignore[arg-type]
    assert kept.own is not None
    assert kept.own.server_addresses == ("10.87.3.1", "198.51.100.7", "198.51.100.8")
