"""HTTP to a daemon of a machine through a local Unix socket that leads to it."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import httpx


def http_client(socket: str, base_url: str, *, timeout_s: float, keep: int = 20) -> httpx.AsyncClient:
    """Returns a client that sends all requests to the socket at this path. `keep`: the number of idle connections that it
    keeps.

    The requests are plain HTTP. httpx would still load the certificates of all public authorities into each client, which
    takes 27 ms and 1 MB; an empty TLS context prevents that."""
    import httpx

    transport = httpx.AsyncHTTPTransport(
        uds=socket,
        verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
        limits=httpx.Limits(max_keepalive_connections=keep),
    )
    return httpx.AsyncClient(transport=transport, base_url=base_url, timeout=timeout_s)
