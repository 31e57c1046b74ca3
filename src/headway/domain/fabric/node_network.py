"""The network of a node as a fabric test reads it: interfaces, RDMA ports, settings of NCCL."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NetworkInterface:
    """A network interface of a node. `mbit_s`: 0 if its speed is unknown."""

    name: str
    address: str = ""
    mbit_s: int = 0


@dataclass(frozen=True, slots=True)
class RdmaPort:
    """A port of an InfiniBand or RoCE adapter."""

    device: str
    port: int
    active: bool
    gbit_s: int

    @property
    def name(self) -> str:
        """Returns the port as NCCL writes it."""
        return f"{self.device}:{self.port}"


@dataclass(frozen=True, slots=True)
class NcclSetting:
    """A line of a node's /etc/nccl.conf."""

    name: str
    value: str


@dataclass(frozen=True, slots=True)
class NodeNetwork:
    """What NCCL finds on a node."""

    address: str  # of the cluster's network
    interfaces: tuple[NetworkInterface, ...] = ()
    rdma_ports: tuple[RdmaPort, ...] = ()
    settings: tuple[NcclSetting, ...] = ()

    @property
    def interface(self) -> NetworkInterface | None:
        """The interface of the cluster's network."""
        return next((one for one in self.interfaces if one.address == self.address), None)

    @property
    def active_ports(self) -> tuple[RdmaPort, ...]:
        """The RDMA ports that carry traffic."""
        return tuple(port for port in self.rdma_ports if port.active)
