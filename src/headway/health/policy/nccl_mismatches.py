"""Compares the settings of NCCL on nodes with their interfaces and RDMA ports, and these with the measured bandwidth. Pure.

The rules of NCCL_SOCKET_IFNAME and NCCL_IB_HCA: https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from headway.domain.fabric.fabric_results import FabricMismatch
from headway.domain.fabric.node_network import NcclSetting, NetworkInterface, NodeNetwork, RdmaPort
from headway.domain.slurm.hostlist import compress

_MOST_SHOWN = 8  # names in a sentence
# NCCL sends each byte of an all-reduce of two nodes over the network half as often with trees as with rings, so that the bus
# bandwidth may be twice that of the interface.
_TREES = 2.0
_MUCH_LESS = 4.0  # times: bandwidth so far below that of the RDMA ports does not come from them

Nodes = Mapping[str, NodeNetwork]


def network_from_report(address: str, report: Any) -> NodeNetwork:
    """Returns what a node's test program reports (node/agent/node_tests/network_report.py). `address`: the node's. Of a
    program of another version everything may be missing."""
    found = report if isinstance(report, dict) else {}

    def rows(name: str) -> list[dict[str, Any]]:
        return [row for row in found.get(name) or () if isinstance(row, dict)]

    return NodeNetwork(
        address,
        tuple(
            NetworkInterface(str(row.get("name")), str(row.get("address")), int(row.get("mbit_s") or 0))
            for row in rows("interfaces")
        ),
        tuple(
            RdmaPort(
                str(row.get("device")), int(row.get("port") or 0), bool(row.get("active")), int(row.get("gbit_s") or 0)
            )
            for row in rows("rdma_ports")
        ),
        tuple(NcclSetting(str(row.get("name")), str(row.get("value"))) for row in rows("settings")),
    )


def nccl_mismatches(nodes: Nodes, best_gb_s: Mapping[str, float]) -> tuple[FabricMismatch, ...]:
    """Returns what is wrong with the settings and adapters of nodes of one plan. `best_gb_s`: node -> the best figure of a
    pair with it, as measured with NCCL; {} where GPUs are simulated."""
    return (*_settings(nodes), *_ports_down(nodes), *_sockets(nodes, best_gb_s))


def _settings(nodes: Nodes) -> Iterator[FabricMismatch]:
    """Yields the settings that fit no interface or port of their node. Equal ones of several nodes are one mismatch."""
    wrong: dict[tuple[NcclSetting, str, str], list[str]] = {}
    for node, network in nodes.items():
        for setting in network.settings:
            if fault := _setting_fault(setting, network):
                wrong.setdefault((setting, *fault), []).append(node)
    for (setting, why, remedy), names in wrong.items():
        where = f"{setting.name}={setting.value} in /etc/nccl.conf of {compress(names)}"
        yield FabricMismatch(f"{where} {why}", remedy)


def _setting_fault(setting: NcclSetting, network: NodeNetwork) -> tuple[str, str] | None:
    """Returns what is wrong with a setting and the remedy; None if nothing is."""
    active = [port.name for port in network.active_ports]
    if setting.name == "NCCL_SOCKET_IFNAME":
        names = [one.name for one in network.interfaces]
        if not any(_matches(setting.value, name) for name in names):
            return f"matches no interface ({_shown(names)})", f"name one of these or remove the line; {_OWN_CHOICE}"
    elif setting.name == "NCCL_IB_HCA" and network.rdma_ports:
        if not any(_matches(setting.value, port.device, port.port) for port in network.active_ports):
            return f"matches no active RDMA port ({_shown(active)})", f"name these or remove the line; {_OWN_CHOICE}"
    elif active and (setting.name, setting.value) in (("NCCL_IB_DISABLE", "1"), ("NCCL_NET", "Socket")):
        return f"makes NCCL use TCP although RDMA ports are active ({_shown(active)})", "remove the line"
    return None


_OWN_CHOICE = "headway run sets the variable itself"


def _matches(value: str, name: str, port: int = 0) -> bool:
    """Returns whether NCCL uses an interface or RDMA port with this value of its variable: prefixes, after "=" whole names,
    after "^" those to leave out."""
    excludes = value.startswith("^")
    rest = value.removeprefix("^")
    exact = rest.startswith("=")
    fits = any(
        _fits(item.strip(), name, port, exact=exact) for item in rest.removeprefix("=").split(",") if item.strip()
    )
    return fits is not excludes


def _fits(item: str, name: str, port: int, *, exact: bool) -> bool:
    wanted, _, number = item.partition(":")
    if port and number and number != str(port):
        return False
    return name == wanted if exact else name.startswith(wanted)


def _ports_down(nodes: Nodes) -> Iterator[FabricMismatch]:
    """Yields the nodes with fewer active RDMA ports than more than half of the nodes have. Nodes that report nothing are left
    out."""
    counts = {node: len(network.active_ports) for node, network in nodes.items() if network.interfaces}
    (usual, often) = max(Counter(counts.values()).items(), key=lambda found: found[1], default=(0, 0))
    if 2 * often <= len(counts):
        return
    for node, count in counts.items():
        if count < usual:
            down = [port.name for port in nodes[node].rdma_ports if not port.active]
            yield FabricMismatch(
                f"{node} has {count} active RDMA {'port' if count == 1 else 'ports'}, most nodes of its plan {usual}"
                + (f"; not active: {_shown(down)}" if down else ""),
                "look at its adapters, cables and switch ports (ibstat)",
            )


def _sockets(nodes: Nodes, best_gb_s: Mapping[str, float]) -> Iterator[FabricMismatch]:
    """Yields the nodes whose bandwidth is that of their Ethernet interface, although they have RDMA ports."""
    slow: dict[tuple[str, float, float], list[str]] = {}
    for node, network in nodes.items():
        interface, best = network.interface, best_gb_s.get(node, 0.0)
        rdma_gb_s = sum(port.gbit_s for port in network.active_ports) / 8
        if not interface or not best:
            continue
        ethernet_gb_s = interface.mbit_s / 8000
        if best <= _TREES * ethernet_gb_s and _MUCH_LESS * best <= rdma_gb_s:
            slow.setdefault((interface.name, ethernet_gb_s, rdma_gb_s), []).append(node)
    for (name, ethernet_gb_s, rdma_gb_s), names in slow.items():
        best = max(best_gb_s[node] for node in names)
        yield FabricMismatch(
            f"pairs with {compress(names)} reach at most {best:.3g} GB/s, which {name} carries ({ethernet_gb_s:.3g} GB/s), "
            f"while the RDMA ports carry {rdma_gb_s:.3g} GB/s: NCCL probably uses TCP",
            "install libibverbs1 and ibverbs-providers, allow jobs to lock memory, and read why in a job with NCCL_DEBUG=INFO",
        )


def _shown(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_SHOWN} more" if len(names) > _MOST_SHOWN else ""
    return (", ".join(names[:_MOST_SHOWN]) + more) or "none"
