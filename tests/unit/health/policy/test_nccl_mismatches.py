"""Settings of NCCL and adapters that do not fit the measured bandwidth are named with the remedy."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headway.domain.fabric.node_network import NcclSetting, NetworkInterface, NodeNetwork, RdmaPort
from headway.health.policy.nccl_mismatches import nccl_mismatches, network_from_report

PORTS = tuple(RdmaPort(f"mlx5_{number}", 1, True, 400) for number in range(8))
NODE = NodeNetwork("10.0.0.1", (NetworkInterface("eth0", "10.0.0.1", 100_000), NetworkInterface("ib0")), PORTS)
PLAIN = NodeNetwork("10.0.0.1", (NetworkInterface("eth0", "10.0.0.1", 100_000),))


def having(name: str, value: str, network: NodeNetwork = NODE) -> NodeNetwork:
    return replace(network, settings=(NcclSetting(name, value),))


def said(network: NodeNetwork) -> list[str]:
    return [one.what for one in nccl_mismatches({"lab-1-1": network}, {})]


@pytest.mark.parametrize("value", ["eth0", "eth", "=eth0", "=ens1,eth0", "^docker", "^=lo,ib", "ens,ib"])
def test_interfaces_that_the_setting_matches(value: str) -> None:
    assert said(having("NCCL_SOCKET_IFNAME", value)) == []


@pytest.mark.parametrize("value", ["eth1", "=eth", "ens1,ens2", "^eth,ib", "^=eth0,ib0"])
def test_setting_without_an_interface_is_named_with_those_that_exist(value: str) -> None:
    assert said(having("NCCL_SOCKET_IFNAME", value)) == [
        f"NCCL_SOCKET_IFNAME={value} in /etc/nccl.conf of lab-1-1 matches no interface (eth0, ib0)"
    ]


@pytest.mark.parametrize(("value", "fits"), [
    ("mlx5", True), ("=mlx5_0:1,mlx5_1:1", True), ("^mlx5_0", True), ("=mlx5_0:2", False), ("mthca", False), ("^mlx5", False),
])  # fmt: skip
def test_adapters_that_the_setting_matches(value: str, fits: bool) -> None:
    assert (said(having("NCCL_IB_HCA", value)) == []) is fits
    assert said(having("NCCL_IB_HCA", value, PLAIN)) == [], "without adapters NCCL uses TCP in any case"


@pytest.mark.parametrize(("name", "value"), [("NCCL_IB_DISABLE", "1"), ("NCCL_NET", "Socket")])
def test_setting_that_turns_rdma_off_is_named_where_there_is_rdma(name: str, value: str) -> None:
    (what,) = said(having(name, value))
    assert what.startswith(
        f"{name}={value} in /etc/nccl.conf of lab-1-1 makes NCCL use TCP although RDMA ports are active"
    )
    assert said(having(name, value, PLAIN)) == []
    assert said(having("NCCL_IB_DISABLE", "0")) == []


def test_the_same_setting_of_several_nodes_is_said_once() -> None:
    nodes = {f"lab-1-{place}": having("NCCL_SOCKET_IFNAME", "eth9") for place in range(1, 4)}
    (one,) = nccl_mismatches(nodes, {})
    assert one.what == "NCCL_SOCKET_IFNAME=eth9 in /etc/nccl.conf of lab-1-[1-3] matches no interface (eth0, ib0)"
    assert one.remedy == "name one of these or remove the line; headway run sets the variable itself"


def test_node_with_fewer_active_ports_than_others_is_named() -> None:
    down = replace(NODE, rdma_ports=(*PORTS[:3], replace(PORTS[3], active=False), *PORTS[4:]))
    (one,) = nccl_mismatches({"lab-1-1": NODE, "lab-1-2": down, "lab-1-3": NODE}, {})
    assert one.what == "lab-1-2 has 7 active RDMA ports, most nodes of its plan 8; not active: mlx5_3:1"
    two = replace(NODE, rdma_ports=PORTS[:2])
    (one,) = nccl_mismatches({"lab-1-1": two, "lab-1-2": replace(NODE, rdma_ports=PORTS[:1]), "lab-1-3": two}, {})
    assert one.what == "lab-1-2 has 1 active RDMA port, most nodes of its plan 2"


def test_half_of_the_nodes_are_not_most() -> None:
    seven = replace(NODE, rdma_ports=PORTS[1:])
    assert nccl_mismatches({"lab-1-1": NODE, "lab-1-2": seven}, {}) == ()
    assert nccl_mismatches({"lab-1-1": NODE, "lab-1-2": seven, "lab-1-3": NODE, "lab-1-4": seven}, {}) == ()


def test_node_that_reports_no_interfaces_is_not_counted() -> None:
    silent = NodeNetwork("10.0.0.9")
    assert nccl_mismatches({"lab-1-1": NODE, "lab-1-2": silent, "lab-1-3": NODE}, {}) == ()
    nodes = {"lab-1-1": NODE, "lab-1-2": replace(NODE, rdma_ports=PORTS[1:])}
    assert nccl_mismatches({**nodes, "lab-1-3": silent, "lab-1-4": silent}, {}) == ()


@pytest.mark.parametrize(("gb_s", "named"), [(11.8, True), (24.0, True), (26.0, False), (380.0, False)])
def test_bandwidth_of_ethernet_despite_rdma_is_named(gb_s: float, named: bool) -> None:
    nodes = {"lab-1-1": NODE, "lab-1-2": NODE}
    found = nccl_mismatches(nodes, dict.fromkeys(nodes, gb_s))
    assert [one.what for one in found] == [
        f"pairs with lab-1-[1-2] reach at most {gb_s:.3g} GB/s, which eth0 carries (12.5 GB/s), while the RDMA ports carry "
        "400 GB/s: NCCL probably uses TCP"
    ] * named


def test_bandwidth_of_an_interface_that_is_the_adapter_is_no_mismatch() -> None:
    roce = NodeNetwork(
        "10.0.0.1", (NetworkInterface("eth0", "10.0.0.1", 100_000),), (RdmaPort("mlx5_0", 1, True, 100),)
    )
    assert nccl_mismatches({"lab-1-1": roce}, {"lab-1-1": 11.0}) == ()
    assert nccl_mismatches({"lab-1-1": PLAIN}, {"lab-1-1": 11.0}) == ()


def test_report_of_a_program_of_another_version_may_be_incomplete() -> None:
    assert network_from_report("10.0.0.1", None) == NodeNetwork("10.0.0.1")
    report = {"interfaces": [{"name": "eth0", "address": "10.0.0.1", "mbit_s": 0}], "settings": "none"}
    found = network_from_report("10.0.0.1", report)
    assert found.interface == NetworkInterface("eth0", "10.0.0.1")
    assert (found.rdma_ports, found.settings) == ((), ())
    assert nccl_mismatches({}, {}) == ()
