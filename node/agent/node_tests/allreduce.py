"""The all-reduce test between nodes: with NCCL on GPUs, with gloo on the CPU where GPUs are simulated."""

from __future__ import annotations

import fcntl
import os
import socket
import struct
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from agent.config import Config
from agent.node_tests.cuda_driver import CudaDevice
from agent.node_tests.nccl import MEET_S, PORT, Nccl, bus_gb_s, nccl_all_reduce
from agent.node_tests.results import NodeTestFailed, NodeTestSkipped

_GLOO_WORDS = 1 << 20
_SIOCGIFADDR = 0x8915  # linux/sockios.h
_AT_ONCE = 5  # most rounds between two looks at the clock


def run_allreduce_test(
    config: Config, devices: Sequence[CudaDevice], peers: list[str], rank: int, seconds: float
) -> float:
    """Returns the bus bandwidth in GB/s between the nodes with the addresses `peers`, of which this one is number `rank`;
    for one address, between the GPUs of that node. Raises NodeTestFailed for a wrong sum, and NodeTestSkipped where no
    library for it is installed."""
    if not 0 <= rank < len(peers):
        raise NodeTestFailed("--peers takes the nodes' addresses, and --rank this node's place among them")
    if len(peers) == 1 and len(devices) < 2:
        raise NodeTestSkipped("an all-reduce within one node needs two GPUs")
    interface = interface_with_address(peers[rank])
    if interface:
        os.environ["GLOO_SOCKET_IFNAME"] = interface
        os.environ.setdefault("NCCL_SOCKET_IFNAME", interface)
    if config.simulated or not config.gpus:
        return _gloo_all_reduce(rank, peers, seconds)
    return nccl_all_reduce(Nccl(), devices, peers, rank, seconds)


def load_gloo() -> tuple[Any, Any]:
    """Returns torch and torch.distributed. Raises NodeTestSkipped where torch is not installed."""
    try:
        import torch
        import torch.distributed as dist
    except ImportError as error:
        raise NodeTestSkipped(f"torch is not installed on this node ({error})") from None
    return torch, dist


def _gloo_all_reduce(rank: int, peers: Sequence[str], seconds: float) -> float:
    torch, dist = load_gloo()
    ranks = len(peers)
    dist.init_process_group(
        "gloo",
        init_method=f"tcp://{peers[0]}:{PORT}",
        world_size=ranks,
        rank=rank,
        timeout=timedelta(seconds=MEET_S),
    )
    try:
        data = torch.ones(_GLOO_WORDS, dtype=torch.float32)
        dist.all_reduce(data)
        if not bool((data == ranks).all()):
            raise NodeTestFailed("the sum over all ranks is wrong")
        go_on, rounds, began = torch.ones(1), 0, time.monotonic()
        while bool(go_on.item()):
            some = min(_AT_ONCE, rounds + 1)  # one at first: over a slow link it takes seconds
            for _ in range(some):
                dist.all_reduce(data)
            rounds += some
            go_on.fill_(float(time.monotonic() - began < seconds))
            dist.broadcast(go_on, 0)  # rank 0 decides, so that all ranks stop in the same round
        took = time.monotonic() - began
        return bus_gb_s(4 * _GLOO_WORDS, ranks, took / rounds)
    finally:
        dist.destroy_process_group()


def interface_with_address(address: str) -> str:
    """Returns the network interface of this machine that has the address; "" if none has."""
    for _, name in socket.if_nameindex():
        if address_of_interface(name) == address:
            return name
    return ""


def address_of_interface(name: str) -> str:
    """Returns the IPv4 address of an interface; "" without one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        try:
            answer = fcntl.ioctl(any_socket, _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
        except OSError:
            return ""
    return socket.inet_ntoa(answer[20:24])
