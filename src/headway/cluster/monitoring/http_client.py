"""Opens HTTP clients for daemons of a cluster's head that listen on its loopback address only, through the pinned SSH
connection."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Protocol

from headway.domain.machines.machine import Machine
from headway.transport.http_socket import http_client

if TYPE_CHECKING:
    import httpx

ANSWER_S = 10.0


class ForwardsPorts(Protocol):
    """The part of Connections that this package needs. `forward_port` returns the path of a local socket that leads to
    a port on the machine."""

    async def forward_port(self, machine: Machine, port: int) -> str:
        """Returns the path of a local Unix socket that leads to a port of the machine. Raises Unreachable."""
        ...


@asynccontextmanager
async def open_http_client(connections: ForwardsPorts, head: Machine, port: int) -> AsyncIterator[httpx.AsyncClient]:
    """Yields a client for the daemon that listens on a port of the head. Raises Unreachable if the head does not
    answer."""
    async with http_client(await connections.forward_port(head, port), "http://head", timeout_s=ANSWER_S) as client:
        yield client
