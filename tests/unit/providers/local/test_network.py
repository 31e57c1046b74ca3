"""Local clusters get separate subnets and addresses."""

from __future__ import annotations

from ipaddress import IPv4Network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.errors import Refused
from headway.providers.local import network
from tests.support.clusters import builders

ROUTES = """Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT
eth0\t00000000\t010AA8C0\t0003\t0\t0\t0\t00000000\t0\t0\t0
podman1\t0036560A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0
wg0\t0000400A\t00000000\t0001\t0\t0\t0\t0000C0FF\t0\t0\t0
"""


def test_reads_host_routes_except_default() -> None:
    assert network.routed_networks(ROUTES) == [IPv4Network("10.86.54.0/24"), IPv4Network("10.64.0.0/10")]


def test_same_cluster_gets_same_free_subnet() -> None:
    first = network.choose_subnet("headway-1-lab", [])
    assert first == network.choose_subnet("headway-1-lab", [IPv4Network("192.168.0.0/16")])
    assert first != network.choose_subnet("headway-1-demo", [])
    assert first.subnet_of(IPv4Network("10.64.0.0/10"))


@given(st.lists(st.integers(0, 2**14 - 1), max_size=40), st.text(max_size=8))
def test_chosen_subnet_overlaps_no_taken_subnet(numbers: list[int], seed: str) -> None:
    wanted = network.choose_subnet(seed, [])
    taken = [wanted, *(IPv4Network((int(IPv4Network("10.64.0.0/10")[0]) + n * 256, 24)) for n in numbers)]
    assert not any(network.choose_subnet(seed, taken).overlaps(other) for other in taken)


def test_refuses_when_no_subnet_is_free() -> None:
    with pytest.raises(Refused, match="no free network"):
        network.choose_subnet("x", [IPv4Network("10.0.0.0/8")])


def test_addresses_follow_slot_numbers_and_are_unique() -> None:
    cluster = builders.cluster(nodes=240, spares=0, leaf_size=16)
    found = network.machine_addresses(cluster, IPv4Network("10.70.1.0/24"))
    assert found["lab-head"] == "10.70.1.10"
    assert found["lab-1-1"] == "10.70.1.11"
    assert len(set(found.values())) == 241
    assert "10.70.1.255" not in found.values()
    assert len({network.mac_address(address) for address in found.values()}) == 241


def test_refuses_more_than_240_local_nodes() -> None:
    with pytest.raises(Refused, match="at most 240"):
        network.machine_addresses(builders.cluster(nodes=241, spares=0), IPv4Network("10.70.1.0/24"))


def test_networks_of_podman_are_taken_also_without_a_route() -> None:
    default = {"name": "podman", "subnets": [{"subnet": "10.88.0.0/16"}, {"subnet": "fd00::/64"}]}
    listed = network.listed_networks([default, {"name": "none"}])
    assert listed == [IPv4Network("10.88.0.0/16")]
    seed = next(f"s{n}" for n in range(4000) if network.choose_subnet(f"s{n}", []).overlaps(listed[0]))
    assert not network.choose_subnet(seed, listed).overlaps(listed[0])
