"""Opens HTTP clients for daemons of a cluster's head that listen on its loopback address only, through the pinned SSH
connection."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Protocol

from headway.domain.machines.machine import Machine

if TYPE_CHECKING:
    import httpx

ANSWER_S = 10.0


class ForwardsPorts(Protocol):
    """The part of Connections that this package needs. `forward_port` returns the path of a local socket that leads to
    a port on the machine."""

    async def forward_port(self, machine: Machine, port: int) -> str: ...


@asynccontextmanager
async def open_http_client(connections: ForwardsPorts, head: Machine, port: int) -> AsyncIterator[httpx.AsyncClient]:
    """Yields a client for the daemon that listens on a port of the head. Raises Unreachable if the head does not
    answer."""
    import httpx

    transport = httpx.AsyncHTTPTransport(uds=await connections.forward_port(head, port))
    async with httpx.AsyncClient(transport=transport, base_url="http://head", timeout=ANSWER_S) as client:
        yield client
